package api

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/login"
)

// TestKeysOutliveAnIssuerWhoseKeysCannotBeRead: docs/http.md: "Keys count for an hour while the issuer does not
// answer."
func TestKeysOutliveAnIssuerWhoseKeysCannotBeRead(t *testing.T) {
	i := newIssuer(t)
	var keysDown atomic.Bool
	u, err := url.Parse(i.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" && keysDown.Load() {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		p := httputil.NewSingleHostReverseProxy(u)
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s := i.server(t, "")
	// All requests go through the front: the addresses stay those of the issuer.
	fu, _ := url.Parse(front.URL)
	s.cfg.Issuer.asks.next = roundTo(fu.Host)
	ask := func() *Problem {
		_, p := s.identify(bearer(t, "/v1/batches", i.Token(i.Key, login.KeyID, nil)))
		return p
	}
	if p := ask(); p != nil {
		t.Fatal(p)
	}
	// A quarter of an hour later the keys' address does not answer; the configuration's does.
	is := s.cfg.Issuer
	is.fetched, is.tried = time.Now().Add(-IssuerRefresh-time.Second), time.Time{}
	is.asks.forget()
	keysDown.Store(true)
	if p := ask(); p != nil {
		t.Errorf("keys of 15 minutes ago do not count: %d %s", p.Status, p.Detail)
	}
}

type roundTo string

func (h roundTo) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(h)
	return http.DefaultTransport.RoundTrip(r)
}
