package pool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestADryRunDoesNothing: each call is answered with what would happen to it, the calls of an open batch too; no tool
// and no hook runs, and nobody is asked.
func TestADryRunDoesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var runs, hooked atomic.Int64
	startDispatcher(t, s, dispatcher.Config{
		AfterBatch: func(context.Context, hooks.BatchInput) (*toolyard.Notice, error) {
			hooked.Add(1)
			return nil, errors.New("a hook ran")
		}})
	read := reader("read")
	read.RequiresPermission, read.InputSchema = new(bool), json.RawMessage(`{"type":"object","additionalProperties":false}`)
	ran := func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
		runs.Add(1)
		return tool.Output{Text: "ran"}, nil
	}
	counted, err := tool.Raw(tool.Tool{Declaration: read, Run: ran})
	must.OK(t, err)
	write := writes(t, &runs)
	write.Diff = func(context.Context, tool.Env, json.RawMessage) (string, error) { return "-old\n+new\n", nil }
	pre, err := hooks.New(hooks.Options{Funcs: []hooks.Func{{Event: hooks.PreToolUse, Name: "counts",
		Run: func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
			hooked.Add(1)
			return pipeline.HookVerdict{Block: true}, nil
		}}}})
	must.OK(t, err)
	startWorker(t, s, worker.Config{Mode: policy.Default, Hooks: pre, Tools: []tool.Tool{write, counted}})
	c := startClient(t, s)
	given := []toolyard.Call{call("read", `{}`), call("write", `{"text":"one"}`), call("read", `{"no":1}`),
		call("nobody_has_it", `{}`), call("write", `{"text":"two"}`)}
	for _, open := range []bool{false, true} {
		sub := interactive("dry", slices.Clone(given)...)
		sub.Options.DryRun = true
		var under *client.Batch
		if open {
			sub.ID, sub.Calls = "dry-open", []toolyard.Call{}
			stream, err := c.Open(t.Context(), sub)
			must.OK(t, err)
			more := slices.Clone(given)
			toolyard.NormalizeCalls(more, 0)
			must.OK(t, errors.Join(stream.Append(t.Context(), more...), stream.Close(t.Context())))
			under = stream.Batch
		} else if under, err = c.Submit(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		results := collect(t, t.Context(), under)
		if len(results) != len(given) {
			t.Fatalf("%d results", len(results))
		}
		for i, want := range []struct {
			code  toolyard.Code
			would string
		}{{"", "run"}, {"", "ask"}, {toolyard.SchemaValidationFailed, ""}, {toolyard.UnknownTool, ""}, {"", "ask"}} {
			r := results[i]
			var out pipeline.DryRunOutput
			if len(r.Structured) > 0 {
				must.OK(t, json.Unmarshal(r.Structured, &out))
			}
			if r.Code != want.code || out.Would != want.would || r.Attempts != 0 || r.Index != i {
				t.Errorf("call %d (open %t): %q %q, attempts %d: %s%s", i, open, r.Code, out.Would, r.Attempts,
					r.Output, r.Error)
			}
			if want.would == "ask" && (out.Diff != "-old\n+new\n" || !strings.Contains(r.Output, "+new")) {
				t.Errorf("call %d does not show what would change: %s", i, r.Output)
			}
		}
		if list, err := c.Approvals(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("somebody is asked about %+v, %v", list, err)
		}
	}
	if runs.Load() != 0 || hooked.Load() != 0 {
		t.Errorf("%d calls and %d hooks ran", runs.Load(), hooked.Load())
	}
}
