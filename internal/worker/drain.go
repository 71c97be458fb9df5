package worker

import (
	"context"
	"errors"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
)

// goodbyeTimeout bounds the last words to the registry.
const goodbyeTimeout = 2 * time.Second

// settleLost settles a call that this worker had to give up. It reports true only when the log says that the call
// no longer needs this message.
func (w *Worker) settleLost(ctx context.Context, r *running, why error) (settled bool) {
	if why == nil {
		why = errLapsed
	}
	runs := r.leftBehind()
	r.mu.Lock()
	conflict := r.conflict
	r.mu.Unlock()
	if conflict {
		return true
	}
	if r.mustClaim() { // the claim's answer may have been lost
		if err := w.recognise(ctx, r); err != nil {
			w.log.Warn("it cannot be told whether a claim was stored", "batch", r.d.Key(), "call", r.call.Index,
				"error", err)
			return false
		}
	}
	r.mu.Lock()
	claimed, started := r.claimed, r.started
	r.mu.Unlock()
	// An earlier delivery of the call may have begun it here, and could not store what became of it.
	started = started || w.hasBegun(r)
	mayRepeat := r.call.Judgement.Idempotent && r.call.Attempt < r.d.MaxAttempts && !runs
	switch {
	case claimed && (!started || mayRepeat):
		// Nobody else can run it while the claim stands, and it may run again: the claim is given up.
		return answered(w.appendCall(ctx, r, events.AttemptFailed{
			Worker: w.cfg.ID, Attempt: r.call.Attempt, Code: toolyard.OutcomeUnknown, Reason: why.Error(),
			NotStarted: !started,
		}))
	case claimed:
		evidence := outcome.Evidence{Judgement: r.call.Judgement, Started: r.call.Attempt, StillRuns: runs}
		return answered(w.finish(ctx, r, w.ended(r, toolyard.PhaseSchedule, toolyard.OutcomeUnknown,
			"The worker had to stop this call while it ran."+evidence.Sentence(), why)))
	case errors.Is(why, errShutdown) && started:
		w.giveBack(w.log, r.d, returnPause)
	case errors.Is(why, errShutdown):
		w.returnUnstarted(ctx, r.d, returnPause)
	}
	return false // it is delivered again, or has been
}

// returnUnstarted gives a message back of which nothing was started. It stores that for calls that could have run
// without a claim: otherwise the next worker counts an attempt that did not happen.
func (w *Worker) returnUnstarted(ctx context.Context, d *broker.Delivery, pause time.Duration) {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	for _, c := range d.Calls {
		if d.Deliveries > 1 || claimsFirst(d, &c) {
			continue
		}
		_, err := w.b.Append(storing, d.Key(), batch.ChainCall, w.cfg.Pool, c.Index, c.Expected,
			events.Returned{Worker: w.cfg.ID})
		if err != nil && !errors.Is(err, broker.ErrConflict) {
			w.log.Info("that a call was not started could not be stored; it counts as an attempt", "batch", d.Key(),
				"call", c.Index, "error", err)
		}
	}
	w.giveBack(w.log, d, pause)
}

func (w *Worker) giveBack(log interface{ Warn(string, ...any) }, d *broker.Delivery, pause time.Duration) {
	if err := d.Return(pause); err != nil {
		log.Warn("a message was not given back; it is delivered again when its wait is over", "error", err)
	}
}
