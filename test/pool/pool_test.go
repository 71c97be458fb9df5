package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

func TestMain(m *testing.M) { os.Exit(testenv.RunWaiting(m)) }

// part is a dispatcher or a worker that runs.
type part struct {
	stop context.CancelFunc
	done chan error
}

// end stops it and waits until nothing of it runs.
func (p *part) end(t *testing.T) {
	t.Helper()
	p.stop()
	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it did not end within 30 s")
	}
	p.done <- nil // for the cleanup
}

type runs interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}

func begin(t testing.TB, r runs) *part {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	p := &part{stop: stop, done: make(chan error, 2)}
	go func() { p.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-p.done
	})
	select {
	case <-r.Ready():
	case err := <-p.done:
		t.Fatalf("it did not start: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("it is not ready after 30 s")
	}
	return p
}

func startWorker(t testing.TB, s *natsd.Server, cfg worker.Config) *part {
	t.Helper()
	cfg.Log = testenv.Log(t)
	cfg.Origin = registry.Toolset
	if cfg.Mode == "" {
		cfg.Mode = policy.Bypass
	}
	if cfg.DrainGrace == 0 {
		cfg.DrainGrace = 500 * time.Millisecond
	}
	w, err := worker.New(testenv.Broker(t, s, "/worker/test"), cfg)
	must.OK(t, err)
	return begin(t, w)
}

func startDispatcher(t testing.TB, s *natsd.Server, cfg dispatcher.Config) *part {
	t.Helper()
	cfg.Log = testenv.Log(t)
	cfg.Planner.Pipeline = &pipeline.Pipeline{}
	return begin(t, dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), cfg))
}

func startClient(t testing.TB, s *natsd.Server) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), testenv.Conn(t, s), client.Options{})
	must.OK(t, err)
	return c
}

// submit hands in a batch.
func submit(t testing.TB, c *client.Client, b toolyard.Batch) *client.Batch {
	t.Helper()
	sub, err := c.Submit(t.Context(), b)
	must.OK(t, err)
	return sub
}

// reader and writer declare tools that may run beside others, and alone.
func reader(name string) tool.Declaration {
	return tool.Declaration{Name: name, Description: "A tool of a test.",
		Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true}
}

// alone declares that a call's failure does not end its siblings.
func alone(d tool.Declaration) tool.Declaration {
	d.AbortsSiblings = new(bool)
	return d
}

func writer(name string) tool.Declaration {
	return tool.Declaration{Name: name, Description: "A tool of a test.",
		Class: tool.ClassRule{Static: toolyard.WriteExclusive}}
}

type nothing struct{}

func newTool[In, Out any](t testing.TB, typed tool.Typed[In, Out]) tool.Tool {
	t.Helper()
	made, err := tool.New(typed)
	must.OK(t, err)
	return made
}

func make1(t testing.TB, d tool.Declaration, run func(ctx context.Context, env tool.Env) (string, error)) tool.Tool {
	t.Helper()
	return newTool(t, tool.Typed[nothing, string]{
		Declaration: d,
		Run:         func(ctx context.Context, env tool.Env, _ nothing) (string, error) { return run(ctx, env) },
	})
}

func says(text string) func(context.Context, tool.Env) (string, error) {
	return func(context.Context, tool.Env) (string, error) { return text, nil }
}

// stuck waits for the end of its context and tells when it began and why it ended.
func stuck(began chan<- struct{}, ended chan<- error) func(context.Context, tool.Env) (string, error) {
	return func(ctx context.Context, _ tool.Env) (string, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return "", context.Cause(ctx)
	}
}

func calls(names ...string) []toolyard.Call {
	var out []toolyard.Call
	for _, n := range names {
		out = append(out, toolyard.Call{Tool: n})
	}
	return out
}

func results(t *testing.T, c *client.Client, b toolyard.Batch) []toolyard.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	sub, err := c.Submit(ctx, b)
	must.OK(t, err)
	return collect(t, ctx, sub)
}

func collect(t *testing.T, ctx context.Context, sub *client.Batch) []toolyard.Result {
	t.Helper()
	var out []toolyard.Result
	for r, err := range sub.Results(ctx) {
		if err != nil {
			t.Fatalf("after %d results: %v", len(out), err)
		}
		out = append(out, r)
	}
	return out
}

