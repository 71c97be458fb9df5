package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/login"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestASessionOfAJWT: a browser's session has the rights of its JWT, until that runs out.
func TestASessionOfAJWT(t *testing.T) {
	i := newIssuer(t)
	s := i.server(t, "")
	ask := func(token string) (caller, *Problem) {
		t.Helper()
		key, value, err := seal(token)
		must.OK(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/batches", nil)
		cookie := s.cookie(r, value)
		r.AddCookie(&cookie)
		r.Header.Set(sessionHeader, key)
		return s.identify(r)
	}
	who, p := ask(i.Token(i.Key, login.KeyID, map[string]any{"scope": "toolyard:read"}))
	if p != nil || who.agent != "ann" || who.any || who.proof != ProvedByJWT || len(who.grant.scopes) != 1 ||
		who.expires.IsZero() {
		t.Errorf("a right one: %+v, %v", who, p)
	}
	expired := i.Token(i.Key, login.KeyID, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})
	if who, p := ask(expired); p == nil ||
		p.Status != http.StatusUnauthorized {
		t.Errorf("an expired one: %+v, %v", who, p)
	}
}

// TestAHeaderWinsOverASession: a request that shows a token of its own is not the session's.
func TestAHeaderWinsOverASession(t *testing.T) {
	s := newIssuer(t).server(t, "")
	key, value, err := seal("file-1")
	must.OK(t, err)
	for token, status := range map[string]int{"like.a.jwt": 0, "nobody": http.StatusUnauthorized} {
		r := bearer(t, "/v1/batches", token)
		cookie := s.cookie(r, value)
		r.AddCookie(&cookie)
		r.Header.Set(sessionHeader, key)
		who, p := s.identify(r)
		if (p == nil) != (status == 0) || p == nil && who.agent != "carol" || p != nil && p.Status != status {
			t.Errorf("%s: %+v, %v", token, who, p)
		}
	}
}
