package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/toolyard/toolyard"
)

// scopePrefix begins the scopes of an issuer that are ours.
const scopePrefix = "toolyard:"

// IssuerConfig says whose JWTs stand for tokens.
type IssuerConfig struct {
	// URL is the issuer, as its tokens name it. Its configuration is below it, as OpenID Connect Discovery says.
	URL string
	// Audience is what a token must be for.
	Audience string
	// AgentClaim is the claim that names the agent; empty: "sub".
	AgentClaim string
	// Login has people sign in to the console at the issuer.
	Login LoginConfig
	// Client asks the issuer. Default: one of its own.
	Client *http.Client
	Log    *slog.Logger
}

// Issuer checks JWTs. It asks the issuer for its keys when the first token comes, again when they are older than
// [IssuerRefresh], and for a key that it does not know. It asks for one address at most once in [IssuerPause], whatever
// tokens come.
type Issuer struct {
	cfg    IssuerConfig
	client *http.Client
	asks   *sparingly
	// posts exchanges codes for tokens, at the pace of codes.
	posts *http.Client
	codes *pace

	asking  sync.Mutex // held while the issuer is asked
	mu      sync.Mutex
	checks  *oidc.IDTokenVerifier // nil: not known yet
	former  *oidc.IDTokenVerifier // those before, with the keys that they have
	had     time.Time             // when former was made
	fetched time.Time             // when checks were made
	tried   time.Time             // when the issuer was asked last
	failed  error                 // why that gave nothing
	// endpoint is where people sign in, and codes are exchanged.
	endpoint oauth2.Endpoint
}

// NewIssuer checks the configuration. It asks nobody yet.
func NewIssuer(cfg IssuerConfig) (*Issuer, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !IsLoopbackHost(u.Host)) {
		return nil, fmt.Errorf("the issuer %q is no URL of https", cfg.URL)
	}
	if cfg.Audience == "" {
		return nil, errors.New("there is no audience: tokens that the issuer has made for others would count here")
	}
	if cfg.AgentClaim == "" {
		cfg.AgentClaim = "sub"
	}
	client := http.Client{}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	if len(cfg.Login.Scopes) == 0 {
		cfg.Login.Scopes = []string{oidc.ScopeOpenID}
	}
	client.Timeout = issuerTimeout
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	posts, asks := client, &sparingly{next: next, last: map[string]time.Time{}, lost: map[string]bool{}}
	client.Transport = asks
	return &Issuer{cfg: cfg, client: &client, asks: asks, posts: &posts, codes: newPace()}, nil
}

// sparingly asks for each address at most once in [IssuerPause], and reads a bounded answer.
type sparingly struct {
	next http.RoundTripper
	mu   sync.Mutex
	last map[string]time.Time // two addresses: the issuer's configuration and its keys
	lost map[string]bool      // those that have not answered when they were asked last
}

// silent reports whether an address has not answered.
func (s *sparingly) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost) > 0
}

// forget lets each address be asked at once.
func (s *sparingly) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.last)
}

// RoundTrip is for [http.RoundTripper].
func (s *sparingly) RoundTrip(r *http.Request) (*http.Response, error) {
	at, now := r.URL.String(), time.Now()
	s.mu.Lock()
	if len(s.last) >= maxIssuerAddresses {
		clear(s.last)
	}
	soon := now.Sub(s.last[at]) < IssuerPause
	if !soon {
		s.last[at] = now
	}
	s.mu.Unlock()
	if soon {
		return nil, fmt.Errorf("%s was asked less than %s ago", at, IssuerPause)
	}
	res, err := s.next.RoundTrip(r)
	s.mu.Lock()
	if delete(s.lost, at); err != nil || res.StatusCode != http.StatusOK {
		s.lost[at] = true
	}
	s.mu.Unlock()
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, MaxIssuerBytes), res.Body}
	}
	return res, err
}

// verifier returns what checks tokens.
func (i *Issuer) verifier(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	have, fresh := i.checks, time.Since(i.fetched) < IssuerRefresh
	i.mu.Unlock()
	switch {
	case have != nil && fresh:
		return have, nil
	case have == nil:
		i.asking.Lock()
	case !i.asking.TryLock(): // somebody else asks
		return have, nil
	}
	defer i.asking.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.checks != nil && time.Since(i.fetched) < IssuerRefresh { // meanwhile
		return i.checks, nil
	}
	if time.Since(i.tried) >= IssuerPause {
		i.mu.Unlock()
		// For all requests, so that none of them ends it.
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTimeout)
		p, err := oidc.NewProvider(oidc.ClientContext(asked, i.client), i.cfg.URL)
		cancel()
		i.mu.Lock()
		i.tried, i.failed = time.Now(), err
		if err == nil {
			i.former, i.had = i.checks, i.fetched
			i.checks = p.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), i.client),
				&oidc.Config{ClientID: i.cfg.Audience})
			i.fetched, i.endpoint = i.tried, p.Endpoint()
			i.asks.forget() // it begins without keys, and must not wait for them
			return i.checks, nil
		}
		i.cfg.Log.Error("the issuer of tokens does not say how they are checked", "issuer", i.cfg.URL, "error", err)
	}
	if i.checks != nil && time.Since(i.fetched) < IssuerGrace {
		return i.checks, nil
	}
	return nil, i.failed
}

