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

// TestALostAttemptBehindSomeThatWereNotStarted: when a worker is lost, only the attempts that were started count beside
// its own, for whether the call runs again and for what its result says.
func TestALostAttemptBehindSomeThatWereNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		kind     string // of call, in a trace
		attempts string // as above, and the worker is lost in one more
		over     int    // with how many attempts it ends then; 0 if it runs again
	}{
		"two were not started":              {"i", "nn", 0},
		"one was started":                   {"i", "nsn", 0},
		"two were started":                  {"i", "nsns", 3},
		"nothing more may be claimed":       {"i", "nnnnn", 1},
		"two were not started of a write":   {"w", "nn", 1},
		"the first is lost of a write":      {"w", "", 1},
		"two were started, and no others":   {"i", "ss", 3},
		"the first is lost, and may repeat": {"i", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			p.do([]string{"plan", c.kind})
			p.grant(0)
			for n, a := range c.attempts {
				p.do([]string{"claim", "0", "w1"})
				p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.AttemptFailed{Attempt: n + 1,
					NotStarted: a == 'n', Code: toolyard.DependencyUnavailable}})})
				p.do([]string{"after", "20s"})
			}
			p.do([]string{"claim", "0", "w1"})
			p.do([]string{"observe", "dropped=0"})
			got := p.m.State().Calls[0]
			switch {
			case c.over == 0 && got.Status != Retrying:
				t.Errorf("behind %q the call is %s: %+v", c.attempts, got.Status, got.Result)
			case c.over > 0 && (got.Status != Finished || got.Result.Code != toolyard.OutcomeUnknown ||
				got.Result.Attempts != c.over):
				t.Errorf("behind %q the call is %s, of %d attempts: %+v", c.attempts, got.Status, c.over, got.Result)
			}
		})
	}
}

// TestAnAttemptBehindQuestions: a tool that has asked a person again and again, and got its answers, was not tried in
// vain. A worker that gives the call up before the tool goes on takes nothing of that: another one runs it.
func TestAnAttemptBehindQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		questions int
		attempts  string // behind them, as above
		over      bool
	}{
		"two":                           {2, "n", false},
		"three":                         {3, "n", false},
		"as many as there may be":       {7, "nn", false},
		"and none of many more goes on": {7, "nnnnnn", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			p.do([]string{"plan", "w"})
			p.grant(0)
			for range c.questions {
				p.do([]string{"claim", "0", "w1"})
				p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.Waiting{Worker: "w1", InputSHA256: "hash",
					Attempt: p.m.State().Calls[0].Attempt, Form: &events.Form{}}})})
				r := p.store(Record{Chain: ChainItem, Body: events.Decided{Decision: events.Approve, Answers: true,
					By: "person", InputSHA256: "hash"}})
				if !p.m.State().Parked {
					p.step(Stored{r})
				} else {
					p.do([]string{"wake"})
				}
				p.grant(0)
			}
			for range c.attempts {
				p.do([]string{"claim", "0", "w1"})
				p.step(Stored{p.store(Record{Chain: ChainItem, Body: events.AttemptFailed{NotStarted: true,
					Attempt: p.m.State().Calls[0].Attempt, Code: toolyard.OutcomeUnknown}})})
				p.do([]string{"after", "20s"})
			}
			got := p.m.State().Calls[0]
			if over := got.Status == Finished; over != c.over ||
				over && got.Result.Code != toolyard.DependencyUnavailable {
				t.Errorf("behind %d questions and %q the call is %s: %+v", c.questions, c.attempts, got.Status,
					got.Result)
			}
		})
	}
}
