package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// journal keeps the lines of a log.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// above are the lines of a level and those above it.
func (j *journal) above(least slog.Level) (out []string) {
	for line := range strings.Lines(j.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		name, _, _ := strings.Cut(rest, " ")
		var level slog.Level
		if level.UnmarshalText([]byte(name)) != nil || level >= least {
			out = append(out, line)
		}
	}
	return out
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// TestAStopIsNoNews: calls that are stopped, by a sibling that fails, a cancel, an interrupt, a deadline or a timeout,
// end as they should, and nobody writes a line about it.
func TestAStopIsNoNews(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var j journal
	began := make(chan struct{}, 100)
	obeys := func(ctx context.Context, _ tool.Env) (string, error) {
		began <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	siblings := true
	failing := reader("fail")
	failing.AbortsSiblings = &siblings
	gentle := reader("gentle")
	gentle.Interrupt = tool.Cancel
	alone := writer("alone")
	alone.Interrupt = tool.Cancel
	short := reader("short")
	short.TimeoutMS = 100
	once := false
	checked := reader("checked") // stopped before it could be claimed, while another answers for it
	checked.Idempotent = &once
	checks := make1(t, checked, says("done"))
	checks.Check = func(ctx context.Context, _ tool.Env, _ json.RawMessage) error {
		began <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ready := make(chan struct{}, 10)
	w, err := worker.New(testenv.Broker(t, s, "/worker/test"), worker.Config{Log: j.log(), Origin: registry.Toolset,
		Mode: policy.Bypass, Tools: []tool.Tool{
			make1(t, gentle, obeys), make1(t, alone, obeys), make1(t, short, obeys), checks,
			make1(t, reader("quick"), says("done")),
			make1(t, failing, func(ctx context.Context, _ tool.Env) (string, error) {
				<-ready
				return "", errors.New("it does not work")
			})}})
	must.OK(t, err)
	taking := begin(t, w)
	d := dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), dispatcher.Config{Log: j.log(),
		Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}})
	owning := begin(t, d)
	c, b := startClient(t, s), testenv.Broker(t, s, "/test")
	testenv.Until(t, "the dispatcher knows the worker", func() bool {
		return strings.Contains(j.String(),
			"worker joined")
	})

	for name, x := range map[string]struct {
		calls   []string
		begins  int
		options toolyard.Options
		stop    func(*client.Batch) error
		want    string
	}{
		"a sibling failed": {calls: []string{"gentle", "gentle", "fail", "gentle"}, begins: 3,
			stop: func(*client.Batch) error { ready <- struct{}{}; return nil },
			want: "sibling_canceled sibling_canceled execution_failed sibling_canceled"},
		"a sibling failed before a claim": {calls: []string{"checked", "fail", "checked"}, begins: 2,
			stop: func(*client.Batch) error { ready <- struct{}{}; return nil },
			want: "sibling_canceled execution_failed sibling_canceled"},
		"a cancel": {calls: []string{"gentle", "gentle", "gentle", "alone"}, begins: 3,
			stop: func(b *client.Batch) error { return b.Cancel(t.Context(), "enough") },
			want: "canceled canceled canceled canceled"},
		"a cancel of one call": {calls: []string{"gentle", "quick"}, begins: 1,
			stop: func(b *client.Batch) error { return b.Cancel(t.Context(), "enough", 0) }, want: "canceled ok"},
		"a cancel of one that runs alone": {calls: []string{"alone", "quick"}, begins: 1,
			stop: func(b *client.Batch) error { return b.Cancel(t.Context(), "enough") },
			want: "canceled canceled"},
		"an interrupt": {calls: []string{"gentle", "alone"}, begins: 1, want: "canceled canceled",
			stop: func(*client.Batch) error {
				_, err := b.Interrupt(t.Context(), "an-interrupt", "s",
					"stop")
				return err
			}},
		"a deadline": {calls: []string{"gentle", "gentle", "alone"}, begins: 2,
			options: toolyard.Options{TimeoutMS: 3_000}, // the calls have begun by then
			want:    "deadline_exceeded deadline_exceeded deadline_exceeded"},
		"a timeout": {calls: []string{"short", "short"}, begins: 2, want: "timeout timeout",
			options: toolyard.Options{OnError: toolyard.Continue}}, // or the first to end would end the other
	} {
		sub := submit(t, c, toolyard.Batch{Agent: toolyard.Agent(strings.ReplaceAll(name, " ", "-")),
			Session: "s", Calls: calls(x.calls...), Options: x.options})
		for range x.begins {
			testenv.Within(t, name+": the calls begin", began)
		}
		if x.stop != nil {
			must.OK(t, x.stop(sub))
		}
		if got := codes(collect(t, t.Context(), sub)); got != x.want {
			t.Errorf("%s: the calls ended as %s, want %s", name, got, x.want)
		}
	}
	taking.end(t) // what is to be said of calls is said by then
	owning.end(t)
	for _, line := range j.above(slog.LevelInfo) {
		// On a busy machine it may take long to ask the server how full the store is; that is about no stop.
		if !strings.Contains(line, "worker joined") && !strings.Contains(line, "worker left") &&
			!strings.Contains(line, "how full the store is") {
			t.Errorf("the log says %s", line)
		}
	}
}

// TestALostConnectionIsTwoLines: one when it goes, and one when it is back, in each process, whatever fails meanwhile.
func TestALostConnectionIsTwoLines(t *testing.T) {
	t.Parallel()
	s := testenv.Restartable(t)
	var dispatching, working journal
	on := func(j *journal, source string) *natsbroker.Broker {
		nc, err := nats.Connect(s.ClientURL(), natsbroker.ConnectOptions("test", j.log())...)
		must.OK(t, err)
		t.Cleanup(nc.Close)
		return testenv.Open(t, nc, broker.Settings{}, source)
	}
	began, free := make(chan struct{}, 10), make(chan struct{})
	w, err := worker.New(on(&working, "/worker/test"), worker.Config{Log: working.log(), Origin: registry.Toolset,
		Mode: policy.Bypass, Tools: []tool.Tool{
			make1(t, reader("steady"), func(ctx context.Context, _ tool.Env) (string, error) {
				began <- struct{}{}
				select {
				case <-free:
				case <-ctx.Done(): // on a busy machine the server may be away for longer than a lease
				}
				return "", nil
			})}})
	must.OK(t, err)
	begin(t, w)
	begin(t, dispatcher.New(on(&dispatching, "/dispatcher/test"), dispatcher.Config{Log: dispatching.log(),
		Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}}))
	c := startClient(t, s.Server)
	sub := submit(t, c, toolyard.Batch{Calls: calls("steady", "steady", "steady")})
	testenv.Within(t, "a call begins", began)
	s.Shutdown()
	testenv.Until(t, "a heartbeat fails", func() bool {
		return strings.Contains(working.String(), "a heartbeat was not stored")
	})
	s.Start()
	close(free)
	collect(t, t.Context(), sub)
	for who, j := range map[string]*journal{"the dispatcher": &dispatching, "the worker": &working} {
		lines := j.above(slog.LevelWarn)
		if len(lines) != 2 || !strings.Contains(lines[0], "lost the connection to NATS") ||
			!strings.Contains(lines[1], "connected to NATS again") {
			t.Errorf("%s says\n%s", who, strings.Join(lines, ""))
		}
	}
}
