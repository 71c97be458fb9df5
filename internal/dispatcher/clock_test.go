package dispatcher

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// apart is how far the clocks of a dispatcher and of the server differ in these tests, either way.
const apart = 10 * time.Minute

// inYards runs a test with a server whose clock is ahead of the dispatcher's, and one whose clock is behind.
func inYards(t *testing.T, test func(y *yard)) {
	t.Helper()
	for name, ahead := range map[string]time.Duration{"server ahead": apart, "server behind": -apart} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.Server.SetClock(ahead)
				test(y)
			})
		})
	}
}

// TestAnOpenBatchStaysOpenWhereClocksDiffer for as long as it may be idle, and no longer.
func TestAnOpenBatchStaysOpenWhereClocksDiffer(t *testing.T) {
	inYards(t, func(y *yard) {
		y.dispatcher("d")
		y.work()
		k := y.submitBatch(toolyard.Batch{Open: true, Calls: []toolyard.Call{{Tool: "read"}},
			Options: toolyard.Options{TimeoutMS: time.Hour.Milliseconds()}})
		for n := range 3 {
			time.Sleep(DefaultOpenIdle - time.Minute)
			if y.fold(k).InputClosed {
				y.Fatalf("it is closed before call %d", n)
			}
			y.input(k, events.Appended{Calls: []toolyard.Call{{Tool: "read"}}})
		}
		time.Sleep(DefaultOpenIdle + time.Minute)
		if !y.fold(k).InputClosed {
			y.Error("it is open after it was idle for too long")
		}
		if got := y.codes(k); got != "ok ok ok ok" {
			y.Errorf("the results are %s", got)
		}
	})
}

// TestACallIsTriedAgainWhereClocksDiffer as late as it was said, and no later.
func TestACallIsTriedAgainWhereClocksDiffer(t *testing.T) {
	inYards(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("put")
		d := y.take(toolyard.WriteExclusive)
		seq := y.claim(d, "w")
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, seq,
			events.AttemptFailed{Worker: "w", Attempt: d.Calls[0].Attempt, RetryAfterMS: time.Minute.Milliseconds(),
				Code: toolyard.DependencyUnavailable, Reason: "busy"}); err != nil {
			y.Fatal(err)
		}
		failed := time.Now()
		y.work()
		if got := y.codes(k); got != "ok" {
			y.Errorf("the results are %s", got)
		}
		if took := time.Since(failed); took < time.Minute || took > 2*time.Minute {
			y.Errorf("it ran again after %s", took)
		}
	})
}

// TestAPersonHasTimeWhereClocksDiffer to decide about a call, and no more than there is.
func TestAPersonHasTimeWhereClocksDiffer(t *testing.T) {
	for name, decides := range map[string]bool{"approved": true, "left alone": false} {
		t.Run(name, func(t *testing.T) {
			inYards(t, func(y *yard) {
				y.dispatcher("d", func(c *Config) { c.ApprovalWait = apart / 2 })
				k := y.park()
				asked := time.Now()
				time.Sleep(apart/2 - time.Minute)
				want := "approval_expired"
				if decides {
					want = "ok"
					y.work()
					must.OK(y.T, approval.Decide(y.Context(), y.b, k, 0,
						events.Decided{Decision: events.Approve, By: "ann"}))
				}
				if got := y.codes(k); got != want {
					y.Errorf("the results are %s", got)
				}
				if took := time.Since(asked); took > apart/2+time.Minute {
					y.Errorf("it ended after %s", took)
				}
			})
		})
	}
}

// TestADeadlineIsOfTheServersClock: another dispatcher, whose clock differs, may take the batch over.
func TestADeadlineIsOfTheServersClock(t *testing.T) {
	inYards(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}},
			Options: toolyard.Options{TimeoutMS: time.Minute.Milliseconds()}})
		y.Eventually("it is planned", func() bool { return y.fold(k).Plan != nil })
		s := y.fold(k)
		if has := s.Plan.Deadline.Sub(s.SubmittedAt); (has - time.Minute).Abs() > 5*time.Second {
			y.Errorf("it has %s from its submission, not a minute", has)
		}
		began := time.Now()
		if got := y.codes(k); got != "deadline_exceeded" {
			y.Errorf("the results are %s", got)
		}
		if took := time.Since(began); (took - time.Minute).Abs() > 10*time.Second {
			y.Errorf("it ended after %s", took)
		}
	})
}

