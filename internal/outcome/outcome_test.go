package outcome

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

// TestSentence over all evidence: what did not run is said not to have run, and nothing else is; what may have changed something is
// said to, and what changes nothing is not.
func TestSentence(t *testing.T) {
	for bits := range 1 << 5 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		e := Evidence{Judgement: tool.Judgement{ReadOnly: is(0), Idempotent: is(1)}, MayHaveStarted: is(2), StillRuns: is(3)}
		if is(4) {
			e.Started = 2
		}
		s := e.Sentence()
		ran := is(2) || is(3) || is(4)
		if ran != e.Ran() || strings.Contains(s, "did not run") == ran {
			t.Errorf("%+v: %q", e, s)
		}
		if want := ran && !e.Judgement.ReadOnly; strings.Contains(s, "taken effect") != want {
			t.Errorf("%+v: %q", e, s)
		}
		if strings.Contains(s, "check before") != (ran && !e.Judgement.ReadOnly && !e.Judgement.Idempotent) {
			t.Errorf("%+v: %q", e, s)
		}
		if strings.Contains(s, "may still act") != e.StillRuns {
			t.Errorf("%+v: %q", e, s)
		}
	}
}
