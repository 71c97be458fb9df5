package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Scope is a kind of requests that a token may make.
type Scope string

// The scopes.
const (
	ScopeRead    Scope = "read"    // look at batches, tools and what waits for a person
	ScopeSubmit  Scope = "submit"  // hand in, append, cancel, change sessions; /mcp
	ScopeDecide  Scope = "decide"  // answer what waits for a person, as far as the token's agent may
	ScopeMetrics Scope = "metrics" // read the metrics, if it is an operator's token
)

// Scopes are all of them.
var Scopes = []Scope{ScopeRead, ScopeSubmit, ScopeDecide, ScopeMetrics}

// scopeOf is what a request needs. Every request that changes something and is no decision needs [ScopeSubmit]; so
// does /mcp, whose requests are calls.
func scopeOf(r *http.Request) Scope {
	path := r.URL.Path
	switch {
	case path == "/metrics":
		return ScopeMetrics
	case strings.HasPrefix(path, "/v1/") && r.Method == http.MethodGet:
		return ScopeRead
	case strings.HasPrefix(path, "/v1/approvals/"):
		return ScopeDecide
	}
	return ScopeSubmit
}

// within refuses a request that the token's scopes do not have.
func (c caller) within(r *http.Request) *Problem {
	need := scopeOf(r)
	if len(c.grant.scopes) == 0 || slices.Contains(c.grant.scopes, need) {
		return nil
	}
	p := newProblem(http.StatusForbidden, "Authorization", "the token has not the scope %q, which this needs", need)
	p.scope = need
	return p
}

func parseScopes(value string) (out []Scope, err error) {
	for _, s := range strings.Split(value, ",") {
		if !slices.Contains(Scopes, Scope(s)) {
			return nil, fmt.Errorf("a scope is one of %q", Scopes)
		}
		out = append(out, Scope(s))
	}
	return out, nil
}
