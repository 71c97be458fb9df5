package worker

import (
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// maxAborts bounds the calls that are remembered to have been aborted. When there are more, the oldest are forgotten: their owner
// tells again.
const maxAborts = 10_000

// aborts are the calls that were aborted not long ago, each with the reason. A message that was on its way to this worker when
// its call was aborted comes after the notice, and must not start.
type aborts struct {
	kept  time.Duration
	why   map[callKey]error
	order []abortedCall // the oldest first
}

type abortedCall struct {
	key callKey
	at  time.Time
}

// newAborts remembers for as long as an owner waits for what workers have to say.
func newAborts(kept time.Duration) aborts { return aborts{kept: kept, why: map[callKey]error{}} }

// note remembers an abort. One that is remembered stays as it was.
func (a *aborts) note(k callKey, why error, now time.Time) {
	for len(a.order) > 0 && (now.Sub(a.order[0].at) > a.kept || len(a.order) >= maxAborts) {
		delete(a.why, a.order[0].key)
		a.order = a.order[1:]
	}
	if _, known := a.why[k]; !known {
		a.why[k] = why
		a.order = append(a.order, abortedCall{k, now})
	}
}

// of returns why a call was aborted; nil when it was not, or long ago.
func (a *aborts) of(k callKey) error { return a.why[k] }

// aborted reports whether every call of a message was aborted.
func (w *Worker) aborted(d *broker.Delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range d.Calls {
		if w.aborts.of(callKey{d.Key(), c.Index}) == nil {
			return false
		}
	}
	return true
}

// abort stops calls that were aborted by broadcast, and those that come to this worker a moment later.
func (w *Worker) abort(n broker.AbortNotice, err error) {
	if err != nil {
		w.log.Warn("an abort cannot be read", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range n.Calls {
		k := callKey{toolyard.BatchKey{Agent: n.Agent, ID: n.Batch}, i}
		w.aborts.note(k, cause(&n), time.Now())
		if r, ok := w.running[k]; ok {
			r.cancel(cause(&n))
		}
	}
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
