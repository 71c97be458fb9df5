package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/suspend"
)

// lease is a right to act, on a clock that nobody sets, and that goes on while the machine is suspended. It counts from
// when the last answered heartbeat was sent. Once it has lapsed it stays lapsed for what was begun under it: the stream
// answers a heartbeat also for a message that another worker has by now, and an owner may have settled the calls of a
// worker that fell silent.
type lease struct {
	clock *suspend.Clock
	mu    sync.Mutex
	wait  time.Duration // whose parts [broker.Lease] and [broker.Stop] are
	since time.Time
	// lapsed says that it has run out. term counts how often it was begun anew since, and ended is when what was
	// begun in the term before had to stop.
	lapsed bool
	term   int
	ended  time.Time
	// renewed is closed and replaced when the lease is renewed.
	renewed chan struct{}
}

// begin starts a lease.
func (l *lease) begin(wait time.Duration, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait, l.since, l.lapsed, l.renewed = wait, since, false, make(chan struct{})
	l.clock = cmp.Or(l.clock, suspend.Machine)
}

// checkLapsed notes whether the lease has lapsed. l.mu is held.
func (l *lease) checkLapsed() {
	l.lapsed = l.lapsed || l.clock.Elapsed(l.since) > broker.Lease(l.wait)
}

// remaining returns how long the lease lasts if it is not renewed.
func (l *lease) remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkLapsed(); l.lapsed {
		return 0
	}
	return broker.Lease(l.wait) - l.clock.Elapsed(l.since)
}

// holds reports whether the lease has not lapsed, and which term it is in.
func (l *lease) holds() (term int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkLapsed()
	return l.term, !l.lapsed
}

// current returns since when the lease holds. It reports false when it has lapsed.
func (l *lease) current() (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkLapsed()
	return l.since, !l.lapsed
}

// renew extends the lease, unless it has lapsed. Answers may come out of order.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checkLapsed(); !l.lapsed && sent.After(l.since) {
		l.since = sent
		l.signal()
	}
}

// renewOrRestart extends the lease, or begins a new term when it has lapsed. What was begun in the old term stays
// without a right.
func (l *lease) renewOrRestart(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !sent.After(l.since) || l.clock.Elapsed(sent) > broker.Lease(l.wait) {
		return // the answer came too late to be worth anything
	}
	if l.checkLapsed(); l.lapsed {
		l.term++
		l.ended = l.since.Add(broker.Stop(l.wait))
	}
	l.since, l.lapsed = sent, false
	l.signal()
}

func (l *lease) signal() {
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// stopTime returns when what was begun in a term has to stop, if its right is not proven before.
func (l *lease) stopTime(term int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch term {
	case l.term:
		return l.since.Add(broker.Stop(l.wait))
	case l.term - 1:
		return l.ended
	}
	return time.Time{} // long ago
}

// now is the time for a heartbeat that is about to be sent.
func (l *lease) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.Now()
}

// renewal returns a channel that is closed when the lease is renewed.
func (l *lease) renewal() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

var (
	// errLapsed stops a tool when this worker's right to run its call has run out.
	errLapsed = fmt.Errorf("the lease lapsed: %w", pipeline.ErrLost)
	// errSettled stops a tool when the log says that the call was settled while the lease had lapsed.
	errSettled = fmt.Errorf("the call was settled while the lease had lapsed: %w", pipeline.ErrLost)
)

// mayAct returns an error when this worker may have lost the right to act for the call: by the delivery's lease, or
// by its own registration, from which the owner judges whether the worker is alive.
func (w *Worker) mayAct(r *running) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return w.mayActLocked(r)
}

func (w *Worker) mayActLocked(r *running) error {
	_, held := r.lease.holds()
	term, alive := w.registered.holds()
	if !held || !alive || term != r.term {
		return errLapsed
	}
	return nil
}

// stopTime returns when the call's tool has to stop, if its right is not proven before.
func (w *Worker) stopTime(r *running) time.Time {
	r.mu.Lock()
	term := r.term
	r.mu.Unlock()
	registered, delivered := w.registered.stopTime(term), r.lease.stopTime(0)
	if delivered.Before(registered) {
		return delivered
	}
	return registered
}

// commit says whether a running call may act now. Where its lease has lapsed it waits until the right is proven
// again, or until the tool has to stop.
func (w *Worker) commit(ctx context.Context, r *running) error {
	if err := w.mayAct(r); err == nil {
		return nil
	}
	return w.prove(ctx, r)
}

// prove renews the right to a call whose lease has lapsed. It stores another claim behind what this worker knows of
// the call's chain: once that is stored, nobody has settled the call, and nobody can settle it without seeing the
// claim. It tries until the tool has to stop. An error means that the tool has to stop now.
func (w *Worker) prove(ctx context.Context, r *running) error {
	stop := w.stopTime(r)
	ctx, cancel := context.WithDeadlineCause(ctx, stop, errLapsed)
	defer cancel()
	r.proving.Lock()
	defer r.proving.Unlock()
	for {
		if err := w.mayAct(r); err == nil {
			return nil // somebody else has proven it
		}
		next := w.registered.renewal()
		if term, alive := w.registered.holds(); alive {
			err := w.claimAnew(ctx, r, term)
			switch {
			case err == nil:
				w.log.Info("a lease lapsed, and the claim still stands: the call goes on", "batch", r.d.Key(),
					"call", r.call.Index)
				return nil
			case errors.Is(err, broker.ErrConflict):
				return errSettled
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next:
		}
	}
}

// claimAnew stores another claim of a call, and restarts its leases in a term of the registration.
func (w *Worker) claimAnew(ctx context.Context, r *running, term int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.lease.now()
	if err := r.d.Alive(ctx); err != nil { // or others are handed the call while it runs
		return err
	}
	rec, err := r.chain.append(ctx, r.seen, events.Claimed{Call: r.named(), Worker: w.cfg.ID,
		Attempt: r.call.Attempt, Ticket: r.d.Ticket, Renewed: true}, r.call.Index)
	if err != nil {
		return err
	}
	r.seen, r.claimed, r.term = rec.Seq, true, term
	r.lease.begin(w.b.Settings().CallAckWait, sent)
	return w.mayActLocked(r)
}

// keepLease proves the right to a running call when a lease has lapsed, and stops the tool when that fails, until it
// is told to stop. The message's heartbeats renew the lease. Most calls are over before a lease could lapse: until
// then it needs no goroutine.
func (w *Worker) keepLease(ctx context.Context, r *running) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	return crew.OnceDue(w.lapses(r), func() { w.watchLease(ctx, r) }, cancel)
}

// lapses is after how long one of the leases of a call has lapsed, if it is not renewed.
func (w *Worker) lapses(r *running) time.Duration {
	return max(0, min(r.lease.remaining(), w.registered.remaining())) + time.Millisecond
}

func (w *Worker) watchLease(ctx context.Context, r *running) {
	for {
		lapses := time.NewTimer(w.lapses(r))
		select {
		case <-ctx.Done():
			lapses.Stop()
			return
		case <-lapses.C:
		}
		if err := w.mayAct(r); err != nil {
			if r.began() {
				err = w.prove(ctx, r)
			}
			if err != nil {
				r.cancel(err)
				return
			}
		}
	}
}
