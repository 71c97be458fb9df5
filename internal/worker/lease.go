package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// lease is a right to act, on the monotonic clock. It is renewed from when the last answered heartbeat was sent. Once it has
// lapsed it stays so for whatever was begun under it: the stream answers a heartbeat also for a message that is another's by
// now, and an owner may have settled what a worker left that fell silent.
type lease struct {
	mu    sync.Mutex
	wait  time.Duration // whose parts [broker.Lease] and [broker.Stop] are
	since time.Time
	// lapsed says that it has run out. term counts how often it was begun anew since, and ended is when what was begun in the
	// term before had to stop.
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
}

// look notes whether the lease has run out. l.mu is held.
func (l *lease) look() {
	l.lapsed = l.lapsed || time.Since(l.since) > broker.Lease(l.wait)
}

// left is how long the lease lasts if it is not renewed.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look(); l.lapsed {
		return 0
	}
	return broker.Lease(l.wait) - time.Since(l.since)
}

// holds reports whether the lease has not lapsed, and which term it is in.
func (l *lease) holds() (term int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return l.term, !l.lapsed
}

// renew extends the lease, unless it has lapsed before. Answers may come out of order.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look(); !l.lapsed && sent.After(l.since) {
		l.since = sent
		l.tell()
	}
}

// again extends the lease, or begins a new term when it has lapsed: what was begun in the old one stays without a right.
func (l *lease) again(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !sent.After(l.since) || time.Since(sent) > broker.Lease(l.wait) {
		return // the answer came too late to be worth anything
	}
	if l.look(); l.lapsed {
		l.term++
		l.ended = l.since.Add(broker.Stop(l.wait))
	}
	l.since, l.lapsed = sent, false
	l.tell()
}

func (l *lease) tell() {
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// stops is when what was begun in a term has to stop, if its right is not proven before.
func (l *lease) stops(term int) time.Time {
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

// next is closed when the lease is renewed.
func (l *lease) next() <-chan struct{} {
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

// mayAct reports an error when this worker's right to act for the call is not certain: the delivery's lease, or its own
// place in the registry, by which the owner judges whether it is alive.
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

// stops is when the call's tool has to stop, if its right is not proven before.
func (w *Worker) stops(r *running) time.Time {
	r.mu.Lock()
	term := r.term
	r.mu.Unlock()
	registered, delivered := w.registered.stops(term), r.lease.stops(0)
	if delivered.Before(registered) {
		return delivered
	}
	return registered
}

// commit says whether a running call may act now. Where its lease has lapsed it waits until that is proven anew, or until the
// tool has to stop.
func (w *Worker) commit(ctx context.Context, r *running) error {
	if err := w.mayAct(r); err == nil {
		return nil
	}
	return w.prove(ctx, r)
}

// prove renews the right to a call whose lease has lapsed, by another claim behind what this worker knows of the call's chain:
// when that is stored nobody has settled the call meanwhile, and nobody can any more without seeing it. It tries until the tool has
// to stop. An error means that the tool has to stop now.
func (w *Worker) prove(ctx context.Context, r *running) error {
	stop := w.stops(r)
	ctx, cancel := context.WithDeadlineCause(ctx, stop, errLapsed)
	defer cancel()
	r.proving.Lock()
	defer r.proving.Unlock()
	for {
		if err := w.mayAct(r); err == nil {
			return nil // somebody else has proven it
		}
		next := w.registered.next()
		if term, alive := w.registered.holds(); alive {
			err := w.claimAnew(ctx, r, term)
			switch {
			case err == nil:
				w.log.Info("a lease lapsed, and the claim still stands: the call goes on", "batch", r.d.Key(), "call", r.call.Index)
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

// claimAnew stores another claim of a call, and begins its leases anew, in a term of the registration.
func (w *Worker) claimAnew(ctx context.Context, r *running, term int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := time.Now()
	if err := r.d.Alive(ctx); err != nil { // or others are handed the call while it runs
		return err
	}
	rec, err := w.b.Append(ctx, r.d.Key(), batch.ChainCall, w.cfg.Pool, r.call.Index, r.seq,
		events.Claimed{Worker: w.cfg.ID, Attempt: r.call.Attempt, Ticket: r.d.Ticket, Renewed: true})
	if err != nil {
		return err
	}
	r.seq, r.claimed, r.term = rec.Seq, true, term
	r.lease.begin(w.b.Settings().CallAckWait, sent)
	return w.mayActLocked(r)
}

// keep renews the delivery's lease, proves the right to a running call when a lease has lapsed, and stops the tool when that
// cannot be done, or when the log says that the call is over: what is broadcast may not have come.
func (w *Worker) keep(ctx context.Context, r *running) {
	beat := broker.Heartbeat(w.b.Settings().CallAckWait)
	var beating sync.WaitGroup
	defer beating.Wait()
	sent := r.d.Received
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
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
		// Heartbeats do not wait for each other's answers: these may take long to come, and still be worth something.
		if time.Since(sent) >= beat {
			sent = time.Now()
			beating.Go(func() { w.heartbeat(ctx, r) })
		}
		timer.Reset(max(time.Millisecond, min(beat-time.Since(sent), r.lease.left()+time.Millisecond, w.registered.left()+time.Millisecond)))
	}
}

// heartbeat renews the lease of a delivery, and looks whether its call has an end in the log.
func (w *Worker) heartbeat(ctx context.Context, r *running) {
	wait := w.b.Settings().CallAckWait
	ctx, cancel := context.WithTimeout(ctx, broker.Lease(wait))
	defer cancel()
	sent := time.Now()
	if err := r.d.Alive(ctx); err != nil {
		return // the lease says what that means
	}
	r.lease.renew(sent)
	if over, err := w.b.Answered(ctx, r.d.Key(), w.cfg.Pool, r.call.Index); err == nil && over {
		r.cancel(pipeline.ErrCanceled)
	}
}