// isJWT reports whether a token has the form of one.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// identify finds out who has a JWT.
func (i *Issuer) identify(ctx context.Context, token string) (caller, *Problem) {
	v, err := i.verifier(ctx)
	if err != nil {
		return caller{}, issuerSilent("Authorization")
	}
	id, err := v.Verify(ctx, token)
	if err != nil && i.asks.silent() { // it has no keys, or not the newest ones
		i.mu.Lock()
		former, had := i.former, i.had
		i.mu.Unlock()
		if former != nil && time.Since(had) < IssuerGrace {
			id, err = former.Verify(ctx, token)
		}
	}
	if err != nil {
		i.cfg.Log.Debug("a JWT was refused", "error", err)
		detail := "the JWT is none of this server's issuer and audience, or its key is not known"
		if _, expired := errors.AsType[*oidc.TokenExpiredError](err); expired {
			detail = "the JWT has run out; get a new one from its issuer"
		}
		return caller{}, invalidToken(detail)
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return caller{}, invalidToken("the claims of the JWT cannot be read")
	}
	agent, _ := claims[i.cfg.AgentClaim].(string)
	if err := toolyard.CheckName("agent", agent); err != nil || agent == Operator {
		return caller{}, invalidToken(fmt.Sprintf("the claim %q of the JWT names no agent", i.cfg.AgentClaim))
	}
	c := caller{agent: toolyard.Agent(agent), name: agent, proof: ProvedByJWT, expires: id.Expiry}
	sum := sha256.Sum256([]byte(token))
	c.token = hex.EncodeToString(sum[:])
	var ok bool
	if c.grant.scopes, ok = scopesIn(claims["scope"]); !ok {
		return caller{}, invalidToken(`the claim "scope" of the JWT is no text, and no list of texts`)
	}
	return c, nil
}

// scopesIn are the scopes of ours in the claim scope: words of a text, or a list of them, as some issuers write it. ok
// is false if it is neither: what it restricts is not known.
func scopesIn(claim any) (out []Scope, ok bool) {
	switch v := claim.(type) {
	case nil:
	case string:
		for word := range strings.FieldsSeq(v) {
			if ours, ok := strings.CutPrefix(word, scopePrefix); ok {
				out = append(out, Scope(ours))
			}
		}
	case []any:
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, false
			}
			ours, _ := scopesIn(text)
			out = append(out, ours...)
		}
	default:
		return nil, false
	}
	return out, true
}

// issuerSilent is a 503 for what only the issuer knows.
func issuerSilent(field string) *Problem {
	return newProblem(http.StatusServiceUnavailable, field, "the issuer of tokens cannot be asked now").again()
}

// invalidToken is a 401 for a token that was sent.
func invalidToken(detail string) *Problem {
	p := newProblem(http.StatusUnauthorized, "Authorization", "%s", detail)
	p.invalid = true
	return p
}

// resourcePath is where a client finds out whose tokens a resource accepts, followed by the resource's path (RFC 9728).
const resourcePath = "/.well-known/oauth-protected-resource"

// MCPPath is where the MCP server is mounted: a resource with a path of its own.
const MCPPath = "/mcp"

// Resource is what RFC 9728 says about a protected resource.
type Resource struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Methods  []string `json:"bearer_methods_supported"`
	Scopes   []string `json:"scopes_supported"`
	Name     string   `json:"resource_name"`
}

// base is the URL under which the client has reached this server.
func (s *Server) base(r *http.Request) string {
	if s.cfg.PublicURL != "" {
		return strings.TrimSuffix(s.cfg.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// metadata is the address of a resource's metadata; "" where no issuer is known.
func (s *Server) metadata(r *http.Request) string {
	if s.cfg.Issuer == nil {
		return ""
	}
	at := s.base(r) + resourcePath
	if r.URL.Path == MCPPath || strings.HasPrefix(r.URL.Path, MCPPath+"/") {
		at += MCPPath
	}
	return at
}

// describeResource answers with a resource's metadata.
func (s *Server) describeResource(w http.ResponseWriter, r *http.Request) {
	out := Resource{
		Resource: s.base(r) + strings.TrimPrefix(r.URL.Path, resourcePath), Servers: []string{s.cfg.Issuer.cfg.URL},
		Methods: []string{"header"}, Name: "Toolyard",
	}
	for _, scope := range Scopes {
		if scope != ScopeMetrics { // which no agent reads
			out.Scopes = append(out.Scopes, scopePrefix+string(scope))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil && !errors.Is(err, net.ErrClosed) {
		s.cfg.Log.Debug("an answer was not sent", "path", r.URL.Path, "error", err)
	}
}
