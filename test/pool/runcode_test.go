//go:build linux

package pool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// scripted is a system in which agents have accounts, with one worker that runs scripts.
type scripted struct {
	s   testenv.System
	c   *client.Client
	dir string
	// noBox says why the machine isolates nothing; then no script runs, and tests check that alone.
	noBox error
}

// runScripts starts such a system. The dispatcher runs so many batches at a time (0: its default), and the worker has
// one slot of each class: a script that needed a place of its own for a call would wait for ever.
func runScripts(t *testing.T, batches int, cfg worker.Config, more ...tool.Tool) *scripted {
	t.Helper()
	x := &scripted{s: testenv.Patient(testenv.Guarded(t)), dir: realDir(t)}
	begin(t, dispatcher.New(testenv.BrokerAs(t, x.s, platform, "/dispatcher/test"), dispatcher.Config{
		Log: testenv.Log(t), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}, RunCode: true,
		MaxBatches: batches, MaxAgentBatches: batches,
	}))
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	var caps sandbox.Capabilities
	caps, x.noBox = box.Probe(t.Context())
	tools, err := builtin.All(builtin.Options{Sandbox: box, RunCode: true})
	must.OK(t, err)
	cfg.Tools, cfg.Isolation = append(tools, more...), caps.Isolation()
	cfg.Workspaces = map[toolyard.Workspace]string{"default": x.dir}
	cfg.Slots = map[toolyard.Class]int{toolyard.ReadOnly: 1, toolyard.WriteExclusive: 1, toolyard.Unsafe: 1}
	guestWorker(t, x.s, cfg)
	x.c = guestClient(t, x.s, "ann")
	return x
}

// script is a call that runs a script.
func script(language string, lines ...string) toolyard.Call {
	input, err := json.Marshal(map[string]any{"language": language, "code": strings.Join(lines, "\n"),
		"timeout_ms": time.Minute.Milliseconds()})
	if err != nil {
		panic(err) // texts and a number always encode
	}
	return toolyard.Call{Tool: toolyard.RunCodeTool, Input: input}
}

// run runs scripts as one batch. On a machine without a sandbox it checks that none has run, and reports false.
func (x *scripted) run(t *testing.T, b toolyard.Batch) ([]toolyard.Result, bool) {
	t.Helper()
	b.Agent = "ann"
	sub := submit(t, x.c, b)
	rs := resultsOf(t, sub)
	if x.noBox != nil {
		for _, r := range rs {
			if r.Tool == toolyard.RunCodeTool && r.Code != toolyard.SetupRequired {
				t.Errorf("without a sandbox: %q %s", r.Code, r.Error)
			}
		}
		return rs, false
	}
	return rs, true
}

// child is a batch that a script of a batch's only call has made.
func (x *scripted) child(t *testing.T, parent toolyard.BatchID, n int) toolyard.BatchView {
	t.Helper()
	v, err := x.c.Batch(toolyard.BatchKey{Agent: "ann", ID: submission.ChildID(
		toolyard.Parent{Batch: parent, Attempt: 1, N: n})}).View(t.Context())
	must.OK(t, err)
	return v
}

