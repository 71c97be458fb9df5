package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// The rhythm of giving back what this worker cannot run.
const (
	returnPause   = 250 * time.Millisecond
	maxDeliveries = 40 // then the call ends as dependency_unavailable, or internal_error when it cannot be read
)

// endedCall is a call that runs no more. What came of it is stored, or is to be; until [endedCall.close] the worker has
// the call and holds its lease.
type endedCall struct {
	// store stores its end; nil: there is nothing to store. It reports whether the call no longer needs its message,
	// and if it does, how long to pause before that is given back.
	store func(*storage) (settled bool, pause time.Duration)
	// settled and pause are the same of a call that has nothing to store.
	settled bool
	pause   time.Duration
	// left is closed when its tool returns; nil: the tool has returned, or has not begun.
	left <-chan struct{}

	closing []func() // in the order of what they undo
}

func (e *endedCall) atClose(undo func()) { e.closing = append(e.closing, undo) }

// close stores what is to be stored, and lets the call go. It reports as store does.
func (e *endedCall) close(in *storage) (settled bool, pause time.Duration) {
	settled, pause = e.settled, e.pause
	if e.store != nil {
		settled, pause = e.store(in)
	}
	for _, undo := range slices.Backward(e.closing) {
		undo()
	}
	return settled, pause
}

// is notes what there is to report of a call with nothing to store.
func (e *endedCall) is(settled bool, pause time.Duration) *endedCall {
	e.settled, e.pause = settled, pause
	return e
}

// runTaken runs a call of a message that needs no slot, because nothing of it begins.
func (w *Worker) runTaken(calls context.Context, m *message, call events.RequestedCall) {
	failpoint.Hit(failpoint.CallTaken)
	in := &storage{calls: calls}
	defer in.end()
	settled, pause := w.runCall(calls, m, call).close(in)
	m.over(calls, call.Index, settled, pause)
}

// runCall runs one call. The caller closes what it returns.
func (w *Worker) runCall(ctx context.Context, m *message, call events.RequestedCall) *endedCall {
	d, e := m.d, &endedCall{}
	ctx = traceparent.With(ctx, d.Trace)
	callCtx, cancel := context.WithCancelCause(ctx)
	e.atClose(func() { cancel(nil) })
	r := &running{d: d, chain: m.chain, call: call, cancel: cancel, logs: w.log}
	r.told.keep, _ = d.Batch.Background()
	r.term, _ = w.registered.holds()
	if !m.begin(r) {
		return e.is(false, 0) // it is delivered again
	}
	e.atClose(func() { m.end(r) })
	if !w.addRunning(r) { // delivered again while this worker still has it
		return e.is(false, returnPause)
	}
	e.atClose(func() { w.removeRunning(r) })
	err := w.findEarlierRun(ctx, r)
	if errors.Is(err, broker.ErrDamaged) {
		return e.is(answered(w.finishLost(ctx, r, w.lostTrack(r, err))), returnPause)
	}
	if err != nil {
		r.log().Warn("a call that was delivered before is given back", "error", err)
		return e.is(false, returnPause)
	}
	if w.hasBegun(r) {
		return e.is(w.settleBegun(ctx, m, r))
	}
	switch able, instead := w.canRun(ctx, r); {
	case instead != nil:
		_, trace := w.follow(ctx, r)
		trace.ran(instead, nil)
		err := w.finish(ctx, r, *instead)
		trace.stored(err)
		return e.is(answered(err), 0)
	case !able:
		return e.is(m.returned(ctx, call.Index)[call.Index], returnPause)
	}
	e.atClose(w.keepLease(callCtx, r))
	// The owner's clock decides the deadline; this one only sees to it that nothing runs for ever when nobody says
	// stop.
	limited, stopLimit := context.WithTimeoutCause(callCtx, time.Duration(d.RemainingMS)*time.Millisecond,
		pipeline.ErrDeadline)
	e.atClose(stopLimit)
	w.execute(ctx, limited, m, r, e)
	if r.leftBehind() {
		e.left = r.whenReturned()
	}
	return e
}

