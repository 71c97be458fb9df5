package pool

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestProgressIsHeard: what a tool reports is heard by everybody who watches its batch, from its start to its
// end, without what the worker knows to be secret; and it stands in no stream.
func TestProgressIsHeard(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-correct-horse-battery"
	s := testenv.Server(t)
	listening := make(chan struct{})
	startWorker(t, s, worker.Config{
		Redact: redact.New([]redact.Secret{{Name: "DOOR", Value: secret}}).Redact,
		Tools: []tool.Tool{make1(t, reader("talk"), func(ctx context.Context, env tool.Env) (string, error) {
			again := time.NewTicker(10 * time.Millisecond)
			defer again.Stop()
			for waits := true; waits; {
				env.Progress(tool.Progress{Fraction: 0.1, Status: "is anybody there? "})
				select {
				case <-listening:
					waits = false
				case <-again.C:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			env.Progress(tool.Progress{Fraction: 0.25, Status: "the door's is " + secret, Output: "one " + secret[:8]})
			env.Progress(tool.Progress{Fraction: 0.5, Output: secret[8:] + " two\nthree"})
			return "done", nil
		}), make1(t, reader("mute"), says("done"))},
	})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	b := toolyard.Batch{Agent: "a", ID: "b", Calls: calls("talk", "mute")}
	sub := submit(t, c, b)
	submit(t, c, toolyard.Batch{Agent: "a", ID: "other", Calls: calls("talk")})
	other := toolyard.BatchKey{Agent: "a", ID: "other"}
	heard := make(chan []client.Progress)
	var listen sync.WaitGroup // until everybody has heard something
	for _, k := range []toolyard.BatchKey{b.Key(), b.Key(), other} {
		who := startClient(t, s).Batch(k)
		listen.Add(1)
		go func() {
			var all []client.Progress
			for p, err := range who.Progress(t.Context()) {
				if err != nil {
					t.Error(err)
				}
				if all = append(all, p); len(all) == 1 {
					listen.Done()
				}
			}
			heard <- all
		}()
	}
	listen.Wait()
	close(listening)
	for range 3 {
		all := testenv.Within(t, "progress ends with the batch", heard)
		var said, out strings.Builder
		for _, p := range all {
			if p.Index == 1 {
				continue // its start and its end
			}
			if p.Index != 0 || p.Tool != "talk" || p.Attempt != 1 || p.Worker == "" || p.LostBytes != 0 {
				t.Errorf("%+v", p)
			}
			said.WriteString(p.Status)
			out.WriteString(p.Output)
		}
		if text := said.String() + out.String(); strings.Contains(text, "hunter2") ||
			strings.Contains(text, "battery") || !strings.Contains(said.String(), "[redacted: DOOR]") {
			t.Errorf("heard %q", text)
		}
		if out.String() != "one [redacted: DOOR] two\nthree" || all[len(all)-1].Fraction != 1 {
			t.Errorf("heard %+v", all)
		}
	}
	for raw, err := range sub.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "the door's is") {
			t.Errorf("progress is stored: %s", raw)
		}
	}
}
