package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAsk: only 200 is healthy, and the reason of anything else is in the error, bounded.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string // of the error; "" wants none
	}{
		{http.StatusOK, "ok", ""},
		{http.StatusNoContent, "", "204"},
		{http.StatusServiceUnavailable, "no leader", "503 Service Unavailable: no leader"},
		{http.StatusInternalServerError, strings.Repeat("x", 2*maxReason), "500"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			if _, err := w.Write([]byte(c.body)); err != nil && c.body != "" {
				t.Error(err)
			}
		}))
		err := ask(s.URL)
		s.Close()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%d: %v", c.status, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d: the error is %v, want one with %q", c.status, err, c.want)
		case err != nil && len(err.Error()) > maxReason+100:
			t.Errorf("%d: the error has %d bytes", c.status, len(err.Error()))
		}
	}
}

// TestAskNobody: a URL that nobody answers is not healthy.
func TestAskNobody(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	if ask(s.URL) == nil {
		t.Error("a closed server counts as healthy")
	}
}
