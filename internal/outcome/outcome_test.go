package outcome

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestSentence over all evidence: what did not run is said not to have run, and nothing else is; what may have changed
// something is said to, and what changes nothing is not.
func TestSentence(t *testing.T) {
	for bits := range 1 << 6 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		e := Evidence{Judgement: tool.Judgement{ReadOnly: is(0), Idempotent: is(1)}, MayHaveStarted: is(2),
			StillRuns: is(3)}
		if is(4) {
			e.Started = 2
		}
		if is(5) { // its tool finds what the same call has started, and not what another one has
			e.Tool = toolyard.BackgroundStart
		}
		s := e.Sentence()
		ran := is(2) || is(3) || is(4)
		if ran != e.Ran() || strings.Contains(s, "did not run") == ran {
			t.Errorf("%+v: %q", e, s)
		}
		if want := ran && !e.Judgement.ReadOnly; strings.Contains(s, "taken effect") != want {
			t.Errorf("%+v: %q", e, s)
		}
		// also of an idempotent tool: it may be so by the call's key, and the model's next call has another one
		if strings.Contains(s, "check before") != (ran && !e.Judgement.ReadOnly) {
			t.Errorf("%+v: %q", e, s)
		}
		if strings.Contains(s, "may still act") != e.StillRuns {
			t.Errorf("%+v: %q", e, s)
		}
	}
}

// TestEnded: the facts end with the phase that failed and the terminal one, and those that were handed in stay as they
// are.
func TestEnded(t *testing.T) {
	before := make([]toolyard.Fact, 1, 8) // room for more, which is not ours
	before[0] = toolyard.Fact{Phase: toolyard.PhaseResolveTool, Outcome: toolyard.OutcomeOK}
	r := Ended(toolyard.Result{CallID: "a", Code: toolyard.SetupRequired}, toolyard.PhaseValidateValues, "why",
		before...)
	want := []toolyard.Fact{
		before[0],
		{Phase: toolyard.PhaseValidateValues, Outcome: toolyard.OutcomeFailed, Code: toolyard.SetupRequired,
			Detail: "why"},
		{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
	}
	if !r.IsError || r.CallID != "a" || !slices.Equal(r.Phases, want) {
		t.Errorf("%+v", r)
	}
	if more := before[:2]; more[1] != (toolyard.Fact{}) {
		t.Errorf("what was handed in has become %+v", more)
	}
}
