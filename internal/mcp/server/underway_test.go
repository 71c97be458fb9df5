package server

import (
	"bytes"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestACallBesideTheEndOfItsSession: a call that comes while its session is being ended ends with it, and is not handed
// in. The library waits for it before it ends the session.
func TestACallBesideTheEndOfItsSession(t *testing.T) {
	url, system, s := answering(t)
	send := inSession(t, url)
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
		answers <- send(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
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
