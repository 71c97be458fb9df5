package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
)

// The rhythm of giving back what this worker cannot run.
const (
	returnPause   = 250 * time.Millisecond
	maxDeliveries = 40 // then the call ends as dependency_unavailable
)

// storeTimeout is how long a worker tries to store a result. It is longer than any election or restart of NATS.
const storeTimeout = 2 * time.Minute

var (
	// errLapsed stops a tool when this worker's right to run its call has run out.
	errLapsed = fmt.Errorf("the lease lapsed: %w", pipeline.ErrLost)
	// errShutdown stops a tool when the worker's drain grace is over.
	errShutdown = fmt.Errorf("the worker is shutting down: %w", pipeline.ErrLost)
)

// running is a call in this worker's hands.
type running struct {
	d      *broker.Delivery
	call   events.RequestedCall
	cancel context.CancelCauseFunc
	// renewed is when the last heartbeat that was answered was sent, on the monotonic clock; began is its zero.
	began   time.Time
	renewed atomic.Int64
	// seq is the sequence that the next append on the call's chain expects; claimed says that it is this worker's claim.
	seq     uint64
	claimed bool
}

func (r *running) key() callKey { return callKey{r.d.Key(), r.call.Index} }

func (r *running) renew(sent time.Time) { r.renewed.Store(int64(sent.Sub(r.began))) }

// age is how long ago the last answered heartbeat was sent.
func (r *running) age() time.Duration { return time.Since(r.began) - time.Duration(r.renewed.Load()) }

// take runs the calls of one message.
func (w *Worker) take(ctx context.Context, d *broker.Delivery) {
	done := true
	for _, call := range d.Calls {
		done = w.run(ctx, d, call) && done
	}
	if !done {
		return // given back, or left to be delivered again
	}
	if err := d.Done(ctx); err != nil {
		// It will be delivered again, and found to be answered.
		w.log.Info("a call is answered, but its message could not be acknowledged", "batch", d.Key(), "error", err)
	}
}

// run takes one call to its result in the log. It reports whether the call needs this message no more.
func (w *Worker) run(ctx context.Context, d *broker.Delivery, call events.RequestedCall) (settled bool) {
	log := w.log.With("agent", d.Agent, "batch", d.Batch, "call", call.Index, "tool", call.Tool)
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{d: d, call: call, cancel: cancel, began: time.Now(), seq: call.Expected}
	if !w.enter(r) { // delivered again while this worker still has it
		w.giveBack(log, d)
		return false
	}
	defer w.leave(r)
	_, entry, known := w.tools.Lookup(call.Tool)
	if !known || entry.Hash != call.Declaration {
		if d.Deliveries < maxDeliveries {
			w.giveBack(log, d)
			return false
		}
		log.Warn("no worker of the pool has the tool as it was planned")
		return w.finish(ctx, r, w.unavailable(r)) == nil
	}
	lease, stopLease := context.WithCancel(callCtx)
	defer stopLease()
	go w.keep(lease, r)
	limited, stopLimit := context.WithDeadlineCause(callCtx, d.Deadline, pipeline.ErrDeadline)
	defer stopLimit()

	job, err := w.job(r)
	if err != nil {
		log.Error("a call cannot be run", "error", err)
		return false
	}
	result, err := w.pipe.Run(limited, job)
	if errors.Is(err, pipeline.ErrLost) {
		return w.lost(ctx, r, context.Cause(limited))
	}
	if w.worthRetrying(r, &result) {
		err = w.appendCall(ctx, r, events.AttemptFailed{
			Worker: w.cfg.ID, Attempt: call.Attempt, Code: result.Code, Reason: result.Error, RetryAfterMS: result.RetryAfterMS,
		})
	} else {
		err = w.finish(ctx, r, result)
	}
	if err != nil {
		log.Warn("a result was not stored", "error", err)
		return errors.Is(err, broker.ErrConflict) // somebody else has answered
	}
	return true
}

// maxRetryAfter is the longest pause that a tool may ask for and still be retried here; a longer one is the model's to
// wait.
const maxRetryAfter = 5 * time.Second

