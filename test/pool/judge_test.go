package pool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestOnlyTheToolsCodeCanTell: a class that is judged by the tool's code, and what happens when it cannot say.
func TestOnlyTheToolsCodeCanTell(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	type in struct {
		Mood string `json:"mood"`
	}
	ask := newTool(t, tool.Typed[in, string]{
		Declaration: tool.Declaration{Name: "ask", Description: "d",
			Class: tool.ClassRule{Ask: true, Static: toolyard.WriteExclusive}},
		Judge: func(i in) (tool.Judgement, error) {
			switch i.Mood {
			case "panic":
				panic("no")
			case "wild":
				return tool.Judgement{Class: toolyard.Unsafe}, nil
			case "calm":
				return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}, nil
			}
			return tool.Judgement{Class: toolyard.WriteExclusive}, nil
		},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) { return i.Mood, nil },
	})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{ask}})
	startDispatcher(t, s, dispatcher.Config{})
	var b toolyard.Batch
	for _, mood := range []string{"calm", "calm", "busy", "wild", "panic"} {
		input := must.JSON(t, in{mood})
		b.Calls = append(b.Calls, toolyard.Call{Tool: "ask", Input: input})
	}
	c := startClient(t, s)
	got := judged(t, func() []toolyard.Result { return results(t, c, b) }, nil)
	var classes []string
	for _, r := range got {
		classes = append(classes, string(r.Class))
	}
	if strings.Join(classes, " ") != "READ_ONLY READ_ONLY WRITE_EXCLUSIVE UNSAFE UNSAFE" ||
		codes(got) != "ok ok ok setup_required setup_required" {
		t.Errorf("classes %v, results %s", classes, codes(got))
	}
	if !got[0].WasConcurrent || got[2].WasConcurrent {
		t.Error("was_concurrent is wrong")
	}
}

// TestWhyACallIsUnsafe: what a judge does wrong makes its own call UNSAFE and no other, and the call's facts say what
// it was.
func TestWhyACallIsUnsafe(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	type in struct {
		Mood string `json:"mood"`
	}
	stuck := make(chan struct{})
	defer close(stuck)
	ask := newTool(t, tool.Typed[in, string]{
		Declaration: tool.Declaration{Name: "ask", Description: "d", Class: tool.ClassRule{Ask: true},
			Execution: tool.InService},
		Judge: func(i in) (tool.Judgement, error) {
			switch i.Mood {
			case "panic":
				panic("a fit")
			case "slow":
				<-stuck
			case "garbage":
				return tool.Judgement{Class: "PURPLE"}, nil
			case "error":
				return tool.Judgement{}, errors.New("no idea")
			case "chatty":
				return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Why: strings.Repeat("blah ", 1<<20)},
					nil
			}
			return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Why: "it is calm"}, nil
		},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) { return i.Mood, nil },
	})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{ask}})
	startDispatcher(t, s, dispatcher.Config{})
	var b toolyard.Batch
	moods := []string{"calm", "slow", "panic", "garbage", "error", "chatty", "calm"}
	for _, mood := range moods {
		input := must.JSON(t, in{mood})
		b.Calls = append(b.Calls, toolyard.Call{Tool: "ask", Input: input})
	}
	want := map[string]string{
		"calm": "judged READ_ONLY: it is calm", "slow": "judged UNSAFE: the tool's judge gave no answer within",
		"panic":   "judged UNSAFE: the tool's judge panicked: a fit",
		"garbage": `judged UNSAFE: the tool answered with the class "PURPLE"`,
		"error":   "judged UNSAFE: the tool's judge failed: no idea", "chatty": "judged READ_ONLY: blah",
	}
	c := startClient(t, s)
	slow := func(call int) bool { return moods[call] == "slow" }
	for i, r := range judged(t, func() []toolyard.Result { return results(t, c, b) }, slow) {
		said := saidOf(r)
		if !strings.HasPrefix(said, want[moods[i]]) || r.IsError {
			t.Errorf("%s: %s %s, and its facts say %.200q", moods[i], r.Class, r.Code, said)
		}
	}
}

// judged are the results of a batch whose judges were all asked in time, but for those that are slow. A machine that
// stands still for a second makes calls UNSAFE, and the batch is submitted again.
func judged(t *testing.T, submit func() []toolyard.Result, slow func(call int) bool) []toolyard.Result {
	t.Helper()
	for attempt := 1; ; attempt++ {
		got := submit()
		late := slices.IndexFunc(got, func(r toolyard.Result) bool {
			said := saidOf(r)
			return strings.Contains(said, "ask a worker of pool") ||
				strings.Contains(said, "gave no answer within") && (slow == nil || !slow(r.Index))
		})
		if late < 0 || attempt == 10 {
			return got
		}
		t.Logf("call %d was not judged in time: %s", late, saidOf(got[late]))
	}
}

// saidOf is what the facts of a call say about its class.
func saidOf(r toolyard.Result) string {
	for _, f := range r.Phases {
		if f.Phase == toolyard.PhaseValidateValues {
			return f.Detail
		}
	}
	return ""
}