func codes(rs []toolyard.Result) string {
	var out []string
	for _, r := range rs {
		if r.Code == "" {
			out = append(out, "ok")
		} else {
			out = append(out, string(r.Code))
		}
	}
	return strings.Join(out, " ")
}

// awaitStart waits until a group of a batch has started.
func awaitStart(t *testing.T, b *natsbroker.Broker, k toolyard.BatchKey) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		st, err := b.Fold(t.Context(), k)
		must.OK(t, err)
		if len(st.Started) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no group of batch %s has started", k)
		}
	}
}

// TestSiblingsAreStopped: a read that fails while its siblings run ends them where its tool says so; their tools learn
// it, and the next group runs.
func TestSiblingsAreStopped(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	began, ended := make(chan struct{}, 2), make(chan error, 2)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		make1(t, reader("wait"), stuck(began, ended)),
		make1(t, reader("fail"), func(context.Context, tool.Env) (string, error) {
			<-began
			<-began
			return "", errors.New("the disk is on fire")
		}),
		make1(t, writer("write"), says("written")),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("wait", "fail", "wait", "write")})
	if codes(got) != "sibling_canceled execution_failed sibling_canceled ok" {
		t.Fatalf("the results are %s", codes(got))
	}
	if !strings.Contains(got[0].Error, "fail") || !strings.Contains(got[1].Error, "the disk is on fire") {
		t.Errorf("the culprit is not named: %q; %q", got[0].Error, got[1].Error)
	}
	for range 2 {
		if _, ok := errors.AsType[pipeline.ErrSiblingCanceled](<-ended); !ok {
			t.Error("a sibling's context ended for another reason")
		}
	}
}

// TestTheDeadlineReachesTools: the batch's time limit ends what runs, what waits, and what never started.
func TestTheDeadlineReachesTools(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, writer("wait"), stuck(began, ended)),
		make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("read", "wait", "read"),
		Options: toolyard.Options{TimeoutMS: 700}})
	if codes(got) != "ok deadline_exceeded deadline_exceeded" {
		t.Fatalf("the results are %s", codes(got))
	}
	if err := <-ended; !errors.Is(err, pipeline.ErrDeadline) {
		t.Errorf("the tool's context ended with %v", err)
	}
}

// TestWorkspacesAreExclusive: two agents' batches write to one workspace through two dispatchers, and count who is in.
func TestWorkspacesAreExclusive(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var mu sync.Mutex
	inside, most := map[toolyard.Workspace][2]int{}, map[string]int{}
	var tokens []uint64
	enter := func(exclusive int) func(context.Context, tool.Env) (string, error) {
		return func(_ context.Context, env tool.Env) (string, error) {
			mu.Lock()
			in := inside[env.Workspace]
			in[exclusive]++
			inside[env.Workspace] = in
			if in[1] > 1 || in[1] == 1 && in[0] > 0 {
				t.Errorf("%v calls are in workspace %s", in, env.Workspace)
			}
			most[fmt.Sprint(env.Workspace, exclusive)] = max(most[fmt.Sprint(env.Workspace, exclusive)], in[exclusive])
			if exclusive == 1 && env.Workspace == "a" {
				tokens = append(tokens, env.FencingToken)
			}
			mu.Unlock()
			time.Sleep(time.Millisecond) // so that there is something to overlap with
			mu.Lock()
			in = inside[env.Workspace]
			in[exclusive]--
			inside[env.Workspace] = in
			mu.Unlock()
			return "", nil
		}
	}
	tools := []tool.Tool{make1(t, reader("read"), enter(0)), make1(t, writer("write"), enter(1))}
	for range 2 {
		startWorker(t, s, worker.Config{Tools: tools})
		startDispatcher(t, s, dispatcher.Config{})
	}
	c := startClient(t, s)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			b := toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("agent ", n)),
				Workspace: toolyard.Workspace([]string{"a", "b"}[n%2]),
				Calls:     calls("read", "read", "write", "read", "write", "read", "read")}
			if got := codes(results(t, c, b)); strings.Trim(got, "ok ") != "" {
				t.Errorf("agent %d: %s", n, got)
			}
		})
	}
	wg.Wait()
	if !slices.IsSorted(tokens) || len(tokens) == 0 {
		t.Errorf("the fencing tokens of writes do not grow: %v", tokens)
	}
	t.Logf("most calls together, by workspace and exclusivity: %v", most)
}