// TestAScriptCallsTools: in either language, with calls of every class, also more at a time than may be under way, and
// although the parent's agent and the worker have no other place.
func TestAScriptCallsTools(t *testing.T) {
	t.Parallel()
	x := runScripts(t, 1, worker.Config{})
	must.OK(t, os.WriteFile(filepath.Join(x.dir, "a.txt"), []byte("one\ntwo\n"), 0o644))
	rs, ran := x.run(t, toolyard.Batch{ID: "both", Calls: []toolyard.Call{
		{Tool: "read_file", Input: []byte(`{"file_path": "a.txt"}`)},
		script("bash",
			`tool read_file '{"file_path": "a.txt"}' | grep -c o`,
			`tool write_file '{"file_path": "b.txt", "content": "grüße"}' >/dev/null`,
			`tool bash '{"command": "cat b.txt; touch c.txt"}'`,
			`tool nothing; echo "status $?"`),
	}})
	if ran && (rs[1].IsError || !strings.HasPrefix(rs[1].Output, "2\ngrüße\n") ||
		!strings.Contains(rs[1].Output, "is offered no tool \"nothing\"") ||
		!strings.HasSuffix(rs[1].Output, "status 1\n")) {
		t.Errorf("%q %s\n%s", rs[1].Code, rs[1].Error, rs[1].Output)
	}
	if _, err := os.Stat(filepath.Join(x.dir, "c.txt")); ran && err != nil {
		t.Error(err)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("the tests of scripts need python3")
	}
	rs, ran = x.run(t, toolyard.Batch{ID: "python", Calls: []toolyard.Call{script("python",
		`from toolyard import call, parallel, ToolError`,
		`out = parallel(*[("read_file", {"file_path": "a.txt"})] * 20)`,
		`print(len(out), set(o.count("o") for o in out))`,
		`try: call("run_code", code="print(1)")`,
		`except ToolError as e: print(e.code, e)`,
		`for bad in parallel(("read_file", {"file_path": "../x"}), ("bash", {}), ("no name", {})): print(bad.code)`,
	)}})
	want := "20 {2}\ninvalid_arguments options.parent: is a script; a script runs no other\n" +
		"sandbox_violation\nschema_validation_failed\ninvalid_arguments\n"
	if ran && (rs[0].Code != "" || rs[0].Output != want) {
		t.Errorf("%q %s\n%s", rs[0].Code, rs[0].Error, rs[0].Output)
	}
	if ran {
		if v := x.child(t, "python", 1); v.Status != toolyard.StatusCompleted || v.Results[0].Tool != "read_file" {
			t.Errorf("%+v", v)
		}
	}
}

// TestAScriptsCallsAreCalls: rules, the session's people and redaction hold for what a script calls, gets and prints.
func TestAScriptsCallsAreCalls(t *testing.T) {
	t.Parallel()
	deny, err := policy.ParseRules([]string{"write_file(secret/**)"})
	must.OK(t, err)
	x := runScripts(t, 1, worker.Config{Mode: policy.Bypass, Rules: policy.Rules{Deny: deny},
		Redact: func(text string) string { return strings.ReplaceAll(text, "hunter2", "[redacted]") }})
	must.OK(t, os.WriteFile(filepath.Join(x.dir, "pass"), []byte("hunter2"), 0o644))
	rs, ran := x.run(t, toolyard.Batch{ID: "rules", Options: toolyard.Options{Deny: []string{"glob"}},
		Calls: []toolyard.Call{script("bash",
			`tool write_file '{"file_path": "secret/x", "content": "1"}' 2>&1 | cut -d: -f1`,
			`tool glob '{"pattern": "*"}' 2>&1 | cut -d: -f1`,
			`tool read_file '{"file_path": "pass"}' | tee /tmp/got`,
			`grep -q hunter /tmp/got || echo the script did not see it`,
			`echo hunter""2`)}})
	if ran && rs[0].Output !=
		"permission_denied\ninvalid_arguments\n1\t[redacted]\n\nthe script did not see it\n[redacted]\n" {
		t.Errorf("%q %s\n%s", rs[0].Code, rs[0].Error, rs[0].Output)
	}
}

// TestAScriptReadsWhyACallIsRefused: also of a call that is too long to be taken, and the calls beside it are made. A
// call whose connection is closed has failed like any other.
func TestAScriptReadsWhyACallIsRefused(t *testing.T) {
	t.Parallel()
	x := runScripts(t, 1, worker.Config{Mode: policy.Bypass})
	// Each in a script of its own: where earlier calls of one have had connections, some that it holds are refused, and
	// those of later calls are not.
	rs, ran := x.run(t, toolyard.Batch{ID: "long", Calls: []toolyard.Call{script("python",
		`from toolyard import parallel`,
		`a, b = parallel(("write_file", {"file_path": "x", "content": "x" * (8 << 20)}), ("glob", {"pattern": "*"}))`,
		`print(getattr(a, "code", a), a, type(b).__name__)`), script("python",
		`from toolyard import parallel`,
		`import socket`,
		fmt.Sprintf(`held = [socket.create_connection(("127.0.0.1", %d)) for _ in range(80)]`, sandbox.ServePort),
		`print({getattr(x, "code", x) for x in parallel(*[("glob", {"pattern": "*"})] * 40)})`)}})
	if ran && (rs[0].IsError || !strings.HasPrefix(rs[0].Output, "invalid_arguments ") ||
		!strings.HasSuffix(rs[0].Output, "at most 262144 are allowed str\n")) {
		t.Errorf("%q %s\n%s", rs[0].Code, rs[0].Error, rs[0].Output)
	}
	if ran && (rs[1].IsError || rs[1].Output != "{'internal_error'}\n") {
		t.Errorf("%q %s\n%s", rs[1].Code, rs[1].Error, rs[1].Output)
	}
}

