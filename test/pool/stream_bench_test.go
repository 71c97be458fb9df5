package pool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// BenchmarkStream times what passes between the last byte of a call's input and the start of the tool, while the model
// goes on talking: over HTTP, as a provider's event stream, for the first call of a response and for those behind it;
// and for a call that a client appends to an open batch over NATS. The floor is an appended event stored and
// acknowledged on the same server.
func BenchmarkStream(b *testing.B) {
	began := make(chan time.Time, 1)
	type in struct {
		Text string `json:"text"`
	}
	read := newTool(b, tool.Typed[in, string]{Declaration: reader("read"),
		Run: func(context.Context, tool.Env, in) (string, error) {
			began <- time.Now()
			return "read", nil
		}})
	c, s := benchSystem(b, worker.Config{Mode: policy.Bypass, Tools: []tool.Tool{read}})
	broker := testenv.Broker(b, s, "/api/bench")
	handler, err := api.New(api.Config{Client: c, Reader: follow.New(broker, follow.Options{Shared: true}),
		Loopback: true, Log: slog.New(slog.DiscardHandler),
		Ready: func() error { return nil }})
	must.OK(b, err)
	server := httptest.NewServer(handler)
	b.Cleanup(func() {
		handler.Stop()
		server.CloseClientConnections()
		server.Close()
	})
	text := strings.Repeat("x", 190)

	// speak begins a response of a model.
	speak := func() (say func(format string, args ...any), end func()) {
		out, in := io.Pipe()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+"/v1/stream/anthropic", out)
		must.OK(b, err)
		r.Header.Set("Content-Type", "text/event-stream")
		res, err := http.DefaultClient.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(err, res)
		}
		whole := make(chan error, 1)
		go func() {
			lines := bufio.NewScanner(res.Body)
			for lines.Scan() {
				if lines.Text() == "event: completed" {
					whole <- nil
					_, _ = io.Copy(io.Discard, res.Body)
					return
				}
			}
			whole <- errors.New("the answer is not whole")
		}()
		say = func(format string, args ...any) {
			if _, err := fmt.Fprintf(in, "data: "+format+"\n\n", args...); err != nil {
				b.Fatal(err)
			}
		}
		return say, func() {
			say(`{"type":"message_stop"}`)
			must.OK(b, errors.Join(in.Close(), <-whole, res.Body.Close()))
		}
	}
	// call says a call in a stream and returns how long after its last byte the tool began.
	call := func(say func(string, ...any), i int) time.Duration {
		say(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"c%d","name":"read","input":{}}}`, i, i)
		time.Sleep(5 * time.Millisecond) // a model takes longer for an input
		say(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":"{\"text\":\"%s\"}"}}`, i, text)
		last := time.Now()
		say(`{"type":"content_block_stop","index":%d}`, i)
		return (<-began).Sub(last)
	}
	b.Run("first call", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			say, end := speak()
			took = append(took, call(say, 0))
			end()
		}
		percentiles(b, took)
	})
	b.Run("next call", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			say, end := speak()
			call(say, 0)
			for i := 1; i <= 10; i++ {
				took = append(took, call(say, i))
			}
			end()
		}
		percentiles(b, took)
	})
	input := must.JSON(b, in{text})
	b.Run("appended over NATS", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			open, err := c.Open(b.Context(), toolyard.Batch{})
			must.OK(b, err)
			for i := range 11 {
				last := time.Now()
				must.OK(b, open.Append(b.Context(), toolyard.Call{Tool: "read", Input: input}))
				if d := (<-began).Sub(last); i > 0 {
					took = append(took, d)
				}
			}
			must.OK(b, open.Close(b.Context()))
			for _, err := range open.Results(b.Context()) {
				must.OK(b, err)
			}
		}
		percentiles(b, took)
	})
	b.Run("floor", func(b *testing.B) {
		var took []time.Duration
		// nobody's: it is stored and acknowledged, and nothing follows
		k := toolyard.BatchKey{Agent: "bench", ID: "floor"}
		seq := uint64(0)
		for b.Loop() {
			last := time.Now()
			rec, err := broker.Append(b.Context(), k, batch.ChainInput, "", 0, seq,
				events.Appended{Calls: []toolyard.Call{{ID: "c", Tool: "read", Input: input}}})
			must.OK(b, err)
			took, seq = append(took, time.Since(last)), rec.Seq
		}
		percentiles(b, took)
	})
}
