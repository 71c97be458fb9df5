package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

var platform = access.Principal{Role: access.Dispatcher}

func agentNamed(name string) access.Principal {
	return access.Principal{Role: access.Agent, Name: broker.Escape(name)}
}

// guardedPool is a server with accounts, and a dispatcher.
func guardedPool(t testing.TB) *natsd.Server {
	t.Helper()
	s := testenv.Guarded(t)
	dispatch(t, s)
	return s
}

// dispatch starts a dispatcher on a system.
func dispatch(t testing.TB, s testenv.System) {
	t.Helper()
	begin(t, dispatcher.New(testenv.BrokerAs(t, s, platform, "/dispatcher/test"), dispatcher.Config{
		Log: testenv.Log(t), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}},
		MaxDeliveries: 2, // of a batch whose log an attacker has spoilt: it ends within seconds
	}))
}

// guestWorker starts a worker with the credentials of its pool.
func guestWorker(t testing.TB, s testenv.System, cfg worker.Config) *part {
	t.Helper()
	cfg.Log, cfg.Origin, cfg.DrainGrace = testenv.Log(t), registry.Toolset, 500*time.Millisecond
	if cfg.Mode == "" {
		cfg.Mode = policy.Bypass
	}
	if cfg.Pool == "" {
		cfg.Pool = toolyard.DefaultPool
	}
	cfg.ID = broker.WorkerID(cfg.Pool)
	w, err := worker.New(testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: string(cfg.Pool)},
		broker.SourceWorker+cfg.ID), cfg)
	must.OK(t, err)
	return begin(t, w)
}

func guestClient(t testing.TB, s testenv.System, agent string) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), testenv.ConnAs(t, s, agentNamed(agent)), client.Options{})
	must.OK(t, err)
	return c
}

func resultsOf(t testing.TB, b *client.Batch) []toolyard.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out []toolyard.Result
	for r, err := range b.Results(ctx) {
		if err != nil {
			t.Fatalf("after %d results: %v", len(out), err)
		}
		out = append(out, r)
	}
	return out
}