// retryRoom is how much time a batch must have left, beyond the pause, for another attempt.
const retryRoom = 2 * time.Second

// worthRetrying reports whether another attempt is made before the model hears of the failure: one that says of itself
// that it may pass, of a call that may run twice or did not run at all. A timeout is not: it was long already.
func (w *Worker) worthRetrying(r *running, res *toolyard.Result) bool {
	pause := time.Duration(res.RetryAfterMS) * time.Millisecond
	started := res.Attempts >= r.call.Attempt
	return res.IsError && res.Retryable && res.Code != toolyard.Timeout && (r.call.Judgement.Idempotent || !started) &&
		r.call.Attempt < r.d.MaxAttempts && pause <= maxRetryAfter && time.Until(r.d.Deadline) > pause+retryRoom
}

// lost settles what is left of a call that this worker had to let go of.
func (w *Worker) lost(ctx context.Context, r *running, why error) (settled bool) {
	switch {
	case r.claimed:
		// Nobody else can run it while the claim stands. The tool was stopped; what it did until then is not known.
		res := w.ended(r, toolyard.OutcomeUnknown, "The worker had to stop this call while it ran. It may or may not have taken effect: check before trying again.", why)
		if r.call.Judgement.Idempotent {
			err := w.appendCall(ctx, r, events.AttemptFailed{Worker: w.cfg.ID, Attempt: r.call.Attempt, Code: toolyard.OutcomeUnknown, Reason: why.Error()})
			return err == nil || errors.Is(err, broker.ErrConflict)
		}
		err := w.finish(ctx, r, res)
		return err == nil || errors.Is(err, broker.ErrConflict)
	case errors.Is(why, errShutdown):
		w.giveBack(w.log, r.d)
		return false
	case errors.Is(why, errLapsed):
		return false // it is being delivered again already
	}
	return true // the claim or the result is another's
}

func (w *Worker) giveBack(log interface{ Warn(string, ...any) }, d *broker.Delivery) {
	if err := d.Return(returnPause); err != nil {
		log.Warn("a message was not given back; it is delivered again when its wait is over", "error", err)
	}
}

func (w *Worker) enter(r *running) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[r.key()]; ok {
		return false
	}
	w.running[r.key()] = r
	return true
}

// has reports whether a call is in this worker's hands.
func (w *Worker) has(k toolyard.BatchKey, index int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.running[callKey{k, index}]
	return ok
}

func (w *Worker) leave(r *running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r.key())
}

// job is the call as the pipeline sees it.
func (w *Worker) job(r *running) (pipeline.Job, error) {
	d, call := r.d, r.call
	var rules policy.Rules
	for _, list := range []struct {
		texts []string
		to    *[]policy.Rule
	}{{d.Deny, &rules.Deny}, {d.Ask, &rules.Ask}} {
		for _, text := range list.texts {
			rule, err := policy.ParseRule(text)
			if err != nil { // the dispatcher has read it before
				return pipeline.Job{}, err
			}
			*list.to = append(*list.to, rule)
		}
	}
	return pipeline.Job{
		Key: d.Key(), Index: call.Index, Call: toolyard.Call{ID: call.ID, Tool: call.Tool, Input: call.Input},
		Session: d.Session, Workspace: d.Workspace, WorkspaceDir: w.cfg.Workspaces[d.Workspace], Interactive: d.Interactive,
		Declaration: call.Declaration, Judgement: call.Judgement, WasConcurrent: d.WasConcurrent, Attempt: call.Attempt,
		FencingToken: d.Ticket, QueueMS: max(0, float64(r.began.Sub(d.QueuedAt))/float64(time.Millisecond)),
		CallTimeout: time.Duration(d.CallTimeoutMS) * time.Millisecond, Rules: rules,
		CommitPoint: func() error { return w.mayAct(r) }, Blobs: agentBlobs{w.b, d.Agent},
	}, nil
}

