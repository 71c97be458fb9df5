package api

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"
	"strings"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/version"
)

// A browser signs in with a token once. The token then travels in a cookie that no script can read, encrypted with a
// key that only the page has and sends in a header. Neither is of use alone: a page of another site has no key and
// cannot set the header, and a server on another port of the same host, which browsers send the cookie to, gets no
// token. The server keeps nothing, so any server of the system answers.

const (
	// signInPath is where a browser signs in and out, and sessionHeader has the key of its cookie.
	signInPath    = "/v1/console/session"
	sessionHeader = "Toolyard-Session"
	sessionCookie = "toolyard"
	// sessionKeyBytes is the length of a key: AES-256.
	sessionKeyBytes = 32
	// MaxSessionToken is the longest token that fits a cookie. Browsers keep 4,096 bytes of it at most.
	MaxSessionToken = 2_900
)

// SignIn is what a browser signs in with: a token, or a code and its verifier.
type SignIn struct {
	Token    string `json:"token,omitempty" doc:"A token of this server, or a JWT of its issuer."`
	Code     string `json:"code,omitempty" doc:"In place of a token: the code with which the issuer has sent a person back."`
	Verifier string `json:"verifier,omitempty" doc:"With a code: what its challenge was made from (PKCE, S256)."`
}

// SignedIn is what a page keeps of it.
type SignedIn struct {
	Key string `json:"key" doc:"What later requests send in the header Toolyard-Session, beside the cookie."`
}

type signedIn struct {
	SetCookie http.Cookie `header:"Set-Cookie" doc:"The cookie with the encrypted token."`
	Body      SignedIn
}

type signedOut struct {
	SetCookie http.Cookie `header:"Set-Cookie" doc:"The same cookie without a value, which the browser deletes."`
}

// signIn checks a token and puts it into a cookie.
func (s *Server) signIn(ctx context.Context, x *exchange, _ *nothing) (*signedIn, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, false)
	if err != nil {
		return nil, err
	}
	o, err := object(data, "token", "code", "verifier")
	if err != nil {
		return nil, err
	}
	token, whose, err := s.tokenOf(ctx, x.r, o)
	if err != nil {
		return nil, err
	}
	if len(token) > MaxSessionToken {
		return nil, strictjson.Errorf("token", "is %d bytes long; a browser keeps at most %d", len(token),
			MaxSessionToken)
	}
	if whose == nil {
		asked := x.r.Clone(x.r.Context())
		asked.Header.Set("Authorization", "Bearer "+token)
		who, p := s.identify(asked)
		if p != nil {
			return nil, p
		}
		whose = &who
	}
	x.who = *whose
	key, value, err := seal(token)
	if err != nil {
		return nil, err
	}
	return &signedIn{SetCookie: s.cookie(x.r, value), Body: SignedIn{Key: key}}, nil
}

// tokenOf is the token that somebody signs in with, or that the issuer gives for a code. whose is nil if it is not
// known yet.
func (s *Server) tokenOf(ctx context.Context, r *http.Request, o strictjson.Object) (token string, whose *caller,
	err error) {
	if token, err = o.OptionalString("token"); err != nil {
		return "", nil, err
	}
	code, err := o.OptionalString("code")
	if err != nil {
		return "", nil, err
	}
	verifier, err := o.OptionalString("verifier")
	switch {
	case err != nil:
		return "", nil, err
	case !s.cfg.asks():
		return "", nil, newProblem(http.StatusConflict, "", "this server asks for no token")
	case code == "":
		return token, nil, nil
	case token != "":
		return "", nil, strictjson.Errorf("code", "stands beside a token; send one of them")
	}
	token, who, err := s.exchange(ctx, r, code, verifier)
	return token, &who, err
}

// seal encrypts a token with a new key. It returns the key for the page and the value for the cookie.
func seal(token string) (key, value string, err error) {
	k := make([]byte, sessionKeyBytes)
	if _, err := rand.Read(k); err != nil {
		return "", "", err
	}
	aead, err := sealer(k)
	if err != nil {
		return "", "", err
	}
	return base64.RawURLEncoding.EncodeToString(k),
		base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(token), nil)), nil
}

// signOut takes the cookie back. It needs no token: it only ends what the browser itself began.
func (s *Server) signOut(_ context.Context, x *exchange, _ *nothing) (*signedOut, error) {
	gone := s.cookie(x.r, "")
	gone.MaxAge = -1
	return &signedOut{gone}, nil
}

func sealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// cookie is the one that a browser keeps until it is closed, or its user signs out.
func (s *Server) cookie(r *http.Request, value string) http.Cookie {
	return http.Cookie{Name: s.cookieName(r), Value: value, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: s.secure(r)}
}

// cookieName has the port, since browsers send a cookie to all ports of a host.
func (s *Server) cookieName(r *http.Request) string {
	name := sessionCookie
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if s.secure(r) {
		name = "__Host-" + name
	}
	return name
}

// secure reports whether a browser reaches the server over TLS, its own or a proxy's.
func (s *Server) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(s.cfg.PublicURL, "https://")
}

// bearer is the token of a request: of its header, or of a browser's session.
func (s *Server) bearer(r *http.Request) (string, *Problem) {
	key := r.Header.Get(sessionHeader)
	if key != "" && r.Header.Get("Authorization") == "" {
		if token, ok := s.unsealed(r, key); ok {
			return token, nil
		}
		return "", invalidToken("the session is over; sign in again")
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || len(r.Header.Values("Authorization")) != 1 {
		return "", newProblem(http.StatusUnauthorized, "Authorization",
			"send one header Authorization: Bearer TOKEN, with a token of this server")
	}
	return strings.TrimSpace(token), nil
}

// unsealed is the token in a browser's cookie.
func (s *Server) unsealed(r *http.Request, key string) (string, bool) {
	cookie, err := r.Cookie(s.cookieName(r))
	if err != nil {
		return "", false
	}
	k, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(k) != sessionKeyBytes {
		return "", false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return "", false
	}
	aead, err := sealer(k)
	if err != nil {
		return "", false
	}
	token, err := aead.Open(nil, nil, sealed, nil)
	return string(token), err == nil
}

// Me is who asks.
type Me struct {
	Asks        bool     `json:"asks" doc:"The server asks for tokens."`
	Name        string   `json:"name" doc:"What stands in the log where this one decides."`
	Agent       string   `json:"agent" doc:"Whose token it is; empty for an operator's, and where nobody is asked."`
	Agents      []string `json:"agents" doc:"In whose names it may act beside."`
	Operator    bool     `json:"operator" doc:"It may do what any agent may, and see all."`
	Interactive bool     `json:"interactive" doc:"It may say that a person can be asked."`
	Scopes      []Scope  `json:"scopes" doc:"The kinds of requests that it may make."`
	Version     string   `json:"version" doc:"The server's."`
}

func (s *Server) me(_ context.Context, x *exchange, _ *nothing) (*struct{ Body Me }, error) {
	me := Me{Asks: s.cfg.asks(), Name: x.who.name, Agent: string(x.who.agent), Operator: x.who.any,
		Interactive: x.who.interactive(),
		Agents:      append([]string{}, x.who.grant.agents...), Scopes: x.who.grant.scopes, Version: version.Build()}
	if len(me.Scopes) == 0 {
		me.Scopes = Scopes
	}
	return &struct{ Body Me }{me}, nil
}
