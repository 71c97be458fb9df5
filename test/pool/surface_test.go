package pool

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// searchTool is the built-in one.
func searchTool(t *testing.T) tool.Tool {
	t.Helper()
	all, err := builtin.All(builtin.Options{})
	must.OK(t, err)
	i := slices.IndexFunc(all, func(t tool.Tool) bool { return t.Name == "tool_search" })
	if i < 0 {
		t.Fatal("there is no tool_search")
	}
	return all[i]
}

func deferred(d tool.Declaration) tool.Declaration { d.ShouldDefer = true; return d }

// TestDeferredToolsAreSearchedAndLoaded: a search in one batch makes a tool callable in the next ones of its session,
// and of no other.
func TestDeferredToolsAreSearchedAndLoaded(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	rare, denied := deferred(reader("tracker.create_issue")), deferred(reader("tracker.delete_issue"))
	rare.Description = "Opens an issue."
	always := deferred(reader("always"))
	always.AlwaysLoad = true
	rules, err := policy.ParseRules([]string{"tracker.delete_issue"})
	must.OK(t, err)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		searchTool(t), make1(t, rare, says("opened")), make1(t, denied, says("deleted")),
		make1(t, deferred(reader("mail")), says("sent")), make1(t, always, says("here")),
	}})
	// Two dispatchers: what a session has loaded is nobody's memory.
	for range 2 {
		startDispatcher(t, s, dispatcher.Config{Planner: dispatcher.Planner{Rules: policy.Rules{Deny: rules}}})
	}
	c := startClient(t, s)
	ask := func(session toolyard.Session, calls ...toolyard.Call) []toolyard.Result {
		return results(t, c, toolyard.Batch{Session: session, Calls: calls})
	}
	// Not loaded: it says so, also under the name that providers get, and also beside the search that loads it.
	got := ask("s", toolyard.Call{Tool: "tracker_create_issue"},
		toolyard.Call{Tool: "tool_search", Input: json.RawMessage(`{"query":"issue"}`)},
		toolyard.Call{Tool: "tracker.create_issue"}, toolyard.Call{Tool: "always"},
		toolyard.Call{Tool: "tracker.delete_issue"})
	if codes(got) != "schema_not_loaded ok schema_not_loaded ok blocked_tool" {
		t.Fatalf("the results are %s: %s", codes(got), got[1].Error)
	}
	if !strings.Contains(got[0].Error, "tool_search") {
		t.Errorf("the model is not told what to do: %s", got[0].Error)
	}
	want := []toolyard.Content{{Type: toolyard.ContentTool, Name: "tracker.create_issue",
		WireName: "tracker_create_issue", Description: "Opens an issue.", Schema: rare.InputSchema}}
	if part := got[1].Content; len(part) != 1 || len(part[0].Schema) == 0 || part[0].Name != want[0].Name ||
		part[0].WireName != want[0].WireName || part[0].Description != want[0].Description {
		t.Errorf("the search found %+v", got[1].Content)
	}
	if strings.Contains(got[1].Output, "delete") {
		t.Errorf("the search shows what a rule has taken out: %s", got[1].Output)
	}
	if got := ask("s", toolyard.Call{Tool: "tracker_create_issue"},
		toolyard.Call{Tool: "mail"}); codes(got) != "ok schema_not_loaded" || got[0].Output != "opened" {
		t.Errorf("in the next batch: %s", codes(got))
	}
	if got := ask("other", toolyard.Call{Tool: "tracker.create_issue"}); codes(got) != "schema_not_loaded" {
		t.Errorf("in another session: %s", codes(got))
	}
	if v, err := c.Session(t.Context(), toolyard.DefaultAgent, "s"); err != nil ||
		!reflect.DeepEqual(v.Loaded, []string{"tracker.create_issue"}) {
		t.Errorf("the session has loaded %q, %v", v.Loaded, err)
	}
}

