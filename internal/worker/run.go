package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/gate"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// The rhythm of giving back what this worker cannot run.
const (
	returnPause   = 250 * time.Millisecond
	maxDeliveries = 40 // then the call ends as dependency_unavailable, or internal_error when it cannot be read
)

// storeTimeout is how long a worker tries to store a result. It is longer than any election or restart of NATS.
const storeTimeout = 2 * time.Minute

var (
	// errForgotten ends a call that this worker has begun before, and whose end it could not store.
	errForgotten = fmt.Errorf("the call was begun before: %w", pipeline.ErrLost)
	// errClaimed says that a call that would wait for a person is claimed already, by this worker.
	errClaimed = fmt.Errorf("the call was claimed before: %w", pipeline.ErrLost)
	// errShutdown stops a tool when the worker's drain grace is over.
	errShutdown = fmt.Errorf("the worker is shutting down: %w", pipeline.ErrLost)
)

// running is a call that this worker has.
type running struct {
	d      *broker.Delivery
	call   events.RequestedCall
	cancel context.CancelCauseFunc
	lease  lease
	// proving is held by who proves the right to the call anew.
	proving gate.Gate

	mu gate.Gate // of what follows
	// term is that of the worker's registration in which the right to the call was last proven.
	term     int
	seq      uint64      // what the next append on the call's chain expects
	claimed  bool        // the claim is this worker's
	conflict bool        // the call is another's, or answered: that was seen in the log
	other    events.Body // what another has written at the end of the call's chain, when a result met it there
	started  bool        // the tool may have begun
	// returned is closed when the tool has returned; nil while it has not begun.
	returned chan struct{}
}

// began reports whether the tool may have begun.
func (r *running) began() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}

// wasStopped reports whether a result met the end of a call that was stopped: its owner has written that.
func (r *running) wasStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	end, ok := r.other.(events.Finished)
	if !ok {
		return false
	}
	switch end.Result.Code {
	case toolyard.Canceled, toolyard.SiblingCanceled, toolyard.DeadlineExceeded, toolyard.Skipped:
		return true
	}
	return false
}

// leftBehind reports whether the tool has begun and has not returned.
func (r *running) leftBehind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned == nil {
		return false
	}
	select {
	case <-r.returned:
		return false
	default:
		return true
	}
}

func (r *running) key() callKey { return callKey{r.d.Key(), r.call.Index} }

// runMessage runs the calls of one message.
func (w *Worker) runMessage(ctx context.Context, d *broker.Delivery) {
	failpoint.Hit(failpoint.CallTaken)
	var tools []<-chan struct{} // each closed when a tool has returned
	defer func() {              // one that does not keeps the slot, until it does or the worker ends
		for _, returned := range tools {
			select {
			case <-returned:
			case <-ctx.Done():
			}
		}
	}()
	done := true
	for _, call := range d.Calls {
		done = w.runCall(ctx, d, call, &tools) && done
	}
	if !done {
		return // given back, or left to be delivered again
	}
	failpoint.Hit(failpoint.ResultStored)
	if err := d.Done(ctx); err != nil {
		// It will be delivered again, and found to be answered.
		w.log.Info("a call is answered, but its message could not be acknowledged", "batch", d.Key(), "error", err)
	}
}

