package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// budgets gives a dispatcher budgets.
func budgets(t *testing.T, lines ...string) func(*Config) {
	t.Helper()
	var all admission.Budgets
	for _, line := range lines {
		g, err := admission.ParseBudget(line)
		must.OK(t, err)
		all = append(all, g)
	}
	return func(c *Config) { c.Quotas.Budgets = all }
}

// account is what is used and reserved of an account, and how many batches have a line in it.
func (y *yard) account(agent toolyard.Agent, name string) (used, reserved admission.Amount, lines int) {
	y.Helper()
	all, err := y.b.Budgets(y.Context(), agent, toolyard.DefaultSession)
	must.OK(y.T, err)
	a := all[name]
	used, reserved = a.Total()
	return used, reserved, len(a.Lines)
}

// counts says how many calls an account should have as used and as reserved, and how many batches a line in it.
func (y *yard) counts(agent toolyard.Agent, name string, wantUsed, wantReserved int64, wantLines int) {
	y.Helper()
	used, reserved, lines := y.account(agent, name)
	if used.Calls != wantUsed || reserved.Calls != wantReserved || lines != wantLines {
		y.Errorf("%+v are used, %+v reserved in %d lines", used, reserved, lines)
	}
}

// closes waits until no batch has a line in an account, and says how many calls it should then have as used.
func (y *yard) closes(agent toolyard.Agent, name string, wantUsed int64) {
	y.Helper()
	y.Eventually("all lines are closed", func() bool {
		_, _, lines := y.account(agent, name)
		return lines == 0
	})
	y.counts(agent, name, wantUsed, 0, 0)
}

// TestABudgetOfCalls: over two dispatchers and many batches no more calls run than a team's budget says; the others end
// as budget_exceeded, which names the budget, and do not run. Another agent's calls run.
func TestABudgetOfCalls(t *testing.T) {
	inYard(t, func(y *yard) {
		for _, party := range []string{"d1", "d2"} {
			y.dispatcher(party, budgets(t, "team web-*=calls:7"))
		}
		y.work()
		y.settle()
		var all []toolyard.BatchKey
		for _, a := range []toolyard.Agent{"web-1", "web-2", "web-1", "web-2"} {
			all = append(all, y.of(a, "read", "read", "read"))
		}
		ran, past := 0, 0
		for _, k := range all {
			got := y.codes(k)
			ran, past = ran+strings.Count(got, "ok"), past+strings.Count(got, "budget_exceeded")
			for _, c := range y.fold(k).Calls {
				if r := c.Result; r.Code == toolyard.BudgetExceeded && (r.Retryable || r.Attempts != 0 ||
					!strings.Contains(r.Error, "The budget of team web-* has no calls left for the call.") ||
					!strings.Contains(r.Error, "did not run")) {
					y.Errorf("%+v", r)
				}
			}
		}
		if ran != 7 || past != 5 || y.ran.Load() != 7 {
			y.Errorf("%d calls ran, %d were past the budget, and the worker saw %d", ran, past, y.ran.Load())
		}
		if got := y.codes(y.of("free", "read", "read")); got != "ok ok" {
			y.Errorf("calls of another agent: %s", got)
		}
		y.closes("web-1", "team web-*", 7)
	})
}

// TestBudgetsOfBatchAndSession: each batch, and each session, has its own.
func TestBudgetsOfBatchAndSession(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "batch *=calls:2", "session *=calls:3"))
		y.work()
		y.settle()
		if got := y.codes(y.submit("read", "read", "read")); got != "ok ok budget_exceeded" {
			y.Errorf("the first batch: %s", got)
		}
		if got := y.codes(y.submit("read", "read")); got != "ok budget_exceeded" {
			y.Errorf("the second: %s", got)
		}
		other := y.submitBatch(toolyard.Batch{Session: "other",
			Calls: []toolyard.Call{{Tool: "read"}, {Tool: "write"}}})
		if got := y.codes(other); got != "ok ok" {
			y.Errorf("another session's: %s", got)
		}
	})
}

