package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// claimsFirst reports whether a call is claimed even when it is delivered for the first time. A call that needs no
// claim of its own skips it only where nobody can have ended the call: in its first attempt, when nothing has happened
// to its item, and, if its group holds the workspace, soon after it was queued.
func claimsFirst(d *broker.Delivery, c *events.RequestedCall) bool {
	return c.Claim || c.Again || c.Attempt > 1 || d.Expected > 0 || d.Ticket > 0 && !d.Fresh()
}

// mustClaim reports whether the call is claimed before it begins.
func (r *running) mustClaim() bool {
	return r.d.Deliveries > 1 || r.d.Reconnected() || claimsFirst(r.d, &r.call)
}

// earlierEvidence is what is known of the call's executions before this delivery.
func (r *running) earlierEvidence() outcome.Evidence {
	return outcome.Evidence{
		Tool: r.call.Tool, Judgement: r.call.Judgement, Started: r.call.Earlier(),
		MayHaveStarted: r.call.Again && !r.call.Claim && r.call.Earlier() == 0,
	}
}

// mayHaveAnother reports whether a call may have another attempt behind this one, in which its tool was started.
func (r *running) mayHaveAnother() bool {
	return !batch.LastAttempt(r.call.Earlier()+1, r.call.Attempt, r.d.MaxAttempts)
}

// findEarlierRun finds out what became of a call that a worker could have begun without a claim. An earlier
// delivery that was not given back counts as an attempt. Of a call that needs a claim the claim says so, unless it is
// lost: then the error wraps [broker.ErrDamaged].
func (w *Worker) findEarlierRun(ctx context.Context, r *running) error {
	if r.call.Claim && (r.d.Deliveries > 1 || r.call.Again) {
		return w.b.ItemLost(ctx, r.d.Key(), w.cfg.Pool, r.d.Item)
	}
	if r.d.Deliveries == 1 || claimsFirst(r.d, &r.call) {
		return nil
	}
	end, err := r.chain.look(ctx, r.call.Index)
	if err != nil {
		return fmt.Errorf("look what became of the call when it was delivered first: %w", err)
	}
	switch b := end.Body.(type) {
	case nil:
		r.call.Attempt++
	case events.Returned:
		r.seen = end.Seq
	case events.Claimed:
		if b.Worker == w.cfg.ID { // it may be given up, or go on
			r.call.Attempt = b.Attempt
		}
	}
	return nil
}

// start takes the right to run a call, which has its slot: it checks the lease and stores the claim. A read is not
// claimed at first. One that was delivered or tried before is, so that a read that kills its worker does not kill
// them all, and an answer that was stored meanwhile is seen.
func (w *Worker) start(ctx context.Context, r *running) (release func(), err error) {
	if err := w.mayAct(r); err != nil {
		r.cancel(err)
		return nil, err
	}
	if r.mustClaim() {
		if err := w.claim(ctx, r); err != nil {
			return nil, err
		}
		failpoint.Hit(failpoint.CallClaimed)
		if err := w.mayAct(r); err != nil { // storing it may have taken long
			r.cancel(err)
			return nil, err
		}
	}
	returned := make(chan struct{})
	r.mu.Lock()
	r.started, r.returned = true, returned
	claimed := r.claimed
	r.mu.Unlock()
	w.noteBegun(r, claimed)
	return func() { close(returned) }, nil
}

// slowClaim is how long a claim may take before its worker looks whether it still stands.
const slowClaim = 250 * time.Millisecond

// orLost returns err, or [pipeline.ErrLost] if err is nil.
func orLost(err error) error {
	if err == nil {
		return pipeline.ErrLost
	}
	return err
}

// claim stores this worker's claim of the call. [pipeline.ErrLost] says that it is another's, or answered.
func (w *Worker) claim(ctx context.Context, r *running) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return w.claimLocked(ctx, r)
}

func (w *Worker) claimLocked(ctx context.Context, r *running) error {
	began := time.Now()
	rec, err := r.chain.append(ctx, r.seen,
		events.Claimed{Call: r.named(), Worker: w.cfg.ID, Attempt: r.call.Attempt, Ticket: r.d.Ticket}, r.call.Index)
	switch {
	case errors.Is(err, broker.ErrConflict) && rec.Seq > 0:
		if _, returned := rec.Body.(events.Returned); returned { // just now, by who had it before
			r.seen = rec.Seq
			return w.claimLocked(ctx, r)
		}
		// A claim that this worker stored before, and never knew of, is as good, if nothing was started on it.
		if !w.claimed(r, rec) {
			r.conflict = true
			return pipeline.ErrLost
		}
		r.seen, r.claimed = rec.Seq, true
		if w.hasBegun(r) { // and what became of it could not be stored: the attempt counts
			r.started = true
			r.cancel(errForgotten)
			return errForgotten
		}
	case err != nil:
		return err
	default:
		r.seen, r.claimed = rec.Seq, true
		if time.Since(began) > slowClaim { // the answer came late: the call may have been answered behind the claim
			if end, err := r.chain.look(ctx, r.call.Index); err != nil || !w.claimed(r, end) {
				r.conflict = err == nil
				return orLost(err)
			}
		}
	}
	return nil
}

// recognise finds out whether the last event about the call is this worker's claim of this attempt.
func (w *Worker) recognise(ctx context.Context, r *running) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	end, err := r.chain.look(looking, r.call.Index)
	if err == nil && w.claimed(r, end) {
		r.seen, r.claimed = end.Seq, true
	}
	return err
}

// claimed reports whether an event is this worker's claim of the attempt.
func (w *Worker) claimed(r *running, end batch.Record) bool {
	c, ok := end.Body.(events.Claimed)
	return ok && c.Worker == w.cfg.ID && c.Attempt == r.call.Attempt
}
