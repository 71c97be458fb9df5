// Package login stands in for an OpenID Connect issuer. It sends people back at once with a code, and gives a token for
// the code to whoever knows the verifier.
package login

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// KeyID is what the issuer calls its key.
const KeyID = "k"

// Issuer is one.
type Issuer struct {
	URL string
	// ClientID and Secret are of the client that it knows, and Redirect is the only address that people are sent back
	// to.
	ClientID, Secret, Redirect string
	// Access and ID are the claims of its tokens, over those that are right; nil makes none.
	Access, ID map[string]any
	// Refuses is the error that it sends people back with, if any.
	Refuses string
	// Key is what it signs with; its tokens name it [KeyID].
	Key crypto.Signer

	mu   sync.Mutex
	next int
	// challenges are by codes.
	challenges map[string]string
}

// Start starts one, and stops it with the test. around stands before what it answers; nil: nothing.
func Start(t testing.TB, around func(http.Handler) http.Handler) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{ClientID: "console", Key: key, challenges: map[string]string{}}
	says := &oidctest.Server{PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: KeyID,
		Algorithm: oidc.ES256}}, Algorithms: []string{oidc.ES256}}
	mux := http.NewServeMux()
	mux.Handle("/", says)
	mux.HandleFunc("GET /auth", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	var answers http.Handler = mux
	if around != nil {
		answers = around(mux)
	}
	srv := httptest.NewServer(answers)
	t.Cleanup(srv.Close)
	i.URL = srv.URL
	says.SetIssuer(srv.URL)
	return i
}

// authorize takes everybody for a person who has signed in.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("redirect_uri") != i.Redirect || q.Get("client_id") != i.ClientID {
		http.Error(w, "an unknown client, or another redirect_uri", http.StatusBadRequest)
		return
	}
	said := url.Values{"state": {q.Get("state")}}
	switch {
	case i.Refuses != "":
		said.Set("error", "access_denied")
		said.Set("error_description", i.Refuses)
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "":
		said.Set("error", "invalid_request")
	default:
		said.Set("code", i.Code(q.Get("code_challenge")))
	}
	back.RawQuery = said.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// Code is what a person comes back with who has left with this challenge.
func (i *Issuer) Code(challenge string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next++
	code := fmt.Sprint("code-", i.next)
	i.challenges[code] = challenge
	return code
}

// Challenge is what is made from a verifier.
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// take checks the request for a token, and uses its code up.
func (i *Issuer) take(r *http.Request) (problem string, err error) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if id != i.ClientID || secret != i.Secret {
		return "invalid_client", errors.New("another client")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	challenge, known := i.challenges[r.PostFormValue("code")]
	delete(i.challenges, r.PostFormValue("code"))
	if !known || r.PostFormValue("grant_type") != "authorization_code" ||
		r.PostFormValue("redirect_uri") != i.Redirect || Challenge(r.PostFormValue("code_verifier")) != challenge {
		return "invalid_grant", errors.New("no such code, or another's")
	}
	return "", nil
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	out := map[string]any{"token_type": "Bearer", "access_token": "opaque"}
	if problem, err := i.take(r); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]any{"error": problem, "error_description": err.Error()}
	} else {
		if i.Access != nil {
			out["access_token"] = i.Token(i.Key, KeyID, i.Access)
		}
		if i.ID != nil {
			out["id_token"] = i.Token(i.Key, KeyID, i.ID)
		}
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		panic(err) // texts always encode, and httptest says what else fails
	}
}

// Token signs claims over those that are right: of agent ann, for the audience toolyard, for an hour. nil leaves one
// out.
func (i *Issuer) Token(key crypto.Signer, kid string, over map[string]any) string {
	claims := map[string]any{"iss": i.URL, "aud": "toolyard", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range over {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	data, err := json.Marshal(claims)
	if err != nil {
		panic(err) // they are of a test
	}
	return oidctest.SignIDToken(key, kid, oidc.ES256, string(data))
}