// TestASystemWithoutBudgets has no accounts, and says so at once.
func TestASystemWithoutBudgets(t *testing.T) {
	inYard(t, func(y *yard) {
		began := time.Now()
		all, err := y.b.Budgets(y.Context(), "default", toolyard.DefaultSession)
		if took := time.Since(began); err != nil || len(all) != 0 || took > time.Second {
			y.Errorf("%v, %v after %s", all, err, took)
		}
	})
}

// TestABudgetRenews: with the period all is there again, and what is refused before says when.
func TestABudgetRenews(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) {
			c.Quotas.Budgets = admission.Budgets{{Kind: admission.BudgetOfAgent, Agents: "*",
				Budget: admission.Budget{Amount: admission.Amount{Calls: 1}, Per: 20 * time.Second}}}
		})
		y.work()
		y.settle()
		k := y.submit("read", "read")
		if got := y.codes(k); got != "ok budget_exceeded" {
			y.Errorf("the calls: %s", got)
		}
		r := y.fold(k).Calls[1].Result
		if after := time.Duration(r.RetryAfterMS) * time.Millisecond; !r.Retryable || after < 15*time.Second ||
			after > 21*time.Second {
			y.Errorf("%+v", r)
		}
		time.Sleep(20 * time.Second)
		if got := y.codes(y.submit("read")); got != "ok" {
			y.Errorf("in the next period: %s", got)
		}
	})
}

// TestBudgetsOfTheDead: what a dispatcher has reserved is what the next owner of its batches settles, also when the
// worker of a call is dead; and nothing is counted twice or for ever.
func TestBudgetsOfTheDead(t *testing.T) {
	inYard(t, func(y *yard) {
		b := budgets(t, "agent *=calls:3")
		first := y.dispatcher("d1", b)
		y.settle()
		k := y.submit("write", "put")
		y.settle()
		d := y.take(toolyard.WriteExclusive)
		y.claim(d, "gone") // a worker that is never heard of again
		y.counts("default", "agent default", 0, 1, 1)
		first.End()
		y.dispatcher("d2", b)
		y.Eventually("the batch is taken over", func() bool { return y.fold(k).Owner == "d2" })
		y.work()
		if got := y.codes(k); got != "outcome_unknown ok" {
			y.Errorf("the results are %s", got)
		}
		y.closes("default", "agent default", 2)
		if got := y.codes(y.submit("read", "read")); got != "ok budget_exceeded" {
			y.Errorf("with one left: %s", got)
		}
	})
}

// TestABudgetOfSeconds: what ran counts, each attempt too, a call's time limit is cut to what is left, and nothing
// begins when nothing is.
func TestABudgetOfSeconds(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "session *=seconds:10,calls:9"))
		y.settle()
		k := y.submit("put", "put")
		d := y.take(toolyard.WriteExclusive)
		if d.CallTimeoutMS != 10_000 {
			y.Errorf("the call may run for %d ms", d.CallTimeoutMS)
		}
		seq := y.claim(d, "w")
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, seq, events.AttemptFailed{
			Worker: "w", Attempt: 1, Code: toolyard.DependencyUnavailable, Reason: "down"}); err != nil {
			y.Fatal(err)
		}
		d = y.take(toolyard.WriteExclusive)
		used, reserved, _ := y.account("default", "session default of default")
		if used.Calls != 1 || reserved.Calls != 1 {
			y.Errorf("after one attempt %+v are used, %+v reserved", used, reserved)
		}
		seq = y.claim(d, "w")
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, seq, events.Finish(events.End{
			Result: toolyard.Result{CallID: d.Calls[0].ID, Tool: "put", Attempts: 2, ExecuteMS: 10_500}})); err != nil {
			y.Fatal(err)
		}
		if got := y.codes(k); got != "ok budget_exceeded" {
			y.Errorf("the results are %s", got)
		}
		const says = "of session default of default has no seconds left"
		if r := y.fold(k).Calls[1].Result; !strings.Contains(r.Error, says) {
			y.Errorf("%+v", r)
		}
	})
}

