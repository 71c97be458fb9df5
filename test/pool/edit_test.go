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
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// personPool is a pool with a tool read, and a tool write about whose calls a person is asked.
type personPool struct {
	b    *natsbroker.Broker
	c    *client.Client
	w    *part
	runs atomic.Int64 // of write
}

func startPersonPool(t *testing.T) *personPool {
	t.Helper()
	s, p := testenv.Server(t), &personPool{}
	p.b = testenv.Broker(t, s, "/person/ann")
	startDispatcher(t, s, dispatcher.Config{})
	p.w = startWorker(t, s, worker.Config{Mode: policy.Default,
		Tools: []tool.Tool{writes(t, &p.runs), make1(t, reader("read"), says("read"))}})
	p.c = startClient(t, s)
	return p
}

// TestAnEditIsCheckedBeforeItCounts: an approver's edit that could not run is refused, and the call goes on waiting.
func TestAnEditIsCheckedBeforeItCounts(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/person/ann")
	var runs atomic.Int64
	write := writes(t, &runs)
	write.Check = func(_ context.Context, _ tool.Env, input json.RawMessage) error {
		if strings.Contains(string(input), "bad") {
			return tool.Invalid("that text is bad")
		}
		return nil
	}
	write.Specifier = tool.Specifier{Command: "text"}
	startDispatcher(t, s, dispatcher.Config{})
	deny, err := policy.ParseRules([]string{"write(rm:*)"})
	must.OK(t, err)
	startWorker(t, s, worker.Config{Mode: policy.Default, Tools: []tool.Tool{write}, Rules: policy.Rules{Deny: deny}})
	c := startClient(t, s)
	sub := submit(t, c, interactive("edits", call("write", `{"text":"one"}`)))
	id := asked(t, b, "edits", 1)[0].ID
	for input, want := range map[string]string{
		`{"text":1}`: "text", `{"nope":"x"}`: "nope", `{}`: "text", `{"text":"bad"}`: "that text is bad",
		`{"text":"rm x"}`:                  "write(rm:*)",
		`{"text":"a [redacted: TOKEN] b"}`: "mark of a secret", `{"text":`: "",
	} {
		err := c.Decide(t.Context(), id,
			client.Decision{Verdict: client.Allow, By: "ann", Input: json.RawMessage(input)})
		if bad := new(toolyard.InputError); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("an edit to %s: %v, want an input error with %q", input, err, want)
		}
	}
	if list, err := b.Approvals(t.Context(), "edits"); err != nil || len(list) != 1 || runs.Load() != 0 {
		t.Fatalf("after edits that were refused %v waits (%v), %d ran", list, err, runs.Load())
	}
	must.OK(t, c.Decide(t.Context(), id, client.Decision{Verdict: client.Allow, By: "ann",
		Input: json.RawMessage(`{"text":"two"}`)}))
	if r := collect(t, t.Context(), sub); r[0].Code != "" || r[0].Output != "wrote two" {
		t.Errorf("the call with the edit ended as %+v", r[0])
	}
}

// TestAnEditThatNobodyCanCheck: without a worker nothing is known of an edit, so it does not count; what was shown can
// be approved.
func TestAnEditThatNobodyCanCheck(t *testing.T) {
	t.Parallel()
	p := startPersonPool(t)
	b, c := p.b, p.c
	submit(t, c, interactive("alone", call("write", `{"text":"one"}`)))
	id := asked(t, b, "alone", 1)[0].ID
	p.w.end(t)
	if err := c.Decide(t.Context(), id, client.Decision{Verdict: client.Allow, By: "ann",
		Input: json.RawMessage(`{"text":"two"}`)}); !errors.Is(err, broker.ErrUnchecked) {
		t.Errorf("an edit that nobody has checked: %v", err)
	}
	asked(t, b, "alone", 1)
	if err := c.Decide(t.Context(), id, client.Decision{Verdict: client.Allow, By: "ann"}); err != nil {
		t.Error(err)
	}
}

// TestANewBatchSupersedesWhatWaits: with the option, the calls of the session's other batches that wait for a person
// end, and the model is told.
func TestANewBatchSupersedesWhatWaits(t *testing.T) {
	t.Parallel()
	p := startPersonPool(t)
	b, c := p.b, p.c
	waits := submit(t, c, interactive("goes", call("write", `{"text":"one"}`)))
	other := interactive("goes", call("write", `{"text":"two"}`))
	other.Session = "another"
	submit(t, c, other)
	asked(t, b, "goes", 2)
	plain := submit(t, c, interactive("goes", call("read", `{}`)))
	collect(t, t.Context(), plain)
	asked(t, b, "goes", 2) // without the option it waits on
	next := interactive("goes", call("read", `{}`))
	next.Options.Supersede = true
	submit(t, c, next)
	r := collect(t, t.Context(), waits)[0]
	if r.Code != toolyard.ApprovalExpired || !strings.Contains(r.Error, "session went on") {
		t.Errorf("what waited ended as %q: %s", r.Code, r.Error)
	}
	if list := asked(t, b, "goes", 1); list[0].Session != "another" || p.runs.Load() != 0 {
		t.Errorf("of the other session waits %+v; %d ran", list, p.runs.Load())
	}
}

// TestRepair: with the option, inputs that are no valid JSON run as what they can only mean, and the model and the log
// are told. What has several readings ends as without the option.
func TestRepair(t *testing.T) {
	t.Parallel()
	p := startPersonPool(t)
	b, c := p.b, p.c
	given := []toolyard.Call{call("read", `"{}"`), call("write", `"{'text': 'one',}"`), call("write", `"{'text': 'tw"`),
		call("write", `"{'no_text': 'three'}"`)}
	for _, repairs := range []bool{true, false} {
		sub := interactive("repairs", given...)
		sub.Options.Repair, sub.Options.OnError = repairs, toolyard.Continue
		under := submit(t, c, sub)
		if repairs {
			waiting := asked(t, b, "repairs", 1)[0]
			if string(waiting.Input) != `{"text":"one"}` {
				t.Errorf("a person is asked about %s", waiting.Input)
			}
			must.OK(t, c.Decide(t.Context(), waiting.ID, client.Decision{Verdict: client.Allow, By: "ann"}))
		}
		results := collect(t, t.Context(), under)
		for i, want := range []toolyard.Code{"", "", toolyard.SchemaValidationFailed, toolyard.SchemaValidationFailed} {
			r := results[i]
			mended := repairs && want == ""
			if !repairs {
				want = toolyard.SchemaValidationFailed
			}
			if r.Code != want {
				t.Errorf("with repair %t call %d ended as %q: %s", repairs, i, r.Code, r.Error)
			}
			said := strings.Contains(r.Output, "was mended before the call ran (")
			noted := slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool {
				return f.Phase == toolyard.PhaseParseSchema && strings.Contains(f.Detail, "the input was mended: ")
			})
			if said != mended || noted != mended {
				t.Errorf("with repair %t call %d: the model is told %t, the log %t:\n%s", repairs, i, said, noted, r.Output)
			}
		}
	}
	if p.runs.Load() != 1 {
		t.Errorf("%d writes ran, want 1", p.runs.Load())
	}
}
