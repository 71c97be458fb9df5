package worker

import (
	"context"
	"errors"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
)

// goodbyeTimeout bounds the last words to the registry.
const goodbyeTimeout = 2 * time.Second

// settleLost settles a call that this worker had to give up. It reports true only when the log says that the call
// no longer needs this message.
func (w *Worker) settleLost(ctx context.Context, m *message, r *running, why error,
) (settled bool, pause time.Duration) {
	if why == nil {
		why = errLapsed
	}
	runs := r.leftBehind()
	r.mu.Lock()
	conflict := r.conflict
	r.mu.Unlock()
	if conflict {
		return true, 0
	}
	if r.mustClaim() { // the claim's answer may have been lost
		if err := w.recognise(ctx, r); err != nil {
			w.log.Warn("it cannot be told whether a claim was stored", "batch", r.d.Key(), "call", r.call.Index,
				"error", err)
			return false, 0
		}
	}
	r.mu.Lock()
	claimed, started := r.claimed, r.started
	r.mu.Unlock()
	// An earlier delivery of the call may have begun it here, and could not store what became of it.
	started = started || w.hasBegun(r)
	mayRepeat := r.call.Judgement.Idempotent && !runs && r.mayHaveAnother()
	switch {
	case claimed && (!started || mayRepeat):
		// Nobody else can run it while the claim stands, and it may run again: the claim is given up.
		return answered(w.appendCall(ctx, r, events.AttemptFailed{
			Call: r.named(), Worker: w.cfg.ID, Attempt: r.call.Attempt, Code: toolyard.OutcomeUnknown,
			Reason: why.Error(), NotStarted: !started,
		})), 0
	case claimed:
		evidence := outcome.Evidence{Tool: r.call.Tool, Judgement: r.call.Judgement, Started: r.call.Earlier() + 1,
			StillRuns: runs}
		return answered(w.finish(ctx, r, w.ended(r, toolyard.PhaseSchedule, toolyard.OutcomeUnknown,
			"The worker had to stop this call while it ran."+evidence.Sentence(), why))), 0
	case errors.Is(why, errShutdown) && started:
		return false, returnPause
	case errors.Is(why, errShutdown):
		return m.returned(ctx, r.call.Index)[r.call.Index], returnPause
	}
	return false, 0 // it is delivered again, or has been
}

// settleBegun settles a call whose attempt was begun here before, and whose end could not be stored. Nothing else is
// said of it, also when it is to end or may not run any more: that would read as if it had not run.
func (w *Worker) settleBegun(ctx context.Context, m *message, r *running) (settled bool, pause time.Duration) {
	claiming, stop := storing(ctx)
	defer stop()
	return w.settleLost(ctx, m, r, w.claim(claiming, r)) // which meets the claim of before, or what stands behind it
}