// TestAScriptsCallsEndWithIt: a call that a script waits for is canceled when the script is over, and says why.
func TestAScriptsCallsEndWithIt(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	x := runScripts(t, 1, worker.Config{}, make1(t, alone(tool.Declaration{Name: "stuck", Description: "Waits.",
		Execution: tool.InService}), stuck(began, ended)))
	if x.noBox != nil {
		return
	}
	b := submit(t, x.c, toolyard.Batch{ID: "parent", Agent: "ann",
		Calls: []toolyard.Call{script("bash", `tool stuck`)}})
	testenv.Within(t, "the call of the script", began)
	must.OK(t, b.Cancel(t.Context(), "enough"))
	if r := resultsOf(t, b)[0]; r.Code != toolyard.Canceled {
		t.Errorf("%q %s", r.Code, r.Error)
	}
	id := submission.ChildID(toolyard.Parent{Batch: "parent", Attempt: 1, N: 1})
	r := resultsOf(t, x.c.Batch(toolyard.BatchKey{Agent: "ann", ID: id}))[0]
	if r.Code != toolyard.Canceled || !strings.Contains(r.Error+r.Detail, `batch "parent", which made this call`) {
		t.Errorf("%q %s %s", r.Code, r.Error, r.Detail)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the tool was not told")
	}
}

// TestAQuestionEndsWithItsScript: a person allows a call of a script, and the script goes on. One that waits when its
// script ends is canceled, and nobody is asked about it any more.
func TestAQuestionEndsWithItsScript(t *testing.T) {
	t.Parallel()
	x := runScripts(t, 1, worker.Config{}, make1(t, reader("read"), says("ok")))
	if x.noBox != nil {
		return
	}
	b := testenv.BrokerAs(t, x.s, platform, "/test")
	parent := submit(t, x.c, toolyard.Batch{ID: "parent", Agent: "ann", Interactive: true,
		Calls:   []toolyard.Call{script("bash", `tool read`, `tool read`)},
		Options: toolyard.Options{Ask: []string{"read"}}})
	child := func(n int) toolyard.BatchKey {
		p := toolyard.Parent{Batch: "parent", Attempt: 1, N: n}
		return toolyard.BatchKey{Agent: "ann", ID: submission.ChildID(p)}
	}
	waits := func(n int) {
		t.Helper()
		testenv.Until(t, fmt.Sprint("only call ", n, " waits for a person"), func() bool {
			list, err := b.Approvals(t.Context(), "ann")
			return err == nil && len(list) == 1 && list[0].Batch == child(n).ID
		})
	}
	waits(1)
	must.OK(t, approval.Decide(t.Context(), b, child(1), 0, events.Decided{Decision: events.Approve, By: "ann"}))
	if r := resultsOf(t, x.c.Batch(child(1)))[0]; r.IsError {
		t.Errorf("%q %s", r.Code, r.Error)
	}
	waits(2)
	must.OK(t, parent.Cancel(t.Context(), "enough"))
	testenv.Until(t, "the call is canceled", func() bool {
		v, err := x.c.Batch(child(2)).View(t.Context())
		return err == nil && v.Status == toolyard.StatusCanceled
	})
	testenv.Until(t, "nobody is asked any more", func() bool {
		list, err := b.Approvals(t.Context(), "ann")
		return err == nil && len(list) == 0
	})
}