// Start implements [pipeline.Scheduler]: the slot is taken already, so what is left is the lease and the claim.
func (w *Worker) Start(ctx context.Context, job *pipeline.Job) (func(), error) {
	w.mu.Lock()
	r := w.running[callKey{job.Key, job.Index}]
	w.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("call %d of %s is not this worker's", job.Index, job.Key)
	}
	if err := w.mayAct(r); err != nil {
		return nil, err
	}
	release := func() {}
	if !r.call.Claim {
		return release, nil
	}
	rec, err := w.b.Append(ctx, job.Key, batch.ChainCall, w.cfg.Pool, job.Index, r.seq,
		events.Claimed{Worker: w.cfg.ID, Attempt: r.call.Attempt, Ticket: r.d.Ticket})
	if errors.Is(err, broker.ErrConflict) {
		return nil, pipeline.ErrLost
	}
	if err != nil {
		return nil, err
	}
	r.seq, r.claimed = rec.Seq, true
	return release, w.mayAct(r) // storing it may have taken long
}

// mayAct reports an error when the lease is too old for an effect.
func (w *Worker) mayAct(r *running) error {
	if r.age() > broker.Lease(w.b.Settings().CallAckWait) {
		return errLapsed
	}
	return nil
}

// keep renews the delivery, and stops the tool when it cannot.
func (w *Worker) keep(ctx context.Context, r *running) {
	wait := w.b.Settings().CallAckWait
	tick := time.NewTicker(broker.Heartbeat(wait))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		attempt, cancel := context.WithTimeout(ctx, broker.Heartbeat(wait))
		err := r.d.Alive(attempt)
		cancel()
		if err == nil {
			r.renew(sent)
		}
		if w.mayAct(r) != nil {
			r.cancel(errLapsed)
			return
		}
	}
}

// finish stores a result as the call's. It wraps [broker.ErrConflict] when the call has one already.
func (w *Worker) finish(ctx context.Context, r *running, res toolyard.Result) error {
	return w.appendCall(ctx, r, events.Finished{Result: res})
}

// appendCall appends to the call's chain. A conflict with this worker's own claim, whose answer was lost, is none.
func (w *Worker) appendCall(ctx context.Context, r *running, body events.Body) error {
	// What a call came to is worth waiting for, also when the worker is being stopped, though not for long then.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(goodbyeTimeout, cancel) })()
	store := func() error {
		rec, err := w.b.Append(storing, r.d.Key(), batch.ChainCall, w.cfg.Pool, r.call.Index, r.seq, body)
		if err == nil {
			r.seq = rec.Seq
		}
		return err
	}
	err := store()
	if !errors.Is(err, broker.ErrConflict) || r.claimed || !r.call.Claim {
		return err
	}
	seq, own, lookErr := w.b.OwnClaim(ctx, r.d.Key(), w.cfg.Pool, r.call.Index, w.cfg.ID, r.call.Attempt)
	if lookErr != nil || !own {
		return errors.Join(err, lookErr)
	}
	r.seq, r.claimed = seq, true
	return store()
}

// unavailable is the result of a call whose tool no worker of the pool has as it was planned.
func (w *Worker) unavailable(r *running) toolyard.Result {
	res := w.ended(r, toolyard.DependencyUnavailable, fmt.Sprintf("No worker has the tool %s as it was when this batch was planned. The call did not run; call again.", r.call.Tool),
		fmt.Errorf("declaration %.12s after %d deliveries", r.call.Declaration, r.d.Deliveries))
	res.Retryable = true
	return res
}

// ended is a result of this worker's own.
func (w *Worker) ended(r *running, code toolyard.Code, message string, why error) toolyard.Result {
	res := toolyard.Result{
		Index: r.call.Index, CallID: r.call.ID, Tool: r.call.Tool, IsError: true, Code: code, Error: message, Detail: why.Error(),
		Class: r.call.Judgement.Class, WasConcurrent: r.d.WasConcurrent, Worker: w.cfg.ID, Attempts: r.call.Attempt - 1,
		DurationMS: float64(time.Since(r.began)) / float64(time.Millisecond),
		Phases: []toolyard.Fact{
			{Phase: toolyard.PhaseSchedule, Outcome: toolyard.OutcomeFailed, Code: code, Detail: why.Error()},
			{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
		},
	}
	if r.claimed {
		res.Attempts = r.call.Attempt
	}
	return res
}