// canRun reports whether this worker can run a call. If it cannot, another worker may; when nobody can, it returns the
// call's result instead.
func (w *Worker) canRun(ctx context.Context, r *running) (able bool, instead *toolyard.Result) {
	_, entry, known := w.tools.Lookup(r.call.Tool)
	last := r.d.Deliveries >= maxDeliveries
	switch {
	case len(w.lacks(r, entry)) > 0: // it was planned for workers of the pool that have them
		if last && !w.taggedElsewhere(r, entry) {
			return false, new(w.untagged(r, entry))
		}
		return false, nil
	case !known && w.withdrawn(ctx, &r.call):
		r.log().Info("a tool was withdrawn after the batch was planned")
		return false, new(w.toolWithdrawn(r))
	case known && entry.Hash == r.call.Declaration:
		return last || !w.elsewhere(&entry.Declaration, r.call.Judgement.Class), nil
	case last && !w.mayBeElsewhere(ctx, &r.call):
		r.log().Warn("no worker of the pool has the tool as it was planned")
		return false, new(w.toolUnavailable(r))
	}
	return false, nil
}

// execute runs a call in the pipeline, which ends with limited. It notes in e what is to be stored, or what came of the
// call.
func (w *Worker) execute(ctx, limited context.Context, m *message, r *running, e *endedCall) {
	lift, err := w.layOver(limited, r)
	if err != nil {
		e.is(w.noOverlay(ctx, limited, m, r, err))
		return
	}
	e.atClose(lift)
	job, err := w.job(limited, r)
	if err != nil {
		r.log().Error("a call cannot be run", "error", err, "deliveries", r.d.Deliveries)
		if r.d.Deliveries < maxDeliveries { // what it needs may only be slow to come
			e.is(m.returned(ctx, r.call.Index)[r.call.Index], returnPause)
			return
		}
		e.is(answered(w.finish(ctx, r, w.ended(r, toolyard.PhaseSchedule, toolyard.InternalError,
			"Internal error: the worker could not read this call."+r.earlierEvidence().Sentence(), err))), 0)
		return
	}
	job.QueueMS = max(0, float64(r.d.Received.Sub(r.d.QueuedAt))/float64(time.Millisecond))
	var change *tool.SessionChange
	if !job.Background { // whose session goes on meanwhile
		job.SessionChange = func(c tool.SessionChange) { change = &c }
	}
	progress := w.reporter(r)
	job.Progress = progress.report
	limited, trace := w.follow(limited, r)
	if r.call.Undo != nil {
		limited = snapshot.WithUndo(limited, r.call.Undo)
	}
	if strings.HasPrefix(r.call.Tool, toolyard.BackgroundPrefix) {
		limited = background.WithAsk(limited, w.askBackground(r))
	}
	result, err := w.pipe.Load().Run(limited, job)
	progress.end()
	waiting, waits := errors.AsType[*pipeline.WaitingError](err)
	// A call that asks a person has run until then, and others may have the workspace before it goes on. Behind an
	// attempt that did not begin stands what earlier ones have left, whose workers may not have noted it.
	ran := result.Attempts > 0 || waits && waiting.Question != nil
	w.noteAfter(ctx, r, ran)
	w.noteChanges(ctx, r, &result)
	w.count(r, &result, err)
	trace.ran(&result, err)
	if r.leftBehind() {
		r.log().Warn("a tool was told to stop and has not returned; it keeps its slot", "reason", context.Cause(limited))
	}
	if waits {
		e.is(w.storeWaiting(limited, m, r, waiting))
		trace.stored(nil)
		return
	}
	if errors.Is(err, pipeline.ErrLost) {
		e.is(w.settleLost(ctx, m, r, context.Cause(limited)))
		trace.stored(err)
		return
	}
	failpoint.Hit(failpoint.ResultReady)
	if w.worthRetrying(r, &result) {
		err = w.appendCall(ctx, r, events.AttemptFailed{
			Call: r.named(), Worker: w.cfg.ID, Attempt: r.call.Attempt, Code: result.Code, Reason: result.Error,
			RetryAfterMS: result.RetryAfterMS,
			NotStarted:   !r.executed(&result),
		})
		e.is(w.stored(ctx, limited, r, trace, err), 0)
		return
	}
	store := w.storesEnd(ctx, r, &events.End{Result: result, Session: change})
	e.store = func(in *storage) (bool, time.Duration) { return w.stored(ctx, limited, r, trace, store(in)), 0 }
}

