package server

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestACallBesideTheEndOfItsSession: a call that comes while its session is being ended ends with it, and is not handed
// in. The library waits for it before it ends the session.
func TestACallBesideTheEndOfItsSession(t *testing.T) {
	system := &cutting{cut: func() {}, canceled: make(chan string, 1), sent: make(chan struct{}, 1)}
	s := before(t, system)
	if err := s.SetSurface(surfaceOf(t, map[string]string{"t": `{"type":"object"}`})); err != nil {
		t.Fatal(err)
	}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(w, r, "a", nil)
	}))
	t.Cleanup(func() {
		s.Stop() // before the door waits for its requests
		door.Close()
	})
	session := ""
	send := func(method, body string) (http.Header, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, door.URL, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, versionHeader: {"2025-11-25"},
			"Accept": {"application/json, text/event-stream"}}
		if session != "" {
			r.Header.Set(sessionHeader, session)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		defer func() { _ = res.Body.Close() }() // it is only read
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return res.Header, string(data)
	}
	begun, _ := send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	session = begun.Get(sessionHeader)
	send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	at := func(function string) func() bool {
		return func() bool {
			var stacks bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(stacks.String(), "server.(*underWay)."+function+"(")
		}
	}
	s.underWay.mu.Lock() // so that both stand where they meet, the end of the session first
	ended, answers := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(ended)
		send(http.MethodDelete, "")
	}()
	testenv.Until(t, "the session is being ended", at("end"))
	go func() {
		_, text := send(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		answers <- text
	}()
	testenv.Until(t, "the call is there", at("enter"))
	s.underWay.mu.Unlock()
	testenv.Until(t, "the session has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if got := <-answers; got != "" || len(system.sent) > 0 {
		t.Errorf("the call was answered with %q, and %d batches were handed in", got, len(system.sent))
	}
}
