package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// budgetsOf are the budgets that a batch is under; nil for most.
func (d *Dispatcher) budgetsOf(s *batch.State) []admission.Owed {
	if g := d.budgets.Load(); g != nil && len(*g) > 0 && s.Submission != nil {
		return g.Of(s.Key.Agent, s.Submission.Session)
	}
	return nil
}

// budget is what a runner has to do with budgets.
type budget struct {
	owed []admission.Owed
	// used and reserved are what the accounts were told last; told says that they were told something, by this owner or
	// a former one.
	used, reserved admission.Amount
	told           bool
	// unsure says that some of the accounts may have been told something else since.
	unsure bool
	// waiting are messages for which an account has had no room.
	waiting []unbooked
}

// unbooked is a message that waits for room in an account since a time.
type unbooked struct {
	q     batch.Queue
	since time.Time
}

// waits reports whether a call is in a message that waits for room in an account.
func (b *budget) waits(i int) bool {
	return slices.ContainsFunc(b.waiting, func(w unbooked) bool {
		return slices.Contains(callsOf(w.q), i)
	})
}

// spent is what the calls of a batch have used, as its log says, and what those may use for which a condition holds.
func spent(s *batch.State, flies func(i int) bool) (used, reserved admission.Amount) {
	for i := range s.Calls {
		c, plan := &s.Calls[i], &s.Plan.Calls[i]
		attempts := int64(c.Started())
		if r := c.Result; r != nil {
			attempts = max(0, int64(r.Attempts)) // a worker has written the result
			used.MS += max(0, int64(r.ExecuteMS))
			used.Bytes += int64(batch.ResultBytes(r))
		} else if flies(i) {
			reserved = reserved.Plus(admission.Amount{Calls: 1, Cost: plan.Cost})
		}
		used.Calls += attempts
		used.Cost += attempts * plan.Cost
	}
	return used, reserved
}

// withinBudget reserves what messages may use that are to be handed over. It returns those for which there is room, and
// has the others end as budget_exceeded. Where an account has no room now they are tried again at a heartbeat: the
// batch goes on meanwhile, and may end them.
func (r *runner) withinBudget(ctx context.Context, calls []batch.Queue) ([]batch.Queue, []batch.Input, error) {
	if r.budget.owed == nil || len(calls) == 0 {
		return calls, nil, nil
	}
	s := r.m.State()
	fresh := map[int]bool{}
	needs := make([]admission.Amount, len(calls))
	for n := range calls {
		for _, c := range calls[n].Request.Calls {
			fresh[c.Index] = true
			needs[n] = needs[n].Plus(admission.Amount{Calls: 1, Cost: s.Plan.Calls[c.Index].Cost})
		}
	}
	used, reserved := spent(s, func(i int) bool { return r.flies(i) && !fresh[i] })
	now, fit := r.d.clock.now(), len(calls)
	var limited batch.Limited
	left := int64(-1) // milliseconds that a call may run
	for i := range r.budget.owed {
		o := &r.budget.owed[i]
		n, past, a := 0, "", admission.Account{Limit: o.Budget, Used: used.Plus(reserved)}
		if o.Account == "" {
			n, past = o.Budget.Fit(used, reserved, needs[:fit])
		} else {
			r.budget.told = true
			var err error
			a, err = r.d.b.ChangeBudget(ctx, o.Account, func(a admission.Account) (next admission.Account, err error) {
				next, n, past, err = a.Reserve(r.lineHolder(), o.Budget, used, reserved, needs[:fit], now)
				return next, err
			})
			if errors.Is(err, broker.ErrFull) {
				return nil, []batch.Input{r.awaitAccount(calls, err)}, nil
			}
			if err != nil {
				return nil, nil, orLostLine(err)
			}
		}
		if all, _ := a.Total(); o.Budget.MS > 0 && (left < 0 || o.Budget.MS-all.MS < left) {
			left = max(1, o.Budget.MS-all.MS)
		}
		if past != "" {
			fit, limited = n, exceeded(o, &a, past, now)
		}
	}
	for _, need := range needs[:fit] {
		reserved = reserved.Plus(need)
	}
	r.budget.used, r.budget.reserved = used, reserved
	for n := range calls[:fit] {
		if q := &calls[n].Request; left > 0 && (q.CallTimeoutMS == 0 || q.CallTimeoutMS > left) {
			q.CallTimeoutMS = left
		}
	}
	if fit == len(calls) {
		return calls, nil, nil
	}
	limited.Calls = callsOf(calls[fit:]...)
	inputs := []batch.Input{batch.Held{Calls: limited.Calls}, limited}
	// Accounts that were asked before have reserved what does not begin.
	err := r.tellAccounts(ctx, used, reserved)
	if errors.Is(err, broker.ErrFull) { // they are told at a heartbeat
		r.budget.unsure, err = true, nil
	}
	return calls[:fit], inputs, err
}

// awaitAccount keeps messages back for which an account has no room.
func (r *runner) awaitAccount(calls []batch.Queue, why error) batch.Held {
	r.log.Warn("calls wait for room in the account of a budget", "error", why)
	now := time.Now()
	for n := range calls {
		r.budget.waiting = append(r.budget.waiting, unbooked{calls[n], now})
	}
	r.budget.unsure = true // the accounts before that one have reserved them
	return batch.Held{Calls: callsOf(calls...)}
}