// TestANameThatTwoPoolsOfferIsSeen: in the dispatcher's log and in the list of workers, and once.
func TestANameThatTwoPoolsOfferIsSeen(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var log syncBuffer
	d := dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), dispatcher.Config{
		Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		// known, and offered by a's worker alone
		Base: []registry.Entry{{Declaration: reader("alone"), Origin: registry.Toolset, Pool: "default"}},
	})
	begin(t, d)
	other := reader("search")
	other.Description = "Another search."
	startWorker(t, s, worker.Config{Pool: "a", Tools: []tool.Tool{make1(t, reader("search"), says("a")),
		make1(t, reader("alone"), says("a"))}})
	startWorker(t, s, worker.Config{Pool: "b", Tools: []tool.Tool{make1(t, other, says("b"))}})
	c := startClient(t, s)
	if got := codes(results(t, c, toolyard.Batch{Calls: calls("search", "alone")})); got != "ok ok" {
		t.Errorf("the batch: %s", got)
	}
	const want = `"search" is offered by pool "a" (toolset) and pool "b" (toolset), with different declarations; a batch sees one of them`
	live, err := c.Workers(t.Context())
	if err != nil || len(live) != 2 {
		t.Fatalf("%d workers, %v", len(live), err)
	}
	for _, w := range live {
		if !slices.Equal(w.Conflicts, []string{want}) {
			t.Errorf("the worker of pool %s has the conflicts %q", w.Pool, w.Conflicts)
		}
	}
	for end := time.Now().Add(30 * time.Second); strings.Count(log.String(),
		"offered more than once") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log has nothing of it:\n%s", log.String())
		}
	}
	if n := strings.Count(log.String(), "offered more than once"); n != 1 {
		t.Errorf("the log has it %d times", n)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestTheNameThatWasUsedStandsInTheFacts: an alias, and a name that a provider got for the tool's own.
func TestTheNameThatWasUsedStandsInTheFacts(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	renamed := reader("stop.task")
	renamed.Aliases = []string{"kill_shell"}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, renamed, says("stopped"))}})
	startDispatcher(t, s, dispatcher.Config{})
	b := toolyard.Batch{Calls: calls("kill_shell", "stop_task", "stop.task")}
	want := []string{`"kill_shell" is an alias of "stop.task"`,
		`"stop_task" is the name that a provider got for "stop.task"`, ""}
	for i, r := range results(t, startClient(t, s), b) {
		if r.IsError || r.Tool != "stop.task" || r.Phases[0].Phase != toolyard.PhaseResolveTool ||
			r.Phases[0].Detail != want[i] {
			t.Errorf("call %d: %q %q, %+v; want %q", i, r.Tool, r.Code, r.Phases[0], want[i])
		}
	}
}

