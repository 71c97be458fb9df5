package pool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

// fixer is a worker's own repair, and what it was asked.
type fixer struct {
	mu    sync.Mutex
	asked []string
}

func (f *fixer) repair(_ context.Context, m public.Malformed) (public.Repaired, error) {
	f.mu.Lock()
	f.asked = append(f.asked, string(m.Input))
	f.mu.Unlock()
	var in struct{ Txt string }
	if err := json.Unmarshal(m.Input, &in); err != nil {
		return public.Repaired{}, err
	}
	if !strings.Contains(m.Problem, "text") || !strings.Contains(string(m.InputSchema), `"text"`) {
		return public.Repaired{}, errors.New("the problem or the schema is not told")
	}
	switch in.Txt {
	case "nothing":
		return public.Repaired{}, nil
	case "panic":
		panic("a fit")
	case "misfit":
		return public.Repaired{Input: json.RawMessage(`{"no": "text"}`)}, nil
	case "banned":
		return public.Repaired{Input: json.RawMessage(`{"text": "a banned word"}`)}, nil
	case "garbage":
		return public.Repaired{Input: json.RawMessage(`{"text": "one", "text": "two"}`)}, nil
	}
	out, err := json.Marshal(map[string]string{"text": in.Txt})
	return public.Repaired{Input: out, Note: "txt is called text"}, err
}

// startFixer starts a dispatcher, and a program whose worker has a repair of its own.
func startFixer(t *testing.T, s *natsd.Server, f *fixer) *client.Client {
	t.Helper()
	startDispatcher(t, s, dispatcher.Config{Planner: dispatcher.Planner{
		CheckCalls: func(_ int, calls []toolyard.Call) error {
			if slices.ContainsFunc(calls, func(c toolyard.Call) bool {
				return strings.Contains(string(c.Input), "a banned word")
			}) {
				return errors.New("it is refused")
			}
			return nil
		}}})
	note := newTool(t, tool.Typed[text, string]{
		Declaration: alone(tool.Declaration{Name: "note", Description: "d",
			Class: tool.ClassRule{Ask: true, Static: toolyard.WriteExclusive}}),
		Judge: func(in text) (tool.Judgement, error) {
			if in.Text == "calm" {
				return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}, nil
			}
			return tool.Judgement{Class: toolyard.WriteExclusive}, nil
		},
		Run: func(_ context.Context, _ tool.Env, in text) (string, error) { return "noted " + in.Text, nil },
	})
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- public.Run(ctx, testenv.Conn(t, s), public.Options{Tools: []tool.Tool{note}, Mode: public.Bypass,
			Repair: f.repair, Log: testenv.Log(t), Ready: func(string) { close(ready) }})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-ready
	return startClient(t, s)
}

// TestAnOperatorsRepair: with the option, a program's own repair mends what Toolyard's cannot. The call is judged and
// runs with the new input, and the model and the log are told. A repair that breaks, or makes what does not fit or is
// refused, changes nothing.
func TestAnOperatorsRepair(t *testing.T) {
	t.Parallel()
	f := &fixer{}
	c := startFixer(t, testenv.Server(t), f)
	given := []toolyard.Call{call("note", `{"txt":"calm"}`), call("note", `{"txt":"busy"}`),
		call("note", `"{'text': 'six',}"`), call("note", `{"text":"good"}`), call("note", `"no object"`)}
	for _, broken := range []string{"nothing", "panic", "misfit", "garbage", "banned"} {
		given = append(given, call("note", `{"txt":"`+broken+`"}`))
	}
	for _, repairs := range []bool{true, false} {
		got := judged(t, func() []toolyard.Result {
			f.asked = nil
			return results(t, c, toolyard.Batch{Calls: given,
				Options: toolyard.Options{Repair: repairs, OnError: toolyard.Continue}})
		}, nil)
		for i, r := range got {
			runs := i == 3 || repairs && i < 3
			if runs != (r.Code == toolyard.OK) || !runs && r.Code != toolyard.SchemaValidationFailed {
				t.Errorf("with repair %t call %d ended as %q: %s", repairs, i, r.Code, r.Error)
			}
			const what = "by a repair of this installation: txt is called text"
			told := strings.Contains(r.Output, "mended before the call ran ("+what+")")
			noted := slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool {
				return f.Phase == toolyard.PhaseParseSchema && f.Detail == "the input was mended: "+what
			})
			if byIt := repairs && i < 2; told != byIt || noted != byIt {
				t.Errorf("with repair %t call %d: the model is told %t, the log %t: %+v", repairs, i, told, noted, r)
			}
		}
		if want := 8; repairs && len(f.asked) != want || !repairs && len(f.asked) != 0 {
			t.Errorf("with repair %t it was asked about %q", repairs, f.asked)
		}
		if repairs && (!strings.HasPrefix(got[0].Output, "noted calm") || got[0].Class != toolyard.ReadOnly ||
			got[1].Class != toolyard.WriteExclusive) {
			t.Errorf("the calls were judged %s and %s: %s", got[0].Class, got[1].Class, got[0].Output)
		}
	}
}

// TestARepairInAnOpenBatch: calls that are appended are repaired too, but none that cannot be accepted for another
// reason.
func TestARepairInAnOpenBatch(t *testing.T) {
	t.Parallel()
	f, s := &fixer{}, testenv.Server(t)
	stream, err := startFixer(t, s, f).Open(t.Context(), toolyard.Batch{
		Options: toolyard.Options{Repair: true, OnError: toolyard.Continue}})
	must.OK(t, err)
	same := call("note", `{"txt":"calm"}`)
	same.ID = "one"
	// Our clients would refuse the second.
	if _, err := testenv.Broker(t, s, "/agent/test").Input(t.Context(), stream.Key(), 0,
		events.Appended{Calls: []toolyard.Call{same, same}}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, stream.Close(t.Context()))
	var got []toolyard.Result
	for r, err := range stream.Results(t.Context()) {
		must.OK(t, err)
		got = append(got, r)
	}
	if codes(got) != "ok schema_validation_failed" || len(f.asked) != 1 {
		t.Errorf("the results are %s (%+v), and it was asked about %q", codes(got), got, f.asked)
	}
}