// TestWhatIsNotUsedIsGivenBack: a call that never began has used nothing.
func TestWhatIsNotUsedIsGivenBack(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "agent *=calls:2"))
		y.settle()
		k := y.submit("write", "write")
		y.settle()
		must.OK(y.T, y.b.Cancel(y.Context(), k, "not wanted"))
		if got := y.codes(k); got != "canceled canceled" {
			y.Errorf("the results are %s", got)
		}
		if s := y.fold(k); s.Status() != toolyard.StatusCanceled || s.Calls[0].Status != batch.Finished {
			y.Errorf("the batch is %s", s.Status())
		}
		y.work()
		y.settle()
		if got := y.codes(y.submit("read", "read")); got != "ok ok" {
			y.Errorf("with all left: %s", got)
		}
	})
}

// TestBudgetsOfABatchThatIsGivenUp: what it has reserved counts as used, and does not stay reserved for ever.
func TestBudgetsOfABatchThatIsGivenUp(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "agent *=calls:5"))
		y.settle()
		k := y.submit("write")
		y.settle()
		// nobody was asked, so the log contradicts itself
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, 0,
			events.Decided{Decision: events.Reject, By: "nobody"}); err != nil {
			y.Fatal(err)
		}
		y.Eventually("the batch is given up", func() bool {
			letters, err := y.b.DeadLetters(y.Context(), 1)
			return err == nil && len(letters) > 0
		})
		y.counts("default", "agent default", 1, 0, 0)
	})
}

// TestAnAdoptedBatchIsCounted: what a former owner has begun counts, also when it has told no account and the batch is
// over before the next heartbeat of the one that adopts it.
func TestAnAdoptedBatchIsCounted(t *testing.T) {
	inYard(t, func(y *yard) {
		first := y.dispatcher("first") // knows of no budget
		y.settle()
		k := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		seq := y.claim(d, "w")
		first.End()
		must.OK(y.T, y.finish(d, seq))
		y.dispatcher("next", budgets(t, "agent *=calls:5"))
		y.Eventually("the batch is complete", func() bool { return y.done(k) })
		y.settle()
		y.counts("default", "agent default", 1, 0, 0)
	})
}

// TestLinesOfOneName: names may have slashes and spaces. Two batches of two agents share no line of a team's account,
// and two sessions of two agents no account.
func TestLinesOfOneName(t *testing.T) {
	if a, b := admission.SessionAccount("b of c", "a"), admission.SessionAccount("c", "a of b"); a == b {
		t.Errorf("sessions of two agents have the account %q", a)
	}
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "team web*=calls:100"))
		y.work()
		y.settle()
		first := y.submitBatch(toolyard.Batch{Agent: "web", ID: "x/1", Calls: []toolyard.Call{{Tool: "read"}}})
		if got := y.codes(first); got != "ok" {
			y.Errorf("the first: %s", got)
		}
		second := y.submitBatch(toolyard.Batch{Agent: "web/x", ID: "1", Calls: []toolyard.Call{{Tool: "read"}}})
		if got := y.codes(second); got != "ok" {
			y.Errorf("the second: %s", got)
		}
	})
}

// TestALineThatNobodyCloses: the operator takes a budget away while a batch is under way, and gives it back. What the
// batch has reserved counts until its time is over, and no longer.
func TestALineThatNobodyCloses(t *testing.T) {
	inYard(t, func(y *yard) {
		with := budgets(t, "agent web=calls:2")
		d := y.dispatcher("d1", with)
		y.settle()
		k := y.of("web", "read")
		y.Eventually("it is reserved", func() bool { _, r, _ := y.account("web", "agent web"); return r.Calls == 1 })
		over := y.fold(k).Plan.Deadline
		d.End()
		d = y.dispatcher("d2") // restarted without the budget
		rest := y.work()
		if got := y.codes(k); got != "ok" {
			y.Errorf("the call: %s", got)
		}
		rest()
		d.End()
		y.dispatcher("d3", with) // and with it again
		time.Sleep(time.Until(over) + time.Hour)
		y.work()
		for range 2 {
			if got := y.codes(y.of("web", "read")); got != "ok" {
				y.Errorf("a later call: %s", got)
			}
		}
		y.Eventually("nothing is reserved", func() bool {
			_, reserved, _ := y.account("web", "agent web")
			return reserved.Calls == 0
		})
	})
}