// TestToolsComeAndGo: a tool is offered while it is enabled; one that was offered and is no more is unknown.
func TestToolsComeAndGo(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var mu sync.Mutex
	on := true
	sometimes := make1(t, reader("sometimes"), says("x"))
	sometimes.Enabled = func() bool {
		mu.Lock()
		defer mu.Unlock()
		return on
	}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{sometimes, make1(t, reader("always"), says("y"))}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	if got := codes(results(t, c, toolyard.Batch{Calls: calls("sometimes", "always")})); got != "ok ok" {
		t.Fatalf("enabled: %s", got)
	}
	mu.Lock()
	on = false
	mu.Unlock()
	for end := time.Now().Add(30 * time.Second); ; {
		got := codes(results(t, c, toolyard.Batch{Calls: calls("sometimes", "always")}))
		if got == "unknown_tool ok" {
			break
		}
		if got != "ok ok" || time.Now().After(end) {
			t.Fatalf("disabled: %s", got)
		}
	}
}

// TestRefusedSubmissions: what reached the stream and cannot be accepted is answered, and the next batch runs.
func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	for _, rule := range []string{"read(", "raed", "mcp__my"} { // no server "my" is offered
		sub := submit(t, c, toolyard.Batch{Calls: calls("read"), Options: toolyard.Options{Deny: []string{rule}}})
		var refused error
		for _, err := range sub.Results(t.Context()) {
			refused = err
		}
		if e, ok := errors.AsType[*client.RefusedError](refused); !ok || e.Field != "options.deny[0]" ||
			e.Status != 400 {
			t.Errorf("the rule %q: %v", rule, refused)
		}
	}
	if got := codes(results(t, c, toolyard.Batch{Calls: calls("read")})); got != "ok" {
		t.Errorf("the next batch: %s", got)
	}
}

// TestABrokenToolsetHarmsNobodyElse: a worker whose declarations do not hold gets no calls, and the others go on.
func TestABrokenToolsetHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/worker/broken")
	must.OK(t, b.PutSurface(t.Context(), "bad", []byte(`{"hash":"bad","tools":[{"name":"read"}]}`)))
	must.OK(t, b.Beat(t.Context(), broker.Worker{ID: "broken", Pool: "default", Classes: toolyard.Classes,
		Toolset: "bad"}))
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	if got := codes(results(t, startClient(t, s), toolyard.Batch{Calls: calls("read")})); got != "ok" {
		t.Errorf("the results are %s", got)
	}
}

// TestLargeBatches: 10,000 calls that are answered at plan, and outputs that are too long for one reply message.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	long := strings.Repeat("x", 200<<10)
	d := reader("long")
	d.MaxResultSizeChars = -1
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, d, says(long))}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	var many toolyard.Batch
	for range toolyard.MaxCallsPerBatch {
		many.Calls = append(many.Calls, toolyard.Call{Tool: "no_such_tool"})
	}
	got := results(t, c, many)
	if len(got) != len(many.Calls) {
		t.Errorf("%d results", len(got))
	}
	for i, r := range results(t, c, toolyard.Batch{Calls: calls("long", "long", "long", "long", "long")}) {
		if r.Index != i || r.Output != long {
			t.Errorf("call %d came back as call %d with %d bytes: %s", i, r.Index, len(r.Output), r.Error)
		}
	}
}

