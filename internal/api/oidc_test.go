package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/login"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// issuer counts what it is asked.
type issuer struct {
	*login.Issuer
	asked map[string]*atomic.Int64
	down  atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{asked: map[string]*atomic.Int64{"/.well-known/openid-configuration": {}, "/keys": {}}}
	i.Issuer = login.Start(t, func(answers http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := i.asked[r.URL.Path]; n != nil {
				n.Add(1)
			}
			if i.down.Load() {
				http.Error(w, "later", http.StatusServiceUnavailable)
				return
			}
			answers.ServeHTTP(w, r)
		})
	})
	return i
}

func (i *issuer) server(t *testing.T, claim string) *Server {
	t.Helper()
	tokens, err := ParseTokens([]byte("file-1 bob\nlike.a.jwt carol\n"))
	must.OK(t, err)
	is, err := NewIssuer(IssuerConfig{URL: i.URL, Audience: "toolyard", AgentClaim: claim, Log: testenv.Log(t)})
	must.OK(t, err)
	return &Server{cfg: Config{Tokens: tokens, Issuer: is, Log: testenv.Log(t)}, rates: newPace()}
}

func bearer(t *testing.T, path, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// TestJWT: a JWT of the issuer, for this audience, that has not run out, is its agent's. No other is anybody's, and
// tokens of the file stay what they are.
func TestJWT(t *testing.T) {
	i := newIssuer(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	s := i.server(t, "")
	none := func(header, claims string) string { return strings.Join([]string{header, claims, ""}, ".") }
	for _, c := range []struct {
		name, token, agent string
		status             int
		says               string
	}{
		{"a right one", i.Token(i.Key, login.KeyID, nil), "ann", 0, ""},
		{"for several", i.Token(i.Key, login.KeyID, map[string]any{"aud": []string{"x", "toolyard"}}), "ann", 0, ""},
		{"of the file", "file-1", "bob", 0, ""},
		{"of the file, in the form of a JWT", "like.a.jwt", "carol", 0, ""},
		{"of nobody", "nobody", "", http.StatusUnauthorized, "none of this server's"},
		{"expired", i.Token(i.Key, login.KeyID, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "",
			http.StatusUnauthorized, "has run out"},
		{"without an end", i.Token(i.Key, login.KeyID, map[string]any{"exp": nil}), "", http.StatusUnauthorized, ""},
		{"for another audience", i.Token(i.Key, login.KeyID, map[string]any{"aud": "else"}), "",
			http.StatusUnauthorized, ""},
		{"of another issuer", i.Token(i.Key, login.KeyID, map[string]any{"iss": "https://else"}), "",
			http.StatusUnauthorized, ""},
		{"signed by another", i.Token(other, login.KeyID, nil), "", http.StatusUnauthorized, ""},
		{"an operator's", i.Token(i.Key, login.KeyID, map[string]any{"sub": "*"}), "", http.StatusUnauthorized,
			"names no agent"},
		{"nobody's", i.Token(i.Key, login.KeyID, map[string]any{"sub": nil}), "", http.StatusUnauthorized,
			"names no agent"},
		{"a number's", i.Token(i.Key, login.KeyID, map[string]any{"sub": 7}), "", http.StatusUnauthorized, ""},
		{"not signed", none("eyJhbGciOiJub25lIn0", "eyJzdWIiOiJhbm4ifQ"), "", http.StatusUnauthorized, ""},
		{"nonsense", "a.b.c", "", http.StatusUnauthorized, ""},
	} {
		who, p := s.identify(bearer(t, "/v1/batches", c.token))
		if string(who.agent) != c.agent || who.any || (p == nil) != (c.status == 0) {
			t.Errorf("%s: agent %q, any %t, %v; want %q", c.name, who.agent, who.any, p, c.agent)
		}
		if p != nil && (p.Status != c.status || !strings.Contains(p.Detail, c.says) ||
			!strings.Contains(p.challenge(), `error="invalid_token"`)) {
			t.Errorf("%s: %d %s, %s", c.name, p.Status, p.Detail, p.challenge())
		}
	}
	who, p := i.server(t, "https://x/agent").identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID,
		map[string]any{"https://x/agent": "planner", "scope": "openid toolyard:read toolyard:else"})))
	if p != nil || who.agent != "planner" {
		t.Fatalf("another claim: %q, %v", who.agent, p)
	}
	if p := who.within(bearer(t, "/v1/batches", "")); p != nil {
		t.Errorf("in its scope: %v", p)
	}
	post := bearer(t, "/v1/batches", "")
	post.Method = http.MethodPost
	if p := who.within(post); p == nil || !strings.Contains(p.challenge(), `scope="toolyard:submit"`) {
		t.Errorf("beyond its scope: %v", p)
	}
	if who.expires.IsZero() {
		t.Error("it never runs out")
	}
}