// TestEnabledIsAskedBetweenBatches: a tool that is disabled is unknown to the next batch, and runs for one that was
// planned before.
func TestEnabledIsAskedBetweenBatches(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var on atomic.Bool
	on.Store(true)
	began, release := make(chan struct{}), make(chan struct{})
	flag := make1(t, reader("flag"), says("flown"))
	flag.Enabled = on.Load
	startWorker(t, s, worker.Config{Tools: []tool.Tool{flag,
		make1(t, writer("hold"), func(ctx context.Context, _ tool.Env) (string, error) {
			close(began)
			<-release
			return "", nil
		})}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	before, err := c.Submit(ctx, toolyard.Batch{Calls: calls("hold", "flag")})
	must.OK(t, err)
	testenv.Within(t, "the first call began", began)
	on.Store(false)
	b := testenv.Broker(t, s, "/test")
	for !gone(t, ctx, b, "flag") { // with a heartbeat
		time.Sleep(20 * time.Millisecond)
	}
	testenv.Until(t, "the dispatcher has heard that the tool is disabled", func() bool {
		return codes(results(t, c, toolyard.Batch{Workspace: "other", Calls: calls("flag")})) == "unknown_tool"
	})
	close(release)
	if got := codes(collect(t, ctx, before)); got != "ok ok" {
		t.Errorf("the batch that saw it: %s", got)
	}
}

// gone reports whether no live worker offers a tool.
func gone(t *testing.T, ctx context.Context, b *natsbroker.Broker, name string) bool {
	t.Helper()
	live, err := b.Workers(ctx)
	must.OK(t, err)
	for _, w := range live {
		stored, err := b.Surface(ctx, w.Toolset)
		must.OK(t, err)
		surface, err := registry.Decode(stored)
		must.OK(t, err)
		if slices.ContainsFunc(surface.Tools, func(e registry.Entry) bool { return e.Name == name }) {
			return false
		}
	}
	return true
}

// TestContentAndEchoTravel: parts, data and echo come back whole through queue, log and reply; every end of a call has
// its echo, whoever makes it, also after its dispatcher was replaced.
func TestContentAndEchoTravel(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	png := append([]byte("\x89PNG"), make([]byte, 100<<10)...)
	parts := []toolyard.Content{{Type: toolyard.ContentText, Text: "see"},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Data: []byte("\x89small")},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Data: png}}
	shot := reader("shot")
	shot.InputSchema, shot.OutputSchema = json.RawMessage(`{"type":"object"}`),
		json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		{Declaration: shot, Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			return tool.Output{Content: parts, Structured: json.RawMessage(`{"n":1}`)}, nil
		}},
		make1(t, writer("wait"), stuck(began, ended)), make1(t, writer("never"), says("ran")),
	}})
	first := startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	echo := func(i string) toolyard.Echo { return toolyard.Echo(`{"namespace":"n` + i + `"}`) }
	b := toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "shot", Echo: echo("0")}, {Tool: "no", Echo: echo("1")}, {Tool: "wait", Echo: echo("2")},
		{Tool: "never", Echo: echo("3")},
	}}
	stream, err := c.Open(ctx, b)
	must.OK(t, err)
	testenv.Within(t, "the third call began", began)
	first.end(t)
	startDispatcher(t, s, dispatcher.Config{}) // folds the log, and ends the rest
	must.OK(t, stream.Append(ctx, toolyard.Call{Tool: "never", Echo: echo("4")}))
	must.OK(t, stream.Close(ctx))
	must.OK(t, stream.Cancel(ctx, "enough"))
	got := collect(t, ctx, stream.Batch)
	if codes(got) != "ok unknown_tool canceled canceled canceled" {
		t.Fatalf("the results are %s", codes(got))
	}
	for i, r := range got {
		if string(r.Echo) != string(echo(string(rune('0'+i)))) {
			t.Errorf("result %d, %q, has the echo %s", i, r.Code, r.Echo)
		}
	}
	r := got[0]
	if string(r.Structured) != `{"n":1}` || len(r.Content) != 3 || !reflect.DeepEqual(r.Content[:2], parts[:2]) ||
		r.Content[2].Data != nil || r.Content[2].Size != int64(len(png)) {
		t.Fatalf("structured %s, parts %+v", r.Structured, r.Content)
	}
	if err := stream.Fill(ctx, got); err != nil || !reflect.DeepEqual(got[0].Content[2].Data, png) {
		t.Errorf("the image is not there: %v", err)
	}
}

// TestCallsThatAreRefusedKeepTheirEcho: calls that went past the client's checks into the log.
func TestCallsThatAreRefusedKeepTheirEcho(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	stream, err := startClient(t, s).Open(t.Context(), toolyard.Batch{Calls: []toolyard.Call{{ID: "1", Tool: "read"}}})
	must.OK(t, err)
	b, ctx := testenv.Broker(t, s, "/test"), t.Context()
	large := toolyard.Echo(`{"a":"` + strings.Repeat("x", toolyard.MaxEchoBytes) + `"}`)
	seq, err := b.Input(ctx, stream.Key(), 0, events.Appended{Calls: []toolyard.Call{
		{ID: "1", Tool: "read", Echo: toolyard.Echo(`{"n":1}`)}, {ID: "2", Tool: "read", Echo: large},
		{ID: "3", Tool: "read", Echo: toolyard.Echo(`[1]`)},
		{ID: "4", Tool: "read", Echo: toolyard.Echo(`{"n":4}`)},
	}})
	must.OK(t, err)
	if _, err := b.Input(ctx, stream.Key(), seq, events.Closed{By: "test"}); err != nil {
		t.Fatal(err)
	}
	got := collect(t, ctx, stream.Batch)
	if codes(got) != "ok invalid_arguments invalid_arguments invalid_arguments ok" {
		t.Fatalf("the results are %s", codes(got))
	}
	for i, want := range []string{"", `{"n":1}`, "", "", `{"n":4}`} {
		if string(got[i].Echo) != want {
			t.Errorf("result %d has the echo %.50s, want %q", i, got[i].Echo, want)
		}
	}
	if !strings.Contains(got[2].Error, "echo: has 16392 bytes") {
		t.Errorf("%s", got[2].Error)
	}
}