// runCall takes one call to its result in the log. It reports whether the call no longer needs this message. It
// appends to tools when it has started a tool.
func (w *Worker) runCall(ctx context.Context, d *broker.Delivery, call events.RequestedCall,
	tools *[]<-chan struct{}) (settled bool) {
	log := w.log.With("agent", d.Agent, "batch", d.Batch, "call", call.Index, "tool", call.Tool)
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{d: d, call: call, cancel: cancel, seq: call.Expected}
	r.lease.begin(w.b.Settings().CallAckWait, d.Received)
	r.term, _ = w.registered.holds()
	if !w.addRunning(r) { // delivered again while this worker still has it
		w.giveBack(log, d, returnPause)
		return false
	}
	defer w.removeRunning(r)
	if err := w.findEarlierRun(ctx, r); err != nil {
		log.Warn("a call that was delivered before is given back", "error", err)
		w.giveBack(log, d, returnPause)
		return false
	}
	call = r.call
	_, entry, known := w.tools.Lookup(call.Tool)
	if !known && w.withdrawn(ctx, call.Tool) {
		log.Info("a tool was withdrawn after the batch was planned")
		return answered(w.finish(ctx, r, w.toolWithdrawn(r)))
	}
	if !known || entry.Hash != call.Declaration {
		if d.Deliveries < maxDeliveries {
			w.returnUnstarted(ctx, d, returnPause)
			return false
		}
		log.Warn("no worker of the pool has the tool as it was planned")
		return answered(w.finish(ctx, r, w.toolUnavailable(r)))
	}
	if w.elsewhere(&entry.Declaration, call.Judgement.Class) && d.Deliveries < maxDeliveries {
		w.returnUnstarted(ctx, d, returnPause)
		return false
	}
	kept, stopKeeping := context.WithCancel(callCtx)
	var keeping sync.WaitGroup
	keeping.Go(func() { w.keepLease(kept, r) })
	defer keeping.Wait()
	defer stopKeeping()
	// The owner's clock decides the deadline; this one only sees to it that nothing runs for ever when nobody says
	// stop.
	limited, stopLimit := context.WithTimeoutCause(callCtx, time.Duration(d.RemainingMS)*time.Millisecond,
		pipeline.ErrDeadline)
	defer stopLimit()

	job, err := w.job(limited, r)
	if err != nil {
		log.Error("a call cannot be run", "error", err, "deliveries", d.Deliveries)
		if d.Deliveries < maxDeliveries { // what it needs may only be slow to come
			w.returnUnstarted(ctx, d, returnPause)
			return false
		}
		return answered(w.finish(ctx, r, w.ended(r, toolyard.PhaseSchedule, toolyard.InternalError,
			"Internal error: the worker could not read this call."+r.earlierEvidence().Sentence(), err)))
	}
	job.QueueMS = max(0, float64(d.Received.Sub(d.QueuedAt))/float64(time.Millisecond))
	var change *tool.SessionChange
	job.SessionChange = func(c tool.SessionChange) { change = &c }
	progress := w.reporter(r)
	job.Progress = progress.report
	result, err := w.pipe.Run(limited, job)
	progress.end()
	if r.began() {
		*tools = append(*tools, r.returned)
	}
	if r.leftBehind() {
		log.Warn("a tool was told to stop and has not returned; it keeps its slot", "reason", context.Cause(limited))
	}
	if waiting, ok := errors.AsType[*pipeline.WaitingError](err); ok {
		return w.storeWaiting(limited, r, waiting)
	}
	if errors.Is(err, pipeline.ErrLost) {
		return w.settleLost(ctx, r, context.Cause(limited))
	}
	failpoint.Hit(failpoint.ResultReady)
	if w.worthRetrying(r, &result) {
		err = w.appendCall(ctx, r, events.AttemptFailed{
			Worker: w.cfg.ID, Attempt: call.Attempt, Code: result.Code, Reason: result.Error,
			RetryAfterMS: result.RetryAfterMS,
			NotStarted:   result.Attempts < call.Attempt,
		})
	} else {
		err = w.appendCall(ctx, r, events.Finished{Result: result, Session: change})
	}
	if err != nil {
		level := slog.LevelWarn
		// Whoever stopped the call has answered for it first.
		if answered(err) && (context.Cause(limited) != nil || r.wasStopped()) {
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "a result was not stored", "error", err)
	}
	return answered(err)
}

