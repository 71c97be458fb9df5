package batch

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAnAttemptThatWasNotStarted takes none from those in which a call may be started, and only so many may be in vain.
func TestAnAttemptThatWasNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		attempts string // of each attempt, whether it was started (s) or not (n)
		over     bool
	}{
		"three that were started":             {"sss", true},
		"the third was not started":           {"ssn", false},
		"and the fourth was":                  {"ssns", true},
		"the first two were not started":      {"nns", false},
		"none was started, and more may come": {"nnnnn", false},
		"none was started":                    {"nnnnnn", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			p.do([]string{"plan", "i"})
			p.grant(0)
			for i, a := range c.attempts {
				p.do([]string{"claim", "0", "w1"})
				p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.AttemptFailed{Attempt: i + 1,
					NotStarted: a == 'n', Code: toolyard.OutcomeUnknown}})})
				p.do([]string{"after", "20s"})
			}
			got := p.m.State().Calls[0]
			if over := got.Status == Finished; over != c.over ||
				over && got.Result.Code != toolyard.DependencyUnavailable {
				t.Errorf("behind %q the call is %s: %+v", c.attempts, got.Status, got.Result)
			}
		})
	}
}