// TestWhoMayCallForAScript: nobody gets a call run by saying that a script has made it.
func TestWhoMayCallForAScript(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{RunCode: true})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("ok"))}})
	c := startClient(t, s)
	if r := results(t, c, toolyard.Batch{ID: "over", Calls: calls("read")})[0]; r.IsError {
		t.Fatal(r.Error)
	}
	parent := toolyard.Parent{Batch: "over", Attempt: 1, N: 1}
	for name, tt := range map[string]struct {
		parent toolyard.Parent
		id     toolyard.BatchID
		says   string
	}{
		"a call that is over":     {parent, "", "has ended (ok)"},
		"no such batch":           {toolyard.Parent{Batch: "none", Attempt: 1, N: 1}, "", "has no batch"},
		"no such call":            {toolyard.Parent{Batch: "over", Call: 7, Attempt: 1, N: 1}, "", "has no call 7"},
		"a number that is no one": {toolyard.Parent{Batch: "over", Attempt: 1}, "", "count from 0"},
	} {
		t.Run(name, func(t *testing.T) {
			id := tt.id
			if id == "" {
				id = submission.ChildID(tt.parent)
			}
			b, err := c.Submit(t.Context(), toolyard.Batch{ID: id, Calls: calls("read"),
				Options: toolyard.Options{Parent: &tt.parent}})
			if err == nil {
				for _, err = range b.Results(t.Context()) {
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %s", err, tt.says)
			}
		})
	}
}

// TestAPlaceForEachScript: more scripts than a worker runs at a time, whose calls need its only slot, all come to an
// end.
func TestAPlaceForEachScript(t *testing.T) {
	t.Parallel()
	x := runScripts(t, 0, worker.Config{})
	if x.noBox != nil {
		return
	}
	done := make(chan string, 3*builtin.MaxScripts)
	for n := range cap(done) {
		go func() {
			b, err := x.c.Submit(t.Context(), toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("s", n)), Agent: "ann",
				Calls: []toolyard.Call{script("bash", `tool bash '{"command": "echo x >> all; wc -l < all"}'`)}})
			if err != nil {
				done <- err.Error()
				return
			}
			text := ""
			for r, err := range b.Results(t.Context()) {
				text = fmt.Sprint(r.Error, err)
			}
			done <- text
		}()
	}
	for range cap(done) {
		if text := <-done; text != "<nil>" {
			t.Error(text)
		}
	}
}

// TestCallsOfAProgram: calls that a provider's program makes are answered before the provider stops waiting, also those
// that wait for a person. Other batches have their own time.
func TestCallsOfAProgram(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Mode: policy.Default, Tools: []tool.Tool{
		make1(t, reader("stuck"), stuck(make(chan struct{}, 9), make(chan error, 9))),
		make1(t, writer("asks"), says("done")), make1(t, reader("read"), says("ok")),
	}})
	c := startClient(t, s)
	program := toolyard.Echo(`{"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`)
	batch := func(id toolyard.BatchID, ms int64, echo toolyard.Echo, tools ...string) toolyard.Batch {
		b := toolyard.Batch{ID: id, Interactive: true, Calls: calls(tools...),
			Options: toolyard.Options{ProgramTimeoutMS: ms, TimeoutMS: time.Minute.Milliseconds()}}
		for i := range b.Calls {
			b.Calls[i].Echo = echo
		}
		return b
	}
	for _, tt := range []struct {
		b    toolyard.Batch
		want string // one of these
	}{
		{batch("late", 1_000, program, "stuck"), "deadline_exceeded"},
		{batch("asked", 1_000, program, "asks"), "approval_expired, deadline_exceeded"},
		{batch("in time", 0, program, "read"), "ok"},
		{batch("the model's", 1, toolyard.Echo(`{"caller":{"type":"direct"}}`), "read"), "ok"},
	} {
		if got := codes(results(t, c, tt.b)); !strings.Contains(tt.want, got) {
			t.Errorf("%s: %s, want %s", tt.b.ID, got, tt.want)
		}
	}
}