// storeWaiting stores that a call needs a person. The worker is then done with it: after the decision it is queued
// again.
func (w *Worker) storeWaiting(ctx context.Context, r *running, e *pipeline.WaitingError) (settled bool) {
	body := events.Waiting{
		Worker: w.cfg.ID, Attempt: r.call.Attempt - 1, Reason: e.Reason, Source: e.Source,
		Destructive: e.Judgement.Destructive,
		Class:       e.Judgement.Class, Input: e.Observable, InputSHA256: e.InputHash, Remember: e.Remember,
		Facts:   e.Facts,
		Context: e.Context,
		Diff:    e.Diff,
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
		return w.settleLost(ctx, r, err)
	}
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Warn("a call that needs a person is delivered again", "batch", r.d.Key(), "call", r.call.Index,
			"error", err)
	}
	return answered(err)
}

// answered reports whether a call has an answer in the log after an append: this one's, or another's.
func answered(err error) bool { return err == nil || errors.Is(err, broker.ErrConflict) }

// maxRetryAfter is the longest pause that a tool may ask for and still be retried here; a longer one is the model's to
// wait.
const maxRetryAfter = 5 * time.Second

// retryRoom is how much time a batch must have left, beyond the pause, for another attempt.
const retryRoom = 2 * time.Second

// worthRetrying reports whether the call gets another attempt before the model sees the failure: the failure may
// pass, and the call may run twice or did not run. A timeout gets none, because it has taken long already.
func (w *Worker) worthRetrying(r *running, res *toolyard.Result) bool {
	pause := time.Duration(res.RetryAfterMS) * time.Millisecond
	started := res.Attempts >= r.call.Attempt
	return res.IsError && res.Retryable && res.Code != toolyard.Timeout && (r.call.Judgement.Idempotent || !started) &&
		r.call.Attempt < r.d.MaxAttempts && pause <= maxRetryAfter &&
		time.Since(r.d.Received)+pause+retryRoom < time.Duration(r.d.RemainingMS)*time.Millisecond
}

func (w *Worker) addRunning(r *running) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[r.key()]; ok {
		return false
	}
	w.running[r.key()] = r
	if why := w.aborts.reason(r.key()); why != nil {
		r.cancel(why)
	}
	return true
}

// holds reports whether this worker has a call.
func (w *Worker) holds(k toolyard.BatchKey, index int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.running[callKey{k, index}]
	return ok
}

func (w *Worker) removeRunning(r *running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r.key())
}

// job is the call as the pipeline sees it.
func (w *Worker) job(ctx context.Context, r *running) (pipeline.Job, error) {
	d, call := r.d, r.call
	deny, err := policy.ParseRules(d.Deny) // the dispatcher has read them before
	if err != nil {
		return pipeline.Job{}, err
	}
	ask, err := policy.ParseRules(d.Ask)
	if err != nil {
		return pipeline.Job{}, err
	}
	input := call.Input
	var approved *pipeline.Approved
	if a := call.Approved; a != nil {
		approved = &pipeline.Approved{By: a.By, InputHash: a.InputSHA256, Edited: a.Input != "",
			Waited: time.Duration(a.WaitedMS) * time.Millisecond, Context: a.Context}
		if a.Input != "" {
			if input, err = w.b.ChangedInput(broker.ForCall(ctx, d.Key(), call.Index), d.Agent, a.Input); err != nil {
				return pipeline.Job{}, fmt.Errorf("read the approved input: %w", err)
			}
		}
	}
	return pipeline.Job{
		Approved: approved, Remembered: d.Remembered, Context: d.Context,
		CallContext: pipeline.CallContext{
			Key: d.Key(), Index: call.Index, Session: d.Session, Workspace: d.Workspace, Interactive: d.Interactive,
			WorkspaceDir: w.cfg.Workspaces[d.Workspace], Root: w.roots[d.Workspace],
		},
		Call:        toolyard.Call{ID: call.ID, Tool: call.Tool, Input: input, Echo: call.Echo},
		Start:       func(ctx context.Context) (func(), error) { return w.start(ctx, r) },
		Declaration: call.Declaration, Judgement: call.Judgement, WasConcurrent: d.WasConcurrent, Attempt: call.Attempt,
		As: call.As, FencingToken: d.Ticket,
		CallTimeout: time.Duration(d.CallTimeoutMS) * time.Millisecond, Rules: policy.Rules{Deny: deny, Ask: ask},
		CommitPoint: func() error { return w.commit(ctx, r) }, Blobs: agentBlobs{w.b, d.Key(), call.Index},
		Tools: func(ctx context.Context) ([]tool.Offered, error) { return w.surfaces.offered(ctx, w.b, d.Surface) },
	}, nil
}

