package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/gate"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/traceparent"
)

var (
	// errForgotten ends a call that this worker has begun before, and whose end it could not store.
	errForgotten = fmt.Errorf("the call was begun before: %w", pipeline.ErrLost)
	// errClaimed says that a call that would wait for a person is claimed already, by this worker.
	errClaimed = fmt.Errorf("the call was claimed before: %w", pipeline.ErrLost)
	// errShutdown stops a tool when the worker's drain grace is over.
	errShutdown = fmt.Errorf("the worker is shutting down: %w", pipeline.ErrLost)
)

// callKey names a call among all.
type callKey struct {
	batch toolyard.BatchKey
	index int
}

// running is a call that this worker has.
type running struct {
	d      *broker.Delivery
	chain  *chain
	call   events.RequestedCall
	logs   *slog.Logger
	cancel context.CancelCauseFunc
	lease  lease
	// told is the end of what was told of a background call's output.
	told tail
	// overlay is the directory that the call runs in instead of the workspace's own; nil: it runs in the workspace.
	overlay *place.Root
	// proving is held by who proves the right to the call anew.
	proving gate.Gate

	mu gate.Gate // of what follows
	// term is that of the worker's registration in which the right to the call was last proven.
	term     int
	seen     uint64      // the last event about the call that is known here, 0 for none
	claimed  bool        // the claim is this worker's
	conflict bool        // the call is another's, or answered: that was seen in the log
	other    events.Body // what another has written about the call, when a result met it
	started  bool        // the tool may have begun
	// returned is closed when the tool has returned; nil while it has not begun.
	returned chan struct{}
}

// log is the log about this call. It is made where something is to be said: of most calls nothing is.
func (r *running) log() *slog.Logger {
	return logOf(r.logs, r.d.Trace.Parent).With("agent", r.d.Agent, "batch", r.d.Batch, "call", r.call.Index, "tool",
		r.call.Tool)
}

// logOf returns a log that names the trace of a call.
func logOf(log *slog.Logger, parent string) *slog.Logger {
	if id := traceparent.TraceID(parent); id != "" {
		return log.With("trace_id", id)
	}
	return log
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
	for _, res := range end.Results() {
		switch res.Code {
		case toolyard.Canceled, toolyard.SiblingCanceled, toolyard.DeadlineExceeded, toolyard.Skipped:
			if res.Index == r.call.Index {
				return true
			}
		}
	}
	return false
}

// whenReturned is closed when the tool has returned; nil when it has not begun.
func (r *running) whenReturned() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.returned
}

// leftBehind reports whether the tool has begun and has not returned.
func (r *running) leftBehind() bool {
	returned := r.whenReturned()
	if returned == nil {
		return false
	}
	select {
	case <-returned:
		return false
	default:
		return true
	}
}

// named is how an event names the call.
func (r *running) named() int { return named(r.d, r.call.Index) }

// named is how an event names a call: not at all when it is the first of its item.
func named(d *broker.Delivery, call int) int {
	if call == d.Item {
		return 0
	}
	return call
}

func (r *running) key() callKey { return callKey{r.d.Key(), r.call.Index} }

func (w *Worker) addRunning(r *running) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[r.key()]; ok {
		return false
	}
	w.running[r.key()] = r
	if why := w.whyAborted(r.key()); why != nil {
		r.cancel(why)
	}
	return true
}

func (w *Worker) removeRunning(r *running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r.key())
}

// attemptKey names one attempt of a call.
type attemptKey struct {
	callKey
	attempt int
}

// noteBegun notes that an attempt was started, until its end is stored. A call that may run twice and is not claimed
// needs none: its next delivery counts as the next attempt.
func (w *Worker) noteBegun(r *running, claimed bool) {
	if r.call.Judgement.Idempotent && !claimed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun.note(attemptKey{r.key(), r.call.Attempt}, time.Now(), w.b.Settings())
}

// begun are attempts, and when they began.
type begun struct {
	at map[attemptKey]time.Time
	// room is how many are kept before those are looked for that are too old.
	room int
}

// leastBegun is how many attempts a worker remembers that have begun, however old they are.
const leastBegun = 1_024

// note adds an attempt. Those of messages that went elsewhere are never taken out, so what no stream keeps any more is
// dropped now and then: it cannot be delivered again.
func (b *begun) note(k attemptKey, now time.Time, s broker.Settings) {
	if len(b.at) >= b.room {
		maps.DeleteFunc(b.at, func(_ attemptKey, at time.Time) bool { return now.Sub(at) > s.KeptFor() })
		b.room = max(leastBegun, 2*len(b.at))
	}
	if b.at == nil {
		b.at = map[attemptKey]time.Time{}
	}
	b.at[k] = now
}

// has reports whether an attempt has begun. One of a batch that is not kept any more does not count: another batch may
// have its id.
func (b *begun) has(k attemptKey, now time.Time, s broker.Settings) bool {
	at, has := b.at[k]
	return has && now.Sub(at) <= s.KeptFor()
}

// noteEnded notes that the end of an attempt is stored.
func (w *Worker) noteEnded(r *running) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.begun.at, attemptKey{r.key(), r.call.Attempt})
}

func (w *Worker) hasBegun(r *running) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun.has(attemptKey{r.key(), r.call.Attempt}, time.Now(), w.b.Settings())
}