// TestSighted: what the time between question and answer does not explain is how far the clocks differ, and the wall
// clock of this machine does not matter from then on.
func TestSighted(t *testing.T) {
	asked := time.Now()
	answered := asked.Add(time.Second)
	for name, c := range map[string]struct{ shows, ahead time.Duration }{
		"at the question":        {0, 0},
		"in between":             {time.Second / 2, 0},
		"at the answer":          {time.Second, 0},
		"ahead of the answer":    {time.Second + time.Hour, time.Hour},
		"behind of the question": {-time.Hour, -time.Hour},
	} {
		s := sighted(asked.Round(0).Add(c.shows).UTC(), asked, answered)
		later := answered.Add(time.Minute)
		if got := s.at(later).Sub(later.Round(0)); got != c.ahead {
			t.Errorf("%s: the server's clock is %s ahead, not %s", name, got, c.ahead)
		}
		for after, want := range map[time.Duration]bool{0: false, clockEvery - 1: false, clockEvery: true} {
			if got := s.stale(answered.Add(after)); got != want {
				t.Errorf("%s: stale after %s: %v", name, after, got)
			}
		}
	}
	s := sight{answered.Add(-time.Hour).Round(0), answered} // as after a sleep: only the wall clock has gone on
	if !s.stale(answered) {
		t.Error("a clock that jumped is not looked at")
	}
}

// TestABudgetRenewsWhereClocksDiffer when its period is over by the server's clock: a dispatcher of which the clock is
// hours ahead, or behind, or was never set, gives nobody a new budget, and takes nothing away.
func TestABudgetRenewsWhereClocksDiffer(t *testing.T) {
	const apart = 50 * time.Hour
	for name, ahead := range map[string]time.Duration{"server ahead": apart, "server behind": -apart} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.Server.SetClock(ahead)
				limit := budgets(t, "agent *=calls:2,per-hours:1")
				y.dispatcher("d", limit)
				y.work()
				// as a dispatcher has it whose clock is right
				grant := admission.Budget{Amount: admission.Amount{Calls: 2}, Per: time.Hour}
				began := time.Now().Add(ahead).Add(-time.Minute)
				if _, err := y.b.ChangeBudget(y.Context(), admission.AgentAccount(toolyard.DefaultAgent),
					func(a admission.Account) (admission.Account, error) {
						a, _, _, err := a.Reserve(admission.Holder{Line: "other/1"}, grant, admission.Amount{Calls: 1},
							admission.Amount{}, nil, began)
						return a, err
					}); err != nil {
					y.Fatal(err)
				}
				if got := y.codes(y.submit("read", "read")); got != "ok budget_exceeded" {
					y.Errorf("with one call left: %s", got)
				}
				time.Sleep(time.Hour)
				if got := y.codes(y.submit("read", "read", "read")); got != "ok ok budget_exceeded" {
					y.Errorf("in the next period: %s", got)
				}
			})
		})
	}
}

// TestABackgroundCallIsListedWhereClocksDiffer: another dispatcher has just listed a call that has no batch yet. It
// keeps its place until its start must have been broken off, and no longer.
func TestABackgroundCallIsListedWhereClocksDiffer(t *testing.T) {
	inYards(t, func(y *yard) {
		d := New(y.Broker("d"), Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner(),
			BackgroundCalls: 1})
		y.Start(d)
		now, err := y.b.Clock(y.Context())
		must.OK(y.T, err)
		child := func(id toolyard.BatchID) *toolyard.Batch {
			return &toolyard.Batch{ID: id, Agent: toolyard.DefaultAgent, Session: toolyard.DefaultSession}
		}
		if _, err := y.b.ChangeSession(y.Context(), toolyard.DefaultAgent, toolyard.DefaultSession,
			func(v *broker.Session) {
				v.AddBackground(broker.BackgroundCall{ID: "first", At: now}, 1)
			}); err != nil {
			y.Fatal(err)
		}
		for after, want := range []bool{false, true} {
			if listed, err := d.listBackground(y.Context(), child("second")); err != nil || listed != want {
				y.Errorf("after %d times the grace: listed %v, %v", 2*after, listed, err)
			}
			time.Sleep(2 * backgroundGrace)
		}
	})
}