// TestGuests: agents and workers with accounts of their own do all that they do on the platform's: reads, claims,
// judgements, large inputs and results, open batches, cancels, and batches that are looked at later.
func TestGuests(t *testing.T) {
	t.Parallel()
	s := guardedPool(t)
	unused := followGrants(t, s, agentNamed("an agent"), access.Principal{Role: access.Worker, Name: "default"})
	large := strings.Repeat("large ", 400_000) // of several pieces
	began := make(chan struct{}, 1)
	judged := reader("judged")
	judged.Class = tool.ClassRule{Ask: true}
	ask := newTool(t, tool.Typed[nothing, string]{
		Declaration: judged, Run: func(context.Context, tool.Env, nothing) (string, error) { return "judged", nil },
		Judge: func(nothing) (tool.Judgement, error) {
			return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}, nil
		},
	})
	offload := reader("offload")
	echo := newTool(t, tool.Typed[struct {
		Text string `json:"text"`
	}, string]{Declaration: reader("count"), Run: func(_ context.Context, _ tool.Env, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return fmt.Sprint(len(in.Text)), nil
	}})
	guestWorker(t, s, worker.Config{Tools: []tool.Tool{
		make1(t, reader("read"), says("read")), make1(t, writer("write"), says("written")), ask, echo,
		make1(t, offload, says(large)),
		make1(t, reader("wait"), func(ctx context.Context, env tool.Env) (string, error) {
			began <- struct{}{}
			for pause.For(ctx, 10*time.Millisecond) == nil {
				env.Progress(tool.Progress{Fraction: 0.5})
			}
			return "", ctx.Err()
		}),
	}})
	c := guestClient(t, s, "an agent")
	calls := func(names ...string) (out []toolyard.Call) {
		for i, n := range names {
			out = append(out, toolyard.Call{ID: fmt.Sprint(i), Tool: n, Input: json.RawMessage(`{}`)})
		}
		return out
	}
	b := submit(t, c, toolyard.Batch{Agent: "an agent", ID: "one",
		Calls: calls("read", "read", "write", "judged", "read", "offload")})
	results := resultsOf(t, b)
	for i, want := range []string{"read", "read", "written", "judged", "read"} {
		if results[i].Output != want || results[i].IsError {
			t.Errorf("result %d: %+v; want %q", i, results[i], want)
		}
	}
	if results[3].Class != toolyard.ReadOnly {
		t.Errorf("the worker was not asked to judge: %s", results[3].Class)
	}
	if results[5].Blob == "" {
		t.Errorf("the result was not offloaded: %+v", results[5])
	}
	if again := resultsOf(t, c.Batch(b.Key())); len(again) != len(results) {
		t.Errorf("read again: %d results; want %d", len(again), len(results))
	}
	if v, err := b.View(t.Context()); err != nil || v.Status != "completed" || len(v.Results) != len(results) {
		t.Errorf("the batch is %s with %d results (%v)", v.Status, len(v.Results), err)
	}
	events := 0
	for _, err := range b.Watch(t.Context()) {
		must.OK(t, err)
		events++
	}
	if events < 10 {
		t.Errorf("%d events", events)
	}
	if _, err := c.Submit(t.Context(), toolyard.Batch{Agent: "an agent", ID: "one", Calls: calls("read")}); err == nil {
		t.Error("the same id with other content was accepted")
	}

	// A large input.
	b = submit(t, c, toolyard.Batch{Agent: "an agent", ID: "large", Calls: []toolyard.Call{{
		ID: "1", Tool: "count", Input: json.RawMessage(fmt.Sprintf(`{"text":%q}`, large[:900_000]))}}})
	if r := resultsOf(t, b); r[0].Output != "900000" {
		t.Errorf("the large input came as %+v", r[0])
	}

	// An open batch, and a cancel.
	open, err := c.Open(t.Context(), toolyard.Batch{Agent: "an agent", ID: "open"})
	must.OK(t, err)
	must.OK(t, open.Append(t.Context(), calls("read", "wait")...))
	must.OK(t, open.Close(t.Context()))
	<-began
	testenv.Until(t, "progress is told", func() bool {
		return !slices.ContainsFunc(unused(), func(g access.Grant) bool {
			return strings.HasPrefix(g.Subject, "ty.progress.")
		})
	})
	heard, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	told := 0
	for p, err := range c.Batch(open.Key()).Progress(heard) {
		if err != nil {
			t.Fatalf("after %d reports: %v", told, err)
		}
		if p.CallID == "1" && p.Fraction == 0.5 {
			told++
			break
		}
	}
	if told == 0 {
		t.Error("the agent heard no progress")
	}
	must.OK(t, c.Batch(open.Key()).Cancel(t.Context(), "enough"))
	if r := resultsOf(t, c.Batch(open.Key())); len(r) != 2 || r[1].Code != toolyard.Canceled {
		t.Errorf("the canceled batch: %+v", r)
	}

	// What is another's.
	if _, err := c.Submit(t.Context(), toolyard.Batch{Agent: "somebody", ID: "one",
		Calls: calls("read")}); err == nil || !strings.Contains(err.Error(), "an agent") {
		t.Errorf("for another agent: %v", err)
	}
	if _, err := c.Workers(t.Context()); err == nil || !strings.Contains(err.Error(), "operator") {
		t.Errorf("workers: %v", err)
	}
	// What is granted is used. The exceptions are for what does not happen here: a parked batch, a worker that may be
	// lost, and an agent without our code.
	for _, g := range unused() {
		exception := false
		for _, rare := range []string{"*.wake.", "ty.room", "ty.holder.", "ty.get.", "$JS.ACK."} {
			exception = exception || strings.HasPrefix(g.Subject, rare)
		}
		if !exception {
			t.Errorf("nobody uses the grant of %s", g.Subject)
		}
	}
}