// noOverlay ends a call that has no overlay to run on, or was stopped before it had one.
func (w *Worker) noOverlay(ctx, limited context.Context, m *message, r *running, err error) (settled bool,
	pause time.Duration) {
	if limited.Err() == nil {
		return answered(w.finish(ctx, r, w.withoutOverlay(r, err))), 0
	}
	cause := context.Cause(limited)
	code, message, lost := pipeline.Stopped(cause)
	if lost {
		return w.settleLost(ctx, m, r, cause)
	}
	return answered(w.finish(ctx, r, w.ended(r, toolyard.PhaseSchedule, code, message+r.earlierEvidence().Sentence(),
		cause))), 0
}

// stored reports whether a call has an answer in the log after an append of what came of it.
func (w *Worker) stored(ctx, limited context.Context, r *running, trace callTrace, err error) bool {
	trace.stored(err)
	if err != nil {
		level := slog.LevelWarn
		// Whoever stopped the call has answered for it first.
		if answered(err) && (context.Cause(limited) != nil || r.wasStopped()) {
			level = slog.LevelDebug
		}
		r.log().Log(ctx, level, "a result was not stored", "error", err)
	}
	return answered(err)
}

// storeWaiting stores that a call needs a person. The worker is then done with it: after the decision it is queued
// again.
func (w *Worker) storeWaiting(ctx context.Context, m *message, r *running, e *pipeline.WaitingError,
) (settled bool, pause time.Duration) {
	body := events.Waiting{
		Call: r.named(), Worker: w.cfg.ID, Attempt: r.call.Attempt - 1, Reason: e.Reason, Source: e.Source,
		Destructive: e.Judgement.Destructive,
		Class:       e.Judgement.Class, Input: e.Observable, InputSHA256: e.InputHash, Remember: e.Remember,
		Facts:   e.Facts,
		Context: e.Context,
		Diff:    e.Diff,
	}
	if q := e.Question; q != nil {
		body.Attempt = r.call.Attempt
		body.Form = &events.Form{Form: q.Form, CallSHA256: e.CallHash, Key: q.Key, State: q.State}
		if a := r.call.Approved; a != nil && e.Changed == nil {
			body.Changed = a.Input
		}
		failpoint.Hit(failpoint.QuestionReady)
	}
	err := w.mayAct(r)
	if err == nil && e.Changed != nil {
		body.Changed, err = w.b.PutInput(ctx, r.d.Agent, e.Changed)
	}
	if err == nil {
		err = w.appendCall(ctx, r, body)
	}
	if errors.Is(err, errClaimed) {
		r.mu.Lock()
		r.started = w.hasBegun(r)
		r.mu.Unlock()
		return w.settleLost(ctx, m, r, err)
	}
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Warn("a call that needs a person is delivered again", "batch", r.d.Key(), "call", r.call.Index,
			"error", err)
	}
	return answered(err), 0
}

// maxRetryAfter is the longest pause that a tool may ask for and still be retried here; a longer one is the model's to
// wait.
const maxRetryAfter = 5 * time.Second

// retryRoom is how much time a batch must have left, beyond the pause, for another attempt.
const retryRoom = 2 * time.Second

// executed reports whether a result of the pipeline says that this attempt has started the tool.
func (r *running) executed(res *toolyard.Result) bool { return res.Attempts > r.call.Earlier() }

// worthRetrying reports whether the call gets another attempt before the model sees the failure: the failure may
// pass, and the call may run twice or did not run. An attempt that was not started is followed by another only while
// there were few attempts in all: the model is not to wait for long. A timeout gets none, because it has taken long.
func (w *Worker) worthRetrying(r *running, res *toolyard.Result) bool {
	pause := time.Duration(res.RetryAfterMS) * time.Millisecond
	started := r.executed(res)
	more := r.call.Attempt < r.d.MaxAttempts
	if started {
		more = r.mayHaveAnother()
	}
	return res.IsError && res.Retryable && res.Code != toolyard.Timeout && (r.call.Judgement.Idempotent || !started) &&
		more && pause <= maxRetryAfter &&
		time.Since(r.d.Received)+pause+retryRoom < time.Duration(r.d.RemainingMS)*time.Millisecond
}
