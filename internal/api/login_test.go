package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/login"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// signsIn is a server whose people sign in at an issuer.
func signsIn(t *testing.T, i *login.Issuer, secret string) *Server {
	t.Helper()
	is, err := NewIssuer(IssuerConfig{URL: i.URL, Audience: "toolyard", Log: testenv.Log(t),
		Login: LoginConfig{ClientID: i.ClientID, ClientSecret: secret}})
	must.OK(t, err)
	i.Redirect = "https://toolyard.example/"
	return &Server{cfg: Config{Issuer: is, Log: testenv.Log(t), PublicURL: "https://toolyard.example"},
		rates: newPace()}
}

const verifier = "a-verifier-of-at-least-43-characters-as-RFC-7636-wants"

// TestSignInAtAnIssuer: the code that the issuer sends a person back with becomes a token of that person. It counts
// once, with its verifier, and for this client.
func TestSignInAtAnIssuer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		access, id map[string]any
		// who the token names; otherwise what the server says
		agent, says string
		change      func(*login.Issuer)
		verifier    string
		secret      string
	}{
		{name: "an access token", access: map[string]any{"sub": "bob"}, id: map[string]any{"sub": "other"},
			agent: "bob"},
		{name: "an ID token", id: map[string]any{"sub": "bob"}, agent: "bob"},
		{name: "an access token for others", access: map[string]any{"aud": "else"}, id: map[string]any{}, agent: "ann"},
		{name: "a confidential client", id: map[string]any{}, agent: "ann", secret: "s3cret",
			change: func(i *login.Issuer) { i.Secret = "s3cret" }},
		{name: "a wrong secret", id: map[string]any{}, secret: "wrong", says: "does not take the code",
			change: func(i *login.Issuer) { i.Secret = "s3cret" }},
		{name: "another's verifier", id: map[string]any{}, verifier: strings.Repeat("x", 43),
			says: "does not take the code"},
		{name: "a short verifier", id: map[string]any{}, verifier: "x", says: "43 to 128"},
		{name: "no JWT", says: "no JWT"},
		{name: "tokens for others", access: map[string]any{"aud": "else"}, id: map[string]any{"aud": "console"},
			says: "audience"},
		{name: "nobody's", id: map[string]any{"sub": "*"}, says: "names no agent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := login.Start(t, nil)
			i.Access, i.ID = c.access, c.id
			if c.change != nil {
				c.change(i)
			}
			s := signsIn(t, i, c.secret)
			code := i.Code(login.Challenge(verifier))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, signInPath, nil)
			v := c.verifier
			if v == "" {
				v = verifier
			}
			token, who, err := s.exchange(t.Context(), r, code, v)
			if c.says != "" {
				var p *Problem
				if errors.As(err, &p) && !strings.Contains(p.Detail, c.says) ||
					p == nil && (err == nil || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("%q, %v; want %q", token, err, c.says)
				}
				return
			}
			must.OK(t, err)
			if again, p := s.identify(bearer(t, "/v1/me", token)); p != nil || string(who.agent) != c.agent ||
				!reflect.DeepEqual(again, who) {
				t.Errorf("the token is agent %q's, and later %q's, %v; want %q", who.agent, again.agent, p, c.agent)
			}
			if _, _, err := s.exchange(t.Context(), r, code, verifier); err == nil {
				t.Error("the code counts twice")
			}
		})
	}
}

// TestBackFromTheIssuer: a listener on this machine answers a browser that comes back from another site with its page,
// and with nothing else; and only where people sign in at an issuer.
func TestBackFromTheIssuer(t *testing.T) {
	t.Parallel()
	request := func(method, path string, header map[string]string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		r.Host = "127.0.0.1:8080"
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
		for k, v := range header {
			r.Header.Set(k, v)
		}
		return r
	}
	s := signsIn(t, login.Start(t, nil), "")
	none := &Server{}
	for _, c := range []struct {
		name string
		s    *Server
		r    *http.Request
		want bool
	}{
		{"the page", s, request("GET", "/?code=c&state=s", nil), true},
		{"without an issuer", none, request("GET", "/?code=c&state=s", nil), false},
		{"an operation", s, request("GET", "/v1/batches", nil), false},
		{"a post", s, request("POST", "/", nil), false},
		{"a script", s, request("GET", "/", map[string]string{"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}),
			false},
		{"a frame", s, request("GET", "/", map[string]string{"Sec-Fetch-Dest": "iframe"}), false},
		{"a page of another site", s, request("GET", "/", map[string]string{"Origin": "https://else.example"}), false},
	} {
		if checkLocal(c.r) == nil {
			t.Errorf("%s: it is no request of another site", c.name)
		}
		if got := c.s.sentBack(c.r); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	rebound := request("GET", "/", nil)
	if rebound.Host = "toolyard.example"; s.sentBack(rebound) {
		t.Error("another name of this machine")
	}
}

// TestCodesAreBounded: whoever sends codes does not have the issuer asked more often than so many times a second.
func TestCodesAreBounded(t *testing.T) {
	t.Parallel()
	s := signsIn(t, login.Start(t, nil), "")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, signInPath, nil)
	began, taken := time.Now(), 0
	for range 100 * MaxCodeRate {
		_, _, err := s.exchange(t.Context(), r, "guessed", verifier)
		var p *Problem
		if !errors.As(err, &p) {
			t.Fatal(err)
		}
		if p.Status != http.StatusTooManyRequests {
			taken++
		} else if p.retryAfter < retryAfter {
			t.Errorf("%+v", p)
		}
	}
	if most := MaxCodeRate * (1 + int(time.Since(began).Seconds()+1)); taken < MaxCodeRate || taken > most {
		t.Errorf("the issuer was asked about %d codes in %s", taken, time.Since(began))
	}
}
