package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestScopes: a token with scopes makes requests of those kinds and no others; one without has all.
func TestScopes(t *testing.T) {
	tokens, err := ParseTokens([]byte("all ann\nreads ann scopes=read\nscrapes * name=prometheus scopes=metrics\n" +
		"decides * name=alice scopes=read,decide\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: Config{Tokens: tokens}, rates: newPace()}
	requests := []struct{ method, path string }{
		{http.MethodGet, "/v1/batches"}, {http.MethodGet, "/v1/approvals"}, {http.MethodPost, "/v1/batches"},
		{http.MethodPost, "/v1/batches/x/cancel"}, {http.MethodPost, "/v1/sessions/s"}, {http.MethodPost, "/mcp"},
		{http.MethodGet, "/mcp"}, {http.MethodPost, "/v1/approvals/x"}, {http.MethodGet, "/metrics"},
	}
	for _, c := range []struct {
		token, name string
		may         string // a digit for each request
	}{
		{"all", "ann", "111111111"}, {"reads", "ann", "110000000"}, {"scrapes", "prometheus", "000000001"},
		{"decides", "alice", "110000010"},
	} {
		for i, q := range requests {
			r := httptest.NewRequestWithContext(t.Context(), q.method, q.path, nil)
			r.Header.Set("Authorization", "Bearer "+c.token)
			who, p := s.identify(r)
			if p != nil {
				t.Fatal(p)
			}
			if who.name != c.name {
				t.Errorf("the token %s is %s's; want %s", c.token, who.name, c.name)
			}
			p = who.within(r)
			if may := c.may[i] == '1'; may != (p == nil) {
				t.Errorf("%s: %s %s: %v; want it to be allowed: %t", c.token, q.method, q.path, p, may)
			}
			challenge := `error="insufficient_scope", scope="toolyard:` + string(scopeOf(r)) + `"`
			if p != nil && (p.Status != http.StatusForbidden ||
				!strings.Contains(p.GetHeaders().Get("WWW-Authenticate"), challenge)) {
				t.Errorf("%s: %s %s: %d, %v", c.token, q.method, q.path, p.Status, p.GetHeaders())
			}
		}
	}
	for line, says := range map[string]string{
		"a ann scopes=write": "a scope is one of", "a ann scopes=": "no KEY=VALUE",
		"a * workspaces=w":                "name and scopes only",
		"a ann scopes=read scopes=submit": "repeats", "a ann name=\x01": "name",
	} {
		if _, err := ParseTokens([]byte(line)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want an error that says %q", line, err, says)
		}
	}
}