// followGrants returns what says which grants of some principals were not used since. It leaves out requests for
// messages: some lanes are another agent's, and a request that somebody follows gets no answer.
func followGrants(t *testing.T, s *natsd.Server, of ...access.Principal) func() []access.Grant {
	t.Helper()
	nc := testenv.ConnAs(t, s, platform)
	type followed struct {
		grant access.Grant
		sub   *nats.Subscription
	}
	var all []followed
	for _, p := range of {
		for _, g := range natsbroker.Grants(p) {
			if strings.HasPrefix(g.Subject, "$JS.API.CONSUMER.MSG.NEXT.") {
				continue
			}
			sub, err := nc.SubscribeSync(g.Subject)
			must.OK(t, err)
			must.OK(t, sub.AutoUnsubscribe(1))
			all = append(all, followed{g, sub})
		}
	}
	must.OK(t, nc.Flush())
	return func() (unused []access.Grant) {
		must.OK(t, nc.Flush())
		for _, f := range all {
			if n, _, err := f.sub.Pending(); err != nil || n == 0 {
				unused = append(unused, f.grant)
			}
		}
		return unused
	}
}

// TestGetReplies: an agent without our code asks ty.get for what was said before it subscribed.
func TestGetReplies(t *testing.T) {
	t.Parallel()
	s := guardedPool(t)
	guestWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("read")),
		make1(t, writer("write"), says("written"))}})
	nc := testenv.ConnAs(t, s, agentNamed("ann"))
	ask := func(batch, question string) (out []*nats.Msg) {
		t.Helper()
		sub, err := nc.SubscribeSync(nc.NewInbox())
		must.OK(t, err)
		must.OK(t, nc.PublishRequest("ty.get.ann."+batch, sub.Subject, []byte(question)))
		for {
			m, err := sub.NextMsg(20 * time.Second)
			must.OK(t, err)
			if out = append(out, m); len(m.Data) == 0 {
				return out
			}
		}
	}
	c := guestClient(t, s, "ann")
	b := submit(t, c, toolyard.Batch{Agent: "ann", ID: "b", Calls: []toolyard.Call{
		{ID: "1", Tool: "read", Input: json.RawMessage(`{}`)}, {ID: "2", Tool: "write", Input: json.RawMessage(`{}`)},
		{ID: "3", Tool: "read", Input: json.RawMessage(`{}`)},
	}})
	resultsOf(t, b)
	for _, c := range []struct {
		question string
		first    int
	}{{"", 0}, {"{}", 0}, {`{"from":0}`, 0}, {`{"from":2}`, 2}, {`{"from":3}`, 2}} {
		got := ask("b", c.question)
		var data struct {
			Results   []toolyard.Result `json:"results"`
			Completed bool              `json:"completed"`
		}
		for i, m := range got[:len(got)-1] {
			if m.Header.Get("ce-type") != "dev.toolyard.results.v1" {
				t.Errorf("%q: message %d is a %s", c.question, i, m.Header.Get("ce-type"))
			}
			must.OK(t, json.Unmarshal(m.Data, &data))
			if i == 0 && (len(data.Results) == 0 || data.Results[0].Index > c.first) {
				t.Errorf("%q: it begins with %+v; want call %d", c.question, data.Results, c.first)
			}
		}
		if !data.Completed {
			t.Errorf("%q: the last reply does not say completed", c.question)
		}
	}
	if m := ask("none", "")[0]; m.Header.Get("Toolyard-Code") != "404" {
		t.Errorf("of a batch that is not there: %v", m.Header)
	}
	if m := ask("b", "nonsense")[0]; m.Header.Get("Toolyard-Code") != "400" {
		t.Errorf("a question that cannot be read: %v", m.Header)
	}
}