// finish stores a result as the call's. It wraps [broker.ErrConflict] when the call has one already.
func (w *Worker) finish(ctx context.Context, r *running, res toolyard.Result) error {
	return w.appendCall(ctx, r, events.Finished{Result: res})
}

// appendCall appends to the call's chain. It retries behind this worker's own claim, whose answer was lost, and
// waits while the stream is full.
func (w *Worker) appendCall(ctx context.Context, r *running, body events.Body) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// What a call came to is worth waiting for, also when the worker is being stopped, though not for long then.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(goodbyeTimeout, cancel) })()
	for {
		var rec batch.Record
		err := broker.RetryFull(storing, w.log.With("batch", r.d.Key(), "call", r.call.Index), func() (err error) {
			rec, err = w.b.Append(storing, r.d.Key(), batch.ChainCall, w.cfg.Pool, r.call.Index, r.seq, body)
			return err
		})
		switch {
		case err == nil:
			r.seq = rec.Seq
			w.noteEnded(r)
			return nil
		case errors.Is(err, broker.ErrConflict) && !r.conflict:
			expected, claimed := r.seq, r.claimed
			if end, lookErr := w.recogniseLocked(ctx, r); lookErr != nil || r.seq == expected {
				if lookErr == nil { // somebody else has stored an end
					r.conflict, r.other = true, end.Body
					w.noteEnded(r)
				}
				return errors.Join(err, lookErr)
			}
			// not behind a claim, under which something may have begun
			if body.EventType() == events.CallWaiting && !claimed {
				return errClaimed
			}
		default:
			return err
		}
	}
}

// toolUnavailable is the result of a call whose tool no worker of the pool has as it was planned.
func (w *Worker) toolUnavailable(r *running) toolyard.Result {
	res := w.ended(r, toolyard.PhaseSchedule, toolyard.DependencyUnavailable,
		fmt.Sprintf("No worker has the tool %s as it was when this batch was planned.%s Call again.", r.call.Tool,
			r.earlierEvidence().Sentence()),
		fmt.Errorf("declaration %.12s after %d deliveries", r.call.Declaration, r.d.Deliveries))
	res.Retryable = true
	return res
}

// toolWithdrawn is the result of a call whose tool was withdrawn.
func (w *Worker) toolWithdrawn(r *running) toolyard.Result {
	return w.ended(r, toolyard.PhaseResolveTool, toolyard.UnknownTool,
		fmt.Sprintf("There is no tool %q any more: it was withdrawn while this "+
			"batch ran.%s "+
			"Do without it, or use another tool.", r.call.Tool, r.earlierEvidence().Sentence()),
		errors.New("no worker of the pool has the tool now"))
}

// ended is a result that the worker makes without the pipeline.
func (w *Worker) ended(
	r *running, at toolyard.Phase, code toolyard.Code, message string, why error,
) toolyard.Result {
	res := outcome.Ended(toolyard.Result{
		Index: r.call.Index, CallID: r.call.ID, Tool: r.call.Tool, Echo: r.call.Echo, Code: code,
		Error: message, Detail: why.Error(),
		Class: r.call.Judgement.Class, WasConcurrent: r.d.WasConcurrent && r.began(), Worker: w.cfg.ID,
		Attempts: r.call.Attempt - 1,
	}, at, why.Error())
	if r.began() {
		res.Attempts = r.call.Attempt
	}
	return res
}