// TestAgentsHaveViews: one registry, and each agent sees its own part of it, by calls and by search. A batch can narrow
// it further.
func TestAgentsHaveViews(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		searchTool(t), make1(t, reader("read"), says("x")), make1(t, writer("write"), says("x")),
		make1(t, deferred(reader("secret_report")), says("x")),
	}})
	views, err := registry.ParseViews([]string{"reviewer=read,tool_search"})
	must.OK(t, err)
	startDispatcher(t, s, dispatcher.Config{Planner: dispatcher.Planner{Views: views}})
	c := startClient(t, s)
	ask := toolyard.Call{Tool: "tool_search", Input: json.RawMessage(`{"query":"secret report"}`)}
	for agent, want := range map[toolyard.Agent]string{"reviewer": "ok blocked_tool ok blocked_tool",
		"builder": "ok ok ok schema_not_loaded"} {
		got := results(t, c, toolyard.Batch{Agent: agent,
			Calls: []toolyard.Call{{Tool: "read"}, {Tool: "write"}, ask, {Tool: "secret_report"}}})
		if codes(got) != want {
			t.Errorf("%s: %s, want %s", agent, codes(got), want)
		}
		if found := strings.Contains(got[2].Output, "secret_report:"); found != (agent == "builder") {
			t.Errorf("%s searched and got: %s", agent, got[2].Output)
		}
	}
	got := results(t, c, toolyard.Batch{Agent: "reviewer", Calls: calls("read"),
		Options: toolyard.Options{Deny: []string{"read"}}})
	if codes(got) != "blocked_tool" {
		t.Errorf("a narrower batch: %s", codes(got))
	}
}

// TestEveryToolButAListIsDeferred: an operator's switch, for sessions of many tools whose authors defer none.
func TestEveryToolButAListIsDeferred(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	always := reader("always")
	always.AlwaysLoad = true
	startWorker(t, s, worker.Config{Tools: []tool.Tool{searchTool(t), make1(t, reader("keep.this"), says("kept")),
		make1(t, reader("rare"), says("rare")), make1(t, always, says("here"))}})
	startDispatcher(t, s, dispatcher.Config{Planner: dispatcher.Planner{DeferAllBut: []string{"keep*"}}})
	c := startClient(t, s)
	ask := func(calls ...toolyard.Call) []toolyard.Result {
		return results(t, c, toolyard.Batch{Session: "s", Calls: calls})
	}
	if got := codes(ask(calls("keep.this", "always", "rare")...)); got != "ok ok schema_not_loaded" {
		t.Fatalf("at first: %s", got)
	}
	found := ask(toolyard.Call{Tool: "tool_search", Input: json.RawMessage(`{"query":"select:rare"}`)})
	if codes(found) != "ok" || len(found[0].Content) != 1 {
		t.Fatalf("the search: %s %+v", codes(found), found[0].Content)
	}
	if got := codes(ask(calls("rare")...)); got != "ok" {
		t.Errorf("when it is loaded: %s", got)
	}
}

// TestNothingIsDeferredThatCannotBeLoaded: without tool_search there is no way back.
func TestNothingIsDeferredThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("rare"), says("rare"))}})
	startDispatcher(t, s, dispatcher.Config{Planner: dispatcher.Planner{DeferAllBut: []string{"other"}}})
	if got := codes(results(t, startClient(t, s), toolyard.Batch{Calls: calls("rare")})); got != "ok" {
		t.Errorf("a pool without tool_search: %s", got)
	}
}