// TestBeats: an answered beat stands in the registry, so that whoever proves that a worker is silent reads it there;
// one that is not answered renews nothing. No pool beats for another one's worker.
func TestBeats(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	b := testenv.BrokerAs(t, s, platform, "/test")
	answerer, err := b.AnswerGuests(testenv.Log(t), func() []broker.Worker {
		return []broker.Worker{
			{ID: "default.one", Pool: "default", Isolation: "native", Classes: []toolyard.Class{toolyard.Unsafe},
				Version: "secret"},
			{ID: "default.same", Pool: "default", Isolation: "native", Classes: []toolyard.Class{toolyard.Unsafe}},
			{ID: "default.two", Pool: "default", Isolation: "native",
				Breakers: map[string]time.Time{"db": time.Now().Add(time.Hour)}, Tags: []toolyard.Tag{"gpu"}},
			{ID: "other.three", Pool: "other", Isolation: "native",
				Breakers: map[string]time.Time{"all": time.Now().Add(time.Hour)}},
		}
	}, func(string, []byte) error { return nil }, nil, func(toolyard.BatchKey) bool { return false })
	must.OK(t, err)
	guest := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "default"}, "/worker/default.me")
	me := broker.Worker{ID: "default.me", Pool: "default"}
	before := uint64(0)
	for range 3 {
		must.OK(t, guest.Beat(t.Context(), me))
		if r, err := b.ReadEntry(t.Context(), me.ID); err != nil || r.Kind != presence.Present || r.Seq <= before {
			t.Fatalf("behind an answered beat stands %+v (%v), and %d stood before", r, err, before)
		} else {
			before = r.Seq
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var seen []broker.Worker
	_ = guest.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
		if err != nil {
			t.Error(err)
		}
		if seen = append(seen, *c.Worker); len(seen) == 2 {
			stop()
		}
	})
	if seen[0].Isolation != "native" || seen[0].Pool != "default" || seen[0].ID != "" || seen[0].Version != "" ||
		seen[1].Breakers["db"].IsZero() || !slices.Equal(seen[1].Tags, []toolyard.Tag{"gpu"}) {
		t.Errorf("a worker hears of others %+v; want what its pool can isolate and found to be down, and nothing else",
			seen)
	}
	for _, w := range []broker.Worker{{ID: "other.two", Pool: "other"}, {ID: "other.two", Pool: "default"},
		{ID: "me", Pool: "default"}, {ID: "default.me", Pool: "other"},
		{ID: "default.you", Pool: "default", Tags: []toolyard.Tag{"no tag"}},
		{ID: "default.you", Pool: "default", Tags: make([]toolyard.Tag, broker.MaxTags+1)}} {
		if err := guest.Beat(t.Context(), w); err == nil {
			t.Errorf("the beat of %s of pool %s was stored", w.ID, w.Pool)
		}
		if r, err := b.ReadEntry(t.Context(), w.ID); w.ID != me.ID && (err != nil || r.Kind != presence.Missing) {
			t.Errorf("%s stands in the registry as %+v (%v)", w.ID, r, err)
		}
	}
	must.OK(t, guest.Gone(t.Context(), me.ID))
	if r, err := b.ReadEntry(t.Context(), me.ID); err != nil || r.Kind != presence.Removed {
		t.Errorf("behind its end stands %+v (%v)", r, err)
	}
	must.OK(t, answerer.Close())
	// Until the server knows that nobody listens any more, a request waits for its answer.
	nobody, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := guest.Beat(nobody, me); err == nil {
		t.Error("a beat that nobody stores is answered")
	}
}

// TestTwoCallsReadALongResult: two calls of one batch read a long result of an earlier one, as read_result does.
// They are of one item, and their worker has an account of its own.
func TestTwoCallsReadALongResult(t *testing.T) {
	t.Parallel()
	s := guardedPool(t)
	read := newTool(t, tool.Typed[struct {
		Ref string `json:"ref"`
	}, string]{Declaration: reader("part"), Run: func(ctx context.Context, env tool.Env, in struct {
		Ref string `json:"ref"`
	}) (string, error) {
		data, err := env.Blobs.ReadBlob(ctx, in.Ref)
		return fmt.Sprint(len(data)), err
	}})
	long := strings.Repeat("long ", 100_000)
	guestWorker(t, s, worker.Config{Tools: []tool.Tool{read, make1(t, reader("long"), says(long))}})
	c := guestClient(t, s, "ann")
	results := func(calls ...toolyard.Call) []toolyard.Result {
		t.Helper()
		b := submit(t, c, toolyard.Batch{Agent: "ann", Calls: calls})
		return resultsOf(t, b)
	}
	ref := results(toolyard.Call{ID: "0", Tool: "long", Input: json.RawMessage(`{}`)})[0].Blob
	in := json.RawMessage(fmt.Sprintf(`{"ref":%q}`, ref))
	for i, r := range results(toolyard.Call{ID: "0", Tool: "part", Input: in},
		toolyard.Call{ID: "1", Tool: "part", Input: in}) {
		if r.IsError || r.Output != fmt.Sprint(len(long)) {
			t.Errorf("call %d: %q, %s: %s", i, r.Output, r.Code, r.Error)
		}
	}
}
