package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// message is a message of the work queue that this worker has, with its calls.
type message struct {
	w     *Worker
	d     *broker.Delivery
	chain *chain
	lease lease
	// width is how many of its calls may run at a time, and under how many stand in line or run.
	width, under int
	// news says that calls of the message may have been aborted.
	news chan struct{}

	mu   sync.Mutex
	rest []events.RequestedCall // calls that have not begun
	// back is how long to pause before the message is given back, for those
	// that still need it; negative when none does.
	back time.Duration
	open map[int]bool // calls that are not over here
	runs map[int]*running
}

func (w *Worker) newMessage(d *broker.Delivery) *message {
	m := &message{
		w: w, d: d, chain: w.newChain(d), rest: d.Calls, back: -1,
		runs: map[int]*running{}, open: map[int]bool{}, news: make(chan struct{}, 1),
	}
	for _, c := range d.Calls {
		m.open[c.Index] = true
	}
	m.lease.begin(w.b.Settings().CallAckWait, d.Received)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages[m] = true
	return m
}

// late is how long after the message came its calls may wait to begin. Then they are given back.
func (m *message) late() time.Duration { return broker.Lease(m.w.b.Settings().CallAckWait) / 2 }

// has reports whether a call of the message is not over here.
func (m *message) has(index int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[index]
}

// mayRepeat reports whether some of the message may have been run before, or by another worker. Its calls then run one
// at a time, so that one that kills its worker takes no other's attempt with it.
func (m *message) mayRepeat() bool {
	if m.d.Deliveries > 1 || m.d.Reconnected() {
		return true
	}
	for i := range m.d.Calls {
		if claimsFirst(m.d, &m.d.Calls[i]) {
			return true
		}
	}
	return false
}

// next takes a call that has not begun.
func (m *message) next() (call events.RequestedCall, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rest) == 0 {
		return call, false
	}
	call, m.rest = m.rest[0], m.rest[1:]
	return call, true
}

// begun reports whether all calls have begun.
func (m *message) begun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.rest) == 0
}

// takeRest takes those calls that have not begun for which a condition holds.
func (m *message) takeRest(holds func(events.RequestedCall) bool) (taken []events.RequestedCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rest []events.RequestedCall
	for _, c := range m.rest {
		if holds(c) {
			taken = append(taken, c)
		} else {
			rest = append(rest, c)
		}
	}
	m.rest = rest
	return taken
}

// over notes that a call no longer needs this worker. When it was the last one, the message is acknowledged, or given
// back if some call still needs it.
func (m *message) over(ctx context.Context, index int, settled bool, pause time.Duration) {
	m.mu.Lock()
	if !settled {
		m.back = max(m.back, pause)
	}
	delete(m.open, index)
	last, back := len(m.open) == 0, m.back
	m.mu.Unlock()
	switch {
	case !last:
	case back > 0:
		m.w.giveBack(m.w.log, m.d, back)
	case back == 0: // it is delivered again when its wait is over, or was given back
	default:
		failpoint.Hit(failpoint.ResultStored)
		if err := m.d.Done(); err != nil {
			// It will be delivered again, and found to be answered.
			m.w.log.Info("a call is answered, but its message could not be acknowledged", "batch", m.d.Key(), "error", err)
		}
	}
}

// giveBack gives back calls that did not begin here. If the message has others, their owner queues them again, one by
// one; if not, the message comes back after a pause.
func (m *message) giveBack(ctx context.Context, pause time.Duration, calls ...int) {
	settled := m.returned(ctx, calls...)
	for _, i := range calls {
		m.over(ctx, i, settled[i], pause)
	}
}