// TestRetries: a failure that says of itself that it may pass is repeated when the call may run twice, and counted.
func TestRetries(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var mu sync.Mutex
	ran := map[string]int{}
	flaky := func(name string, failures int) func(context.Context, tool.Env) (string, error) {
		return func(_ context.Context, env tool.Env) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[name]++
			if ran[name] != env.Attempt {
				t.Errorf("%s: execution %d calls itself attempt %d", name, ran[name], env.Attempt)
			}
			if ran[name] <= failures {
				return "", tool.Unavailable(errors.New("refused"), "the database does not answer")
			}
			return "ok", nil
		}
	}
	idempotentWrite := writer("set")
	idempotentWrite.Idempotent = new(true)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		make1(t, reader("read"), flaky("read", 2)), make1(t, idempotentWrite, flaky("set", 1)),
		make1(t, writer("write"), flaky("write", 1)), make1(t, reader("down"), flaky("down", 99)),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("read", "set", "write", "down")})
	if codes(got) != "ok ok dependency_unavailable dependency_unavailable" {
		t.Fatalf("the results are %s", codes(got))
	}
	for i, want := range []int{3, 2, 1, 3} {
		if got[i].Attempts != want || ran[got[i].Tool] != want {
			t.Errorf("%s: %d attempts in its result, %d executions, want %d", got[i].Tool, got[i].Attempts,
				ran[got[i].Tool], want)
		}
	}
}

// TestWhatOneWorkerFindsDown is known to the others within a heartbeat: they do not try it either.
func TestWhatOneWorkerFindsDown(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	d := writer("write") // not idempotent: no attempt is repeated
	d.Dependency = "database"
	var mu sync.Mutex
	ran := 0
	down := make1(t, d, func(context.Context, tool.Env) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		ran++
		return "", tool.Unavailable(errors.New("refused"), "the database does not answer")
	})
	first := startWorker(t, s, worker.Config{ID: "first", Tools: []tool.Tool{down}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	for range 5 {
		if got := codes(results(t, c, toolyard.Batch{Calls: calls("write")})); got != "dependency_unavailable" {
			t.Fatalf("the results are %s", got)
		}
	}
	startWorker(t, s, worker.Config{ID: "second", Tools: []tool.Tool{down}})
	for end := time.Now().Add(30 * time.Second); ; {
		ws, err := c.Workers(t.Context())
		must.OK(t, err)
		if len(ws) == 2 && !ws[0].Breakers["database"].IsZero() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the workers say %+v", ws)
		}
	}
	first.end(t)
	got := results(t, c, toolyard.Batch{Calls: calls("write")})
	if codes(got) != "dependency_unavailable" || got[0].Worker != "second" || got[0].RetryAfterMS <= 0 ||
		got[0].Attempts != 0 || ran != 5 {
		t.Errorf("the second worker tried it (%d executions): %+v", ran, got)
	}
}

// TestStreaming: calls start while others are still to come, and the groups are those that the calls make at once.
func TestStreaming(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	ran := make(chan struct{}, 100)
	run := func(context.Context, tool.Env) (string, error) {
		ran <- struct{}{}
		return "", nil
	}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), run), make1(t, writer("write"), run)}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	word := []string{"read", "read", "write", "unknown", "read", "write", "read", "read", "read"}
	for _, strategy := range toolyard.Strategies {
		whole := submit(t, c, toolyard.Batch{Calls: calls(word...), Options: toolyard.Options{Partition: strategy}})
		want := codes(collect(t, t.Context(), whole))
		wholeView, err := whole.View(t.Context())
		must.OK(t, err)
		for len(ran) > 0 {
			<-ran
		}
		st, err := c.Open(t.Context(), toolyard.Batch{Options: toolyard.Options{Partition: strategy}})
		must.OK(t, err)
		for n, name := range word {
			must.OK(t, st.Append(t.Context(), calls(name)...))
			if n == 1 {
				testenv.Within(t, "a call runs while the batch is open", ran)
			}
		}
		if err := st.Append(t.Context(), toolyard.Call{ID: "call_1", Tool: "read"}); err == nil {
			t.Error("a call with an id that was used before was appended")
		}
		must.OK(t, st.Close(t.Context()))
		if err := st.Append(t.Context(), calls("read")...); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call after the end: %v, want ErrClosed", err)
		}
		got := codes(collect(t, t.Context(), st.Batch))
		view, err := st.View(t.Context())
		must.OK(t, err)
		if got != want || fmt.Sprint(view.Groups) != fmt.Sprint(wholeView.Groups) ||
			view.Status != toolyard.StatusCompleted {
			t.Errorf("%s: streamed %s in %v (%s), at once %s in %v", strategy, got, view.Groups, view.Status, want,
				wholeView.Groups)
		}
	}
}