// TestAForgedResult: what a worker says of its call gives no account anything back.
func TestAForgedResult(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "team *=calls:5"))
		y.settle()
		k := y.submit("read")
		d := y.take(toolyard.ReadOnly)
		c := d.Calls[0]
		if _, err := y.b.Append(y.Context(), d.Key(), batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
			events.Finish(events.End{Result: toolyard.Result{Index: c.Index, CallID: c.ID, Tool: c.Tool, Output: "x",
				Worker: "w", Attempts: -1000, ExecuteMS: -1e9, Class: c.Judgement.Class}})); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, d.Done())
		y.codes(k)
		y.settle()
		used, reserved, _ := y.account(toolyard.DefaultAgent, "team *")
		if used.Calls < 0 || used.MS < 0 || reserved.Calls != 0 {
			y.Errorf("%+v used %+v reserved", used, reserved)
		}
	})
}

// TestAFullBucketOfAccounts: what would begin waits until the accounts have room again, under the same owner. What has
// begun is answered meanwhile.
func TestAFullBucketOfAccounts(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "agent *=calls:5"))
		y.settle()
		k := y.submit("write", "write")
		d := y.take(toolyard.WriteExclusive)
		seq := y.claim(d, "w")
		y.Server.Fill("KV_ty_budget", true)
		must.OK(y.T, y.finish(d, seq))
		y.Eventually("the first call is answered", func() bool { return y.fold(k).Replied == 1 })
		time.Sleep(time.Minute)
		y.Server.Fill("KV_ty_budget", false)
		y.work()
		if got, s := y.codes(k), y.fold(k); got != "ok ok" || s.Takeovers != 0 {
			y.Errorf("the results are %s, after %d takeovers", got, s.Takeovers)
		}
		y.closes("default", "agent default", 2)
	})
}

// TestABatchEndsWhileItsAccountIsFull: what waits for room in an account is canceled, and is over at the deadline, as
// anything else. Nothing of it counts.
func TestABatchEndsWhileItsAccountIsFull(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "session *=calls:9", "agent *=calls:9"))
		y.settle()
		rest := y.work()
		if got := y.codes(y.submit("write")); got != "ok" { // makes the accounts
			t.Fatal(got)
		}
		rest()
		y.Server.Fill("KV_ty_budget", true)
		call := []toolyard.Call{{Tool: "write"}}
		late := y.submitBatch(toolyard.Batch{Calls: call, Options: toolyard.Options{TimeoutMS: 20_000}})
		no := y.submitBatch(toolyard.Batch{Workspace: "other", Calls: call})
		y.settle()
		must.OK(t, y.b.Cancel(y.Context(), no, "no"))
		if a, b := y.codes(no), y.codes(late); a != "canceled" || b != "deadline_exceeded" {
			t.Errorf("the canceled call ended as %s, the one past its deadline as %s", a, b)
		}
		y.Server.Fill("KV_ty_budget", false)
		y.closes("default", "agent default", 1)
	})
}

// TestARenewedBudgetBehindAFullBucket: a call that has waited for room while the period of its budget ended does not
// set the beginning of the next one back to when it came.
func TestARenewedBudgetBehindAFullBucket(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", budgets(t, "agent *=calls:2,per-hours:1"))
		y.settle()
		rest := y.work()
		if got := y.codes(y.submit("write")); got != "ok" { // makes the account
			y.Fatal(got)
		}
		rest()
		time.Sleep(time.Hour - 10*time.Second)
		rest = y.work()
		y.Server.Fill("KV_ty_budget", true)
		early := y.submit("write")
		time.Sleep(20*time.Second + 100*time.Millisecond) // it ends between two looks of the call that waits
		y.Server.Fill("KV_ty_budget", false)
		late := y.submitBatch(toolyard.Batch{Workspace: "other", Calls: []toolyard.Call{{Tool: "write"}}})
		if a, b := y.codes(late), y.codes(early); a != "ok" || b != "ok" {
			y.Errorf("the call that came late ended as %s, the one that has waited as %s", a, b)
		}
		rest()
		time.Sleep(time.Hour - 5*time.Second)
		if got := y.codes(y.submit("write")); got != "budget_exceeded" {
			y.Errorf("a third call within an hour ended as %s", got)
		}
	})
}