// returned stores that calls did not begin here, and returns those that no longer need this message. For the only call
// of a message it does so when the next worker would otherwise count an attempt that did not happen.
func (m *message) returned(ctx context.Context, calls ...int) (settled map[int]bool) {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	alone := len(m.d.Calls) == 1
	if alone && (m.d.Deliveries > 1 || claimsFirst(m.d, &m.d.Calls[0])) {
		return nil
	}
	last, seen, err := map[int]batch.Record{}, uint64(0), error(nil)
	if m.mayRepeat() {
		last, seen, err = m.chain.news(storing)
	}
	if err != nil {
		m.w.log.Info("what became of calls cannot be read; they are delivered again", "batch", m.d.Key(),
			"error", err)
		return nil
	}
	settled = map[int]bool{}
	body := events.Returned{Worker: m.w.cfg.ID}
	for _, c := range m.d.Calls {
		if !slices.Contains(calls, c.Index) {
			continue
		}
		begun := c.Attempt - 1
		switch b := last[c.Index].Body.(type) {
		case nil:
			if m.d.Deliveries > 1 && !claimsFirst(m.d, &c) { // whoever had it first may have begun it
				begun = c.Attempt
			}
		case events.Returned:
		case events.Claimed:
			settled[c.Index] = b.Worker != m.w.cfg.ID
			continue
		default:
			settled[c.Index] = true
			continue
		}
		if len(body.Calls) > 0 && begun != body.Attempt {
			continue // the message comes back with it
		}
		body.Calls, body.Attempt = append(body.Calls, c.Index), begun
	}
	if len(body.Calls) == 0 {
		return settled
	}
	back := body.Calls
	if alone {
		body = events.Returned{Worker: body.Worker, Call: named(m.d, back[0])}
	}
	switch _, err := m.chain.append(storing, seen, body, back...); {
	case err == nil && !alone:
		for _, i := range back {
			settled[i] = true
		}
	case err != nil && !errors.Is(err, broker.ErrConflict):
		m.w.log.Info("that calls were given back could not be stored; each counts as an attempt", "batch", m.d.Key(),
			"calls", back, "error", err)
	}
	return settled
}

// returnMessage gives a message back of which nothing was begun.
func (w *Worker) returnMessage(ctx context.Context, d *broker.Delivery) {
	m := w.newMessage(d)
	defer w.removeMessage(m)
	calls := indices(d.Calls)
	settled := m.returned(ctx, calls...)
	if slices.ContainsFunc(calls, func(i int) bool { return !settled[i] }) {
		w.giveBack(w.log, d, 0)
		return
	}
	if err := d.Done(); err != nil {
		w.log.Info("a message was returned, and could not be acknowledged", "batch", d.Key(), "error", err)
	}
}

func indices(calls []events.RequestedCall) []int {
	out := make([]int, len(calls))
	for n := range calls {
		out[n] = calls[n].Index
	}
	return out
}

// keep renews the leases of the message's calls, and stops those that the log says have ended: the broadcast may have
// been lost.
func (m *message) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	beat := broker.Heartbeat(m.w.b.Settings().CallAckWait)
	return crew.OnceDue(beat-time.Since(m.d.Received), func() {
		var beating sync.WaitGroup
		defer beating.Wait()
		due := time.NewTicker(beat)
		defer due.Stop()
		for {
			// Heartbeats do not wait for each other's answers: these may take long to come, and still be worth
			// something.
			beating.Go(func() { m.heartbeat(ctx) })
			select {
			case <-ctx.Done():
				return
			case <-due.C:
			}
		}
	}, cancel)
}

func (m *message) heartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, broker.Lease(m.w.b.Settings().CallAckWait))
	defer cancel()
	sent := m.lease.now()
	if err := m.d.Alive(ctx); err != nil {
		return // the leases say what that means
	}
	m.mu.Lock()
	m.lease.renew(sent)
	for _, r := range m.runs {
		r.lease.renew(sent)
	}
	m.mu.Unlock()
	last, _, err := m.chain.news(ctx)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for call, r := range m.runs {
		if _, over := last[call].Body.(events.Finished); over {
			r.cancel(pipeline.ErrCanceled)
		}
	}
}

// begin adds a call that begins, and starts its lease. It reports false when the message's has lapsed: another worker
// may have the message by now.
func (m *message) begin(r *running) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, ok := m.lease.current()
	if !ok {
		return false
	}
	r.lease.begin(m.w.b.Settings().CallAckWait, since)
	m.runs[r.call.Index] = r
	return true
}

func (m *message) end(r *running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, r.call.Index)
}

func (w *Worker) giveBack(log interface{ Warn(string, ...any) }, d *broker.Delivery, pause time.Duration) {
	if err := d.Return(pause); err != nil {
		log.Warn("a message was not given back; it is delivered again when its wait is over", "error", err)
	}
}

// holds reports whether this worker has a call.
func (w *Worker) holds(k toolyard.BatchKey, index int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for m := range w.messages {
		if m.d.Key() == k && m.has(index) {
			return true
		}
	}
	return false
}

func (w *Worker) removeMessage(m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.messages, m)
}
