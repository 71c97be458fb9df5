package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// A person may sign in to the console at the issuer of JWTs (OAuth 2.0 authorization code with PKCE, RFC 7636). The
// page makes state and verifier, keeps them in its tab, and sends the person to the issuer. The issuer sends them back
// to the page with a code, which the server exchanges for a token. From there on it is a session like any other, so
// any server of the system answers.

// loginPath says where a person signs in.
const loginPath = "/v1/console/login"

// LoginConfig makes people sign in at the issuer as this client of it.
type LoginConfig struct {
	// ClientID is what the issuer calls this server; empty: nobody signs in there. The issuer must know the address of
	// the console as a redirect URL: the public URL with "/" at its end.
	ClientID string
	// ClientSecret is what the issuer asks of the client; empty for a public one.
	ClientSecret string
	// Scopes are what a token is asked for; empty: "openid".
	Scopes []string
}

// Login is where a person signs in.
type Login struct {
	Issuer    string `json:"issuer,omitempty" doc:"The issuer; absent where nobody signs in at one, like all else."`
	Authorize string `json:"authorize,omitempty" doc:"The address at the issuer that a person is sent to."`
	Client    string `json:"client,omitempty" doc:"What the issuer calls this server."`
	Scope     string `json:"scope,omitempty" doc:"What the token is asked for."`
	Redirect  string `json:"redirect,omitempty" doc:"Where the issuer sends the person back to."`
}

// oauth is this server as a client of the issuer.
func (s *Server) oauth(ctx context.Context, r *http.Request) (*oauth2.Config, *Problem) {
	i := s.cfg.Issuer
	if _, err := i.verifier(ctx); err != nil {
		return nil, issuerSilent("")
	}
	i.mu.Lock()
	at := i.endpoint
	i.mu.Unlock()
	if i.cfg.Login.ClientSecret == "" {
		at.AuthStyle = oauth2.AuthStyleInParams // a public client has only its id
	}
	return &oauth2.Config{ClientID: i.cfg.Login.ClientID, ClientSecret: i.cfg.Login.ClientSecret, Endpoint: at,
		Scopes: i.cfg.Login.Scopes, RedirectURL: s.base(r) + "/"}, nil
}

// signsInAtIssuer reports whether people may sign in there.
func (c *Config) signsInAtIssuer() bool { return c.Issuer != nil && c.Issuer.cfg.Login.ClientID != "" }

func (s *Server) login(ctx context.Context, x *exchange, _ *nothing) (*struct{ Body Login }, error) {
	if !s.cfg.signsInAtIssuer() {
		return &struct{ Body Login }{}, nil
	}
	o, p := s.oauth(ctx, x.r)
	if p != nil {
		return nil, p
	}
	return &struct{ Body Login }{Login{Issuer: s.cfg.Issuer.cfg.URL, Authorize: o.Endpoint.AuthURL, Client: o.ClientID,
		Scope: strings.Join(o.Scopes, " "), Redirect: o.RedirectURL}}, nil
}

// exchange gets a token for the code that the issuer has sent a person back with, and says whose it is.
func (s *Server) exchange(ctx context.Context, r *http.Request, code, verifier string) (token string, who caller,
	err error) {
	i := s.cfg.Issuer
	switch {
	case !s.cfg.signsInAtIssuer():
		return "", who, newProblem(http.StatusConflict, "code",
			"nobody signs in to this server at an issuer; the operator sets --oidc-client-id")
	case len(verifier) < minVerifier || len(verifier) > maxVerifier:
		return "", who, strictjson.Errorf("verifier", "has %d characters; RFC 7636 wants %d to %d", len(verifier),
			minVerifier, maxVerifier)
	}
	o, p := s.oauth(ctx, r)
	if p != nil {
		return "", who, p
	}
	// Anybody may send codes. The issuer is asked no more often for that.
	if wait := i.codes.try(time.Now(), "", 1, MaxCodeRate, MaxCodeRate); wait > 0 {
		return "", who, newProblem(http.StatusTooManyRequests, "",
			"too many people sign in at this moment; try again later").in(wait)
	}
	t, err := o.Exchange(context.WithValue(ctx, oauth2.HTTPClient, i.posts), code, oauth2.VerifierOption(verifier))
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response.StatusCode/100 == 4 {
		i.cfg.Log.Info("the issuer took no code of a sign-in", "issuer", i.cfg.URL, "code", e.ErrorCode,
			"says", e.ErrorDescription)
		return "", who, invalidToken("the issuer does not take the code; sign in again")
	}
	if err != nil {
		i.cfg.Log.Error("the issuer gave no token for a code", "issuer", i.cfg.URL, "error", err)
		return "", who, issuerSilent("")
	}
	// An access token says what it may be used for. Where the issuer makes none that can be read, the ID token does if
	// this client is its audience.
	id, _ := t.Extra("id_token").(string)
	var refused *Problem
	for _, token := range []string{t.AccessToken, id} {
		if !isJWT(token) {
			continue
		}
		if who, refused = i.identify(ctx, token); refused == nil {
			return token, who, nil
		}
	}
	if refused == nil {
		refused = invalidToken("the issuer has given no JWT")
	}
	i.cfg.Log.Error("the tokens of a sign-in are none of this server's", "issuer", i.cfg.URL, "audience",
		i.cfg.Audience, "client", o.ClientID, "reason", refused.Detail)
	return "", who, refused
}

// sentBack reports whether a browser comes back from the issuer to the page, which is a link from another site. The
// page tells nothing, and the code is of no use to who has not the verifier.
func (s *Server) sentBack(r *http.Request) bool {
	return s.cfg.signsInAtIssuer() && r.Method == http.MethodGet && r.URL.Path == "/" && IsLoopbackHost(r.Host) &&
		r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document"
}