// TestScopesOfAJWT: the claim scope restricts a JWT whether it is a text, as RFC 8693 has it, or a list, as some
// issuers write it. A token whose scopes cannot be read is nobody's, and not one without a restriction.
func TestScopesOfAJWT(t *testing.T) {
	i := newIssuer(t)
	s := i.server(t, "")
	for _, c := range []struct {
		scope any
		want  []Scope
		bad   bool
	}{
		{nil, nil, false}, {"openid", nil, false}, {[]string{}, nil, false},
		{"openid toolyard:read toolyard:decide", []Scope{ScopeRead, ScopeDecide}, false},
		{[]string{"openid", "toolyard:read", "toolyard:decide"}, []Scope{ScopeRead, ScopeDecide}, false},
		{[]string{"openid toolyard:read"}, []Scope{ScopeRead}, false},
		{7, nil, true}, {[]any{"toolyard:read", 7}, nil, true}, {map[string]any{"toolyard:read": true}, nil, true},
	} {
		who, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, map[string]any{"scope": c.scope})))
		if !slices.Equal(who.grant.scopes, c.want) || (p != nil) != c.bad {
			t.Errorf("%v: the scopes are %q, and the problem is %v", c.scope, who.grant.scopes, p)
		}
		if p != nil && (p.Status != http.StatusUnauthorized || !strings.Contains(p.Detail, `"scope"`)) {
			t.Errorf("%v: %d %s", c.scope, p.Status, p.Detail)
		}
	}
}

// TestAJWTRunsOut: what a JWT has begun ends when it runs out.
func TestAJWTRunsOut(t *testing.T) {
	over := make(chan struct{})
	c := caller{expires: time.Now().Add(10 * time.Millisecond)}
	defer c.whenRevoked(func() { close(over) })()
	<-over
}

// TestTheIssuerIsAskedSparingly: whatever tokens come, it is asked once for each address until the pause is over. One
// that does not answer is no reason to refuse tokens for good, nor to ask it for each.
func TestTheIssuerIsAskedSparingly(t *testing.T) {
	i := newIssuer(t)
	s := i.server(t, "")
	i.down.Store(true)
	for range 5 {
		if _, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, nil))); p == nil ||
			p.Status != http.StatusServiceUnavailable || p.retryAfter == 0 {
			t.Fatalf("while the issuer is down: %v", p)
		}
	}
	configuration, keys := i.asked["/.well-known/openid-configuration"], i.asked["/keys"]
	if n := configuration.Load(); n != 1 {
		t.Errorf("while it was down it was asked %d times", n)
	}
	i.down.Store(false)
	s = i.server(t, "")
	if _, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, nil))); p != nil {
		t.Fatal(p)
	}
	for n := range 20 {
		if _, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, fmt.Sprint("unknown", n), nil))); p == nil {
			t.Error("a token of an unknown key is somebody's")
		}
	}
	if n := keys.Load(); n != 1 {
		t.Errorf("for 20 tokens of unknown keys it was asked %d times for its keys", n)
	}
	// Old keys are used while it does not answer, until the grace is over.
	is := s.cfg.Issuer
	is.fetched, is.tried = time.Now().Add(-IssuerRefresh-time.Minute), time.Time{}
	i.down.Store(true)
	is.asks.forget()
	if _, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, nil))); p != nil {
		t.Errorf("with keys that are a little old: %v", p)
	}
	is.fetched = time.Now().Add(-IssuerGrace - time.Minute)
	if _, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, nil))); p == nil ||
		p.Status != http.StatusServiceUnavailable {
		t.Errorf("with keys that are too old: %v", p)
	}
}

// TestResourceMetadata: who has no token is told where to find out who makes them (RFC 9728), for /mcp too.
func TestResourceMetadata(t *testing.T) {
	i := newIssuer(t)
	for path, want := range map[string]string{"/v1/batches": "", "/mcp": "/mcp"} {
		for public, base := range map[string]string{
			"": "http://example.com", "https://tools.example/": "https://tools.example",
		} {
			s := i.server(t, "")
			s.cfg.PublicURL = public
			_, p := s.identify(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
			if p == nil {
				t.Fatal("without a token somebody asks")
			}
			at := base + "/.well-known/oauth-protected-resource" + want
			p.metadata = s.metadata(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
			if got := p.GetHeaders().Get("WWW-Authenticate"); got != `Bearer realm="toolyard", resource_metadata="`+at+`"` {
				t.Errorf("%s: %s", path, got)
			}
			w := httptest.NewRecorder()
			s.describeResource(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
				"/.well-known/oauth-protected-resource"+want, nil))
			var got Resource
			must.OK(t, json.Unmarshal(w.Body.Bytes(), &got))
			if got.Resource != base+want || len(got.Servers) != 1 || got.Servers[0] != i.URL {
				t.Errorf("%s: %s", path, w.Body)
			}
		}
	}
}

// TestIssuersThatAreRefused: an issuer is asked over TLS, and its tokens are for somebody.
func TestIssuersThatAreRefused(t *testing.T) {
	for _, c := range []IssuerConfig{{URL: "http://issuer.example", Audience: "a"}, {URL: "https://x"}, {URL: "x",
		Audience: "a"}, {URL: "https://x?y=z", Audience: "a"}} {
		if _, err := NewIssuer(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if _, err := NewIssuer(IssuerConfig{URL: "https://x", Audience: "a"}); err != nil {
		t.Error(errors.New("the control: "), err)
	}
}
