package endpoint

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestARequestThatMayNotBeRepeatedIsSentOnce: also where the service closes a kept connection without an answer.
func TestARequestThatMayNotBeRepeatedIsSentOnce(t *testing.T) {
	var sent atomic.Int64
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch sent.Add(1) {
		case 1: // so that the connection is kept
			_, _ = io.WriteString(w, "ok")
		case 2: // takes effect, and dies before it answers
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		default:
			_, _ = io.WriteString(w, "done again")
		}
	})
	x := declared(t, `"concurrency_class":"WRITE_EXCLUSIVE",`, `{"method":"POST","url":"`+at+`/pay","body":"json"}`)
	if _, err := x.Run(t.Context(), env(), json.RawMessage(`{"a":"1"}`)); err != nil {
		t.Fatal(err)
	}
	out, err := x.Run(t.Context(), env(), json.RawMessage(`{"a":"2"}`))
	if n := sent.Load(); n != 2 {
		t.Errorf("two calls were %d requests; the second one said %q, %v", n, out.Text, err)
	}
	if e, ok := err.(*tool.Error); !ok || e.Code != toolyard.OutcomeUnknown {
		t.Errorf("%v, want outcome_unknown", err)
	}
}