// retryBudget tries messages again for which an account has had no room, and returns those that go to the workers now.
func (r *runner) retryBudget(ctx context.Context) (calls []batch.Queue, inputs []batch.Input, err error) {
	for _, w := range r.budget.waiting {
		goOn(&w.q.Request, time.Since(w.since), r.m.MayHand)
		if len(w.q.Request.Calls) > 0 {
			calls = append(calls, w.q)
		}
	}
	r.budget.waiting = nil
	if calls, inputs, err = r.holdBack(ctx, calls); err != nil {
		return nil, nil, err
	}
	if handed := callsOf(calls...); len(handed) > 0 {
		inputs = append(inputs, batch.Handed{Calls: handed})
	}
	return calls, inputs, nil
}

// flies reports whether workers may have a call, or are to get it, and the accounts have room for it.
func (r *runner) flies(i int) bool { return r.m.Active(i) && !r.budget.waits(i) }

// lineHolder is this owner of the batch, for the lines of its accounts.
func (r *runner) lineHolder() admission.Holder {
	s := r.m.State()
	return admission.Holder{Line: admission.LineOf(r.key), Term: s.Takeovers, Until: s.Plan.Deadline, End: s.Plan.End}
}

// orLostLine says that the batch has another owner, if that is why a line could not be set.
func orLostLine(err error) error {
	if errors.Is(err, admission.ErrPassed) {
		return errLost
	}
	return err
}

// exceeded says of calls that a budget has nothing left for them.
func exceeded(o *admission.Owed, a *admission.Account, past string, now time.Time) batch.Limited {
	out := batch.Limited{Code: toolyard.BudgetExceeded,
		Why:    fmt.Sprintf("The budget of %s has no %s left for the call.", o.Text(), past),
		Detail: fmt.Sprintf("budget of %s, %s: %s used", o.Text(), past, a.Left())}
	if at, renews := a.Renews(); renews && at.After(now) {
		out.RetryAfterMS = at.Sub(now).Milliseconds() + 1
	}
	return out
}

// tellAccounts sets the batch's lines to what it has used and reserved.
func (r *runner) tellAccounts(ctx context.Context, used, reserved admission.Amount) error {
	for _, o := range r.budget.owed {
		if o.Account == "" {
			continue
		}
		if _, err := r.d.b.ChangeBudget(ctx, o.Account, func(a admission.Account) (admission.Account, error) {
			return a.Settle(r.lineHolder(), o.Budget, used, reserved, r.d.clock.now())
		}); err != nil {
			return orLostLine(err)
		}
	}
	r.budget.used, r.budget.reserved, r.budget.unsure = used, reserved, false
	return nil
}

// settleBudget tells the accounts what has become of calls since they were told last. Where they have no room they are
// told at another heartbeat: results do not wait for that.
func (r *runner) settleBudget(ctx context.Context) error {
	used, reserved, owes := r.unsettled()
	if !owes {
		return nil
	}
	err := r.tellAccounts(ctx, used, reserved)
	if errors.Is(err, broker.ErrFull) {
		r.log.Warn("what calls have used is not told to the accounts of their budgets; it is tried again", "error", err)
		return nil
	}
	return err
}

// unsettled reports whether calls have ended that the accounts do not know of, and what they are to know.
func (r *runner) unsettled() (used, reserved admission.Amount, owes bool) {
	if r.budget.owed == nil || !r.budget.told {
		return used, reserved, false
	}
	used, reserved = spent(r.m.State(), r.flies)
	return used, reserved, r.budget.unsure || used != r.budget.used || reserved != r.budget.reserved
}

// closeBudget ends the lines of a batch that has its last reply: nobody owns it any more, and sets them again.
func (d *Dispatcher) closeBudget(ctx context.Context, s *batch.State, owed []admission.Owed) error {
	if len(owed) == 0 || s.Plan == nil || !s.Completed {
		return nil
	}
	used, _ := spent(s, func(int) bool { return false })
	for _, o := range owed {
		if o.Account == "" {
			continue
		}
		if _, err := d.b.ChangeBudget(ctx, o.Account, func(a admission.Account) (admission.Account, error) {
			return a.Close(admission.LineOf(s.Key), used, d.clock.now()), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// abandonBudget ends the lines of a batch that was given up: no owner closes them.
func (d *Dispatcher) abandonBudget(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch) error {
	for _, o := range d.budgetsOf(&batch.State{Key: k, Submission: sub}) {
		if o.Account == "" {
			continue
		}
		if _, err := d.b.ChangeBudget(ctx, o.Account, func(a admission.Account) (admission.Account, error) {
			return a.Abandon(admission.LineOf(k), d.clock.now()), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// holdBack keeps messages back whose calls are past a budget, or are under a rate, and returns the others.
func (r *runner) holdBack(ctx context.Context, calls []batch.Queue) ([]batch.Queue, []batch.Input, error) {
	calls, past, err := r.withinBudget(ctx, calls)
	if err != nil {
		return nil, nil, err
	}
	calls, held := r.awaitTurn(calls)
	return calls, slices.Concat(past, held), nil
}

// alone reports whether a call goes in a message of its own, since it waits for its own turn or is past a budget alone.
func (d *Dispatcher) alone(k *kept, s *batch.State) func(c *events.PlannedCall) bool {
	if len(d.budgetsOf(s)) > 0 {
		return func(*events.PlannedCall) bool { return true }
	}
	return func(c *events.PlannedCall) bool {
		return d.admission.rates.bounds(admission.RateKey{Agent: k.key.Agent, Tool: c.Tool, Dependency: c.Dependency})
	}
}
