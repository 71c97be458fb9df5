package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// storeTimeout is how long a worker tries to store a result. It is longer than any election or restart of NATS.
const storeTimeout = 2 * time.Minute

// answered reports whether a call has an answer in the log after an append: this one's, or another's.
func answered(err error) bool { return err == nil || errors.Is(err, broker.ErrConflict) }

// storing returns the context in which what calls came to is stored. That is worth waiting for, also when the worker is
// being stopped, though not for long then.
func storing(ctx context.Context) (_ context.Context, stop func()) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	off := context.AfterFunc(ctx, func() { time.AfterFunc(goodbyeTimeout, cancel) })
	return out, func() { off(); cancel() }
}

// storage is the time that the ends of some calls have to be stored, all together. It begins when one is stored: most
// are taken along by another's append.
type storage struct {
	calls context.Context // of the message
	ctx   context.Context
	stop  func()
}

// of is the context in which the end of a call is stored. The first call's trace is that of all.
func (s *storage) of(call context.Context) context.Context {
	if s.ctx == nil {
		s.ctx, s.stop = storing(traceparent.With(s.calls, traceparent.From(call)))
	}
	return s.ctx
}

func (s *storage) end() {
	if s.stop != nil {
		s.stop()
	}
}

// finish stores a result as the call's. It wraps [broker.ErrConflict] when the call has one already.
func (w *Worker) finish(ctx context.Context, r *running, res toolyard.Result) error {
	in := &storage{calls: ctx}
	defer in.end()
	return w.storesEnd(ctx, r, &events.End{Result: res})(in)
}

// storesEnd returns what stores the end of the call, as finish does. From now on an append of another end of the item
// takes this one along.
func (w *Worker) storesEnd(ctx context.Context, r *running, end *events.End) (store func(*storage) error) {
	r.mu.Lock()
	ready := r.chain.offer(r.seen, end)
	r.mu.Unlock()
	return func(in *storage) error {
		if rec, ok := r.chain.storedAlready(ready); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = rec.Seq
			w.noteEnded(r)
			return nil
		}
		return w.store(in.of(ctx), r, events.CallFinished, func(ctx context.Context) (batch.Record, error) {
			if ready == nil { // behind an event that the first attempt has met
				ready = r.chain.offer(r.seen, end)
			}
			defer func() { ready = nil }()
			return r.chain.finish(ctx, ready)
		})
	}
}

// appendCall appends an event about the call to its item's chain.
func (w *Worker) appendCall(ctx context.Context, r *running, body events.Body) error {
	storing, stop := storing(ctx)
	defer stop()
	return w.store(storing, r, body.EventType(), func(ctx context.Context) (batch.Record, error) {
		return r.chain.append(ctx, r.seen, body, r.call.Index)
	})
}

// store makes an append about the call. It retries behind this worker's own claim, whose answer was lost, and waits
// while the stream is full.
func (w *Worker) store(storing context.Context, r *running, what events.Type,
	attempt func(context.Context) (batch.Record, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		rec, err := attempt(storing)
		switch {
		case err == nil:
			r.seen = rec.Seq
			w.noteEnded(r)
			return nil
		case !errors.Is(err, broker.ErrConflict) || rec.Seq == 0 || r.conflict:
			return err
		case !w.claimed(r, rec): // somebody else has stored an end
			r.conflict, r.other = true, rec.Body
			w.noteEnded(r)
			return err
		}
		claimed := r.claimed
		r.seen, r.claimed = rec.Seq, true
		// not behind a claim, under which something may have begun
		if what == events.CallWaiting && !claimed {
			return errClaimed
		}
	}
}

// lostTrack is the result of a call that may have been claimed before, by a claim that is lost.
func (w *Worker) lostTrack(r *running, why error) toolyard.Result {
	r.log().Error("a call that was delivered before is not run: what was stored of it is lost", "error", why)
	evidence := outcome.Evidence{Tool: r.call.Tool, Judgement: r.call.Judgement, MayHaveStarted: true}
	return w.ended(r, toolyard.PhaseSchedule, toolyard.InternalError,
		"Internal error: the system lost track of this call."+evidence.Sentence(), why)
}

// finishLost stores a result as that of a call whose claim is lost, behind the claim if the server still counts it.
func (w *Worker) finishLost(ctx context.Context, r *running, res toolyard.Result) error {
	err := w.finish(ctx, r, res)
	lost, ok := errors.AsType[*broker.LostError](err)
	if !ok || lost.End == 0 {
		return err
	}
	r.chain.goBehind(lost.End)
	return w.finish(ctx, r, res)
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

// untagged is the result of a call that asks for tags which no worker of the pool has any more.
func (w *Worker) untagged(r *running, e *registry.Entry) toolyard.Result {
	lacks := fmt.Sprintf("%q", w.lacks(r, e))
	r.log().Warn("no worker of the pool has the tags that a call asks for", "tags", lacks)
	res := w.ended(r, toolyard.PhaseSchedule, toolyard.DependencyUnavailable,
		fmt.Sprintf("The workers for %s that had the tags %s have left.%s Call again.", r.call.Tool,
			strings.Trim(lacks, "[]"), r.earlierEvidence().Sentence()),
		fmt.Errorf("no worker of pool %s has the tags %s after %d deliveries", w.cfg.Pool, lacks, r.d.Deliveries))
	res.Retryable = true
	return res
}

// toolWithdrawn is the result of a call whose tool was withdrawn.
func (w *Worker) toolWithdrawn(r *running) toolyard.Result {
	return w.ended(r, toolyard.PhaseResolveTool, toolyard.UnknownTool,
		fmt.Sprintf("There is no tool %q any more: it was withdrawn while this "+
			"batch ran.%s "+
			"Do without it, or use another tool.", r.call.Tool, r.earlierEvidence().Sentence()),
		fmt.Errorf("no worker of the pool that takes %s calls has the tool now", r.call.Judgement.Class))
}

// ended is a result that the worker makes without the pipeline.
func (w *Worker) ended(
	r *running, at toolyard.Phase, code toolyard.Code, message string, why error,
) toolyard.Result {
	res := outcome.Ended(toolyard.Result{
		Index: r.call.Index, CallID: r.call.ID, Tool: r.call.Tool, Echo: r.call.Echo, Code: code,
		Error: message, Detail: why.Error(),
		Class: r.call.Judgement.Class, WasConcurrent: r.d.WasConcurrent && r.began(), Worker: w.cfg.ID,
		Attempts: r.call.Earlier(),
	}, at, why.Error())
	if r.began() {
		res.Attempts++
	}
	return res
}
