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

// asks has the tool of call 0 ask a person again and again, who answers.
func (p *player) asks(questions int) {
	for range questions {
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
			p.asks(c.questions)
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

// TestALostAttemptBehindQuestions: the attempts that have ended with a question count no more when a worker is lost, or
// fails, than when it gives the call up. A call that may run twice runs again, and has its answers still.
func TestALostAttemptBehindQuestions(t *testing.T) {
	for name, c := range map[string]struct {
		kind      string // of call, in a trace
		questions int
		attempts  int // behind them, in each of which the worker is lost
		over      bool
	}{
		"two":                     {"i", 2, 1, false},
		"as many as there may be": {"i", 7, 2, false},
		"three are lost":          {"i", 7, 3, true},
		"of a write":              {"w", 2, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t)
			p.do([]string{"plan", c.kind})
			p.grant(0)
			p.asks(c.questions)
			for n := range c.attempts {
				p.do([]string{"claim", "0", "w1"})
				p.do([]string{"observe", "dropped=0"})
				if n < c.attempts-1 {
					p.do([]string{"after", "20s"})
				}
			}
			got := p.m.State().Calls[0]
			if over := got.Status == Finished; over != c.over || over && got.Result.Code != toolyard.OutcomeUnknown {
				t.Errorf("behind %d questions and %d lost workers the call is %s: %+v", c.questions, c.attempts,
					got.Status, got.Result)
			}
		})
	}
}

// TestTheAttemptsBehindQuestions: a worker is told of as many attempts as the owner gives the call.
func TestTheAttemptsBehindQuestions(t *testing.T) {
	p := newPlayer(t)
	p.do([]string{"plan", "i"})
	p.grant(0)
	p.asks(2)
	p.do([]string{"claim", "0", "w1"})
	m, c := p.m, p.m.State().Calls[0]
	req := m.queue([]int{0}, 1, nil).Request
	if LastAttempt(c.Started()+1, c.Attempt, req.MaxAttempts) {
		t.Errorf("attempt %d of %d behind two questions is the last one", c.Attempt, req.MaxAttempts)
	}
}
