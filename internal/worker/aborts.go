package worker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// maxAborts bounds the calls that are remembered to have been aborted. Beyond it the oldest are dropped: their
// owner aborts them again.
const maxAborts = 10_000

// aborts are the calls that were aborted not long ago, with the reasons. A message may arrive after the notice that
// aborted its call, and must not start.
type aborts struct {
	kept  time.Duration
	calls map[callKey]abortedCall
	order []abortedCall // the oldest first
}

type abortedCall struct {
	key callKey
	why error
	at  time.Time
}

// newAborts makes aborts that last as long as an owner waits for its workers.
func newAborts(kept time.Duration) aborts {
	return aborts{kept: kept, calls: map[callKey]abortedCall{}}
}

// add remembers an abort. One that is remembered stays as it is.
func (a *aborts) add(k callKey, why error, now time.Time) {
	for len(a.order) > 0 && (now.Sub(a.order[0].at) > a.kept || len(a.order) >= maxAborts) {
		delete(a.calls, a.order[0].key)
		a.order = a.order[1:]
	}
	if _, known := a.calls[k]; !known {
		a.calls[k] = abortedCall{k, why, now}
		a.order = append(a.order, a.calls[k])
	}
}

// reason returns why a call was aborted, nil if it was not, or so long ago that its batch is not kept any more: another
// one may have its id.
func (a *aborts) reason(k callKey, now time.Time, s broker.Settings) error {
	if c, ok := a.calls[k]; ok && now.Sub(c.at) <= s.KeptFor() {
		return c.why
	}
	return nil
}

// whyAborted is [aborts.reason] at this time. w.mu is held.
func (w *Worker) whyAborted(k callKey) error { return w.aborts.reason(k, time.Now(), w.b.Settings()) }

// aborted reports whether a call was aborted.
func (w *Worker) aborted(k toolyard.BatchKey, index int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whyAborted(callKey{k, index}) != nil
}

// abort stops calls that were aborted by broadcast, and those that arrive a moment later.
func (w *Worker) abort(n broker.AbortNotice, err error) {
	if err != nil {
		w.log.Warn("an abort cannot be read", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := toolyard.BatchKey{Agent: n.Agent, ID: n.Batch}
	for _, i := range n.Calls {
		k := callKey{batch, i}
		w.aborts.add(k, cause(&n), time.Now())
		if stop, ok := w.inLine[k]; ok {
			stop()
		}
		if r, ok := w.running[k]; ok {
			r.cancel(cause(&n))
		}
	}
	for m := range w.messages {
		if m.d.Key() == batch {
			select {
			case m.news <- struct{}{}:
			default:
			}
		}
	}
}

// untilAborted returns a context for the wait of a call for its slot, which ends when the call is aborted. stop is
// called behind the wait.
func (w *Worker) untilAborted(ctx context.Context, k callKey) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, twice := w.inLine[k]; !twice {
		w.inLine[k] = cancel
		stop = func() {
			w.mu.Lock()
			delete(w.inLine, k)
			w.mu.Unlock()
			cancel()
		}
	} else { // delivered again: it will not run here
		stop = cancel
	}
	if w.whyAborted(k) != nil {
		cancel()
	}
	return ctx, stop
}

// cause is the reason for which a call's context ends.
func cause(n *broker.AbortNotice) error {
	switch n.Code {
	case toolyard.SiblingCanceled:
		return pipeline.ErrSiblingCanceled{Culprit: n.Culprit}
	case toolyard.DeadlineExceeded:
		return pipeline.ErrDeadline
	default:
		return pipeline.CanceledError{Reason: n.Reason, By: n.By}
	}
}
