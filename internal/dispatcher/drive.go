package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/ticket"
)

// runner is the shell around one batch's machine: it performs the effects in order, and feeds it what happens.
type runner struct {
	d   *Dispatcher
	log *slog.Logger
	key toolyard.BatchKey
	// workspace and term (the number of owners before this one) are set when this dispatcher owns the batch.
	workspace toolyard.Workspace
	term      int
	m         *batch.Machine
	mu        sync.Mutex // of sub
	sub       *broker.Submission
	lapsed    bool        // the machine knows that another may own the batch
	idle      atomic.Bool // it is open and has nothing to do

	surface        *registry.Surface // what the batch sees; nil until it is needed by a batch that was adopted
	feed           broker.Feed
	granted        chan grantAnswer
	noticed        chan batch.Noticed
	retryTicket    *grantAnswer      // a request that failed because the queue was full
	ticketRequests int               // numbers the requests, so that an answer to an earlier one is ignored
	queued         map[int]queued    // the messages in the work queue, by call
	lastHeard      map[int]time.Time // when the log last said anything about a call
	lastNews       time.Time         // when the log last said anything
	lastAsked      time.Time         // when workers were last asked about the calls that they claimed
	pending        []batch.Input
	// adopted says that another owner has started the current group. queueReconnects counts how often the connection
	// had been restored when this one queued the first call of it.
	adopted         bool
	queueReconnects *uint64
	complete        bool
	indexing        sync.WaitGroup // the entry of the index that is being written
}

// queued is a call's message in the work queue.
type queued struct {
	route batch.Route
	seq   uint64
	// reconnects is how often the connection had been restored when it was known to be there.
	reconnects uint64
}

type grantAnswer struct {
	take  int
	group int
	mode  ticket.Mode
	t     ticket.Ticket
	err   error
}

func (d *Dispatcher) newRunner(sub *broker.Submission) *runner {
	return &runner{
		d: d, key: sub.Key, sub: sub, log: d.log.With("agent", sub.Key.Agent, "batch", sub.Key.ID),
		granted: make(chan grantAnswer, 4), noticed: make(chan batch.Noticed, 1), queued: map[int]queued{},
		lastHeard: map[int]time.Time{},
	}
}

// run advances the batch until it is complete, lost, or ctx ends.
func (r *runner) run(ctx context.Context, s batch.State) error {
	r.workspace, r.term, r.adopted = s.Plan.Workspace, s.Takeovers, s.Takeovers > 0
	r.m = batch.New(r.d.cfg.machine(r.d.b.Settings().CallAckWait), s)
	for _, c := range s.Calls {
		if c.Status == batch.Claimed { // when it was claimed is not known here: this owner's patience begins now
			r.d.workers.heardFrom(c.Worker)
		}
	}
	indexing, stop := context.WithCancel(ctx)
	defer r.indexing.Wait()
	defer stop()
	r.index(indexing, &s)
	defer r.d.locks.StopWaiting(s.Plan.Workspace, r.key)
	r.lastNews = time.Now()
	// What was canceled or appended before the feed began.
	if err := r.read(ctx, batch.ChainControl, 0); err != nil {
		return err
	}
	if !s.Closed {
		if err := r.read(ctx, batch.ChainInput, 0); err != nil {
			return err
		}
	}
	beat := time.NewTicker(broker.Heartbeat(r.d.b.Settings().BatchAckWait))
	defer beat.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		if err := r.step(ctx); err != nil || r.complete {
			return err
		}
		if idle := r.m.Idle(); idle != r.idle.Load() {
			r.idle.Store(idle)
			r.d.admission.setIdle(r.key, idle)
		}
		if at := r.m.Wake(); at.IsZero() {
			wake.Stop()
		} else {
			wake.Reset(max(time.Until(at), time.Millisecond)) // a little late rather than early
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-r.feed.Copies():
			if err := r.live(ctx, m); err != nil {
				return err
			}
			for drained := false; !drained; { // what came meanwhile is one step, and one reply
				select {
				case m := <-r.feed.Copies():
					if err := r.live(ctx, m); err != nil {
						return err
					}
				default:
					drained = true
				}
			}
		case g := <-r.granted:
			if err := r.ticketAnswer(ctx, g); err != nil {
				return err
			}
		case n := <-r.noticed:
			r.pending = append(r.pending, n)
		case <-wake.C:
		case <-beat.C:
			if err := r.beat(ctx); err != nil {
				return err
			}
		}
	}
}

// step steps the machine and performs its effects, until there is nothing new.
func (r *runner) step(ctx context.Context) error {
	for {
		if !r.lapsed && r.submission().Lapsed() {
			r.lapsed = true
			r.pending = append(r.pending, batch.Lapsed{})
		}
		inputs := r.pending
		r.pending = nil
		effects, err := r.m.Step(time.Now(), inputs...)
		if err != nil {
			return err
		}
		if err := r.perform(ctx, effects); err != nil {
			return err
		}
		if len(r.pending) == 0 || r.complete {
			return nil
		}
	}
}

func (r *runner) perform(ctx context.Context, effects []batch.Effect) error {
	var calls []batch.Queue
	for _, e := range effects {
		switch e := e.(type) {
		case batch.Append:
			failpoint.HitIf(starts(e), failpoint.GroupStarting)
			if err := r.append(ctx, e); err != nil {
				return err
			}
		case batch.TakeTicket:
			failpoint.HitIf(e.Group > 0, failpoint.GroupOver)
			if err := r.awaitReadsStopped(ctx, e.Group); err != nil {
				return err
			}
			r.takeTicket(ctx, e.Group, e.Mode)
		case batch.ReleaseTickets:
			r.ticketRequests++
			if err := r.awaitReadsStopped(ctx, e.Group+1); err != nil {
				return err
			}
			if err := r.d.locks.Release(ctx, r.workspace, r.holder(e.Group)); err != nil {
				return err
			}
		case batch.Queue:
			calls = append(calls, e)
		case batch.Extend:
			extended, err := r.d.extend(ctx, r, r.m.State())
			if err != nil {
				return err
			}
			if err := r.append(ctx, batch.Append{Chain: batch.ChainBatch, Expected: e.Expected,
				Body: extended}); err != nil {
				return err
			}
		case batch.Abort:
			failpoint.Hit(failpoint.AbortDecided)
			notice := broker.AbortNotice{Agent: r.key.Agent, Batch: r.key.ID, Calls: e.Calls, Code: e.Code,
				Culprit: e.Culprit, Reason: e.Reason, By: e.By}
			if err := r.d.b.Abort(notice); err != nil {
				r.log.Warn("workers were not told to stop; they are told again", "error", err)
			}
			r.unqueue(ctx, e.Calls)
		case batch.Withdraw:
			r.withdraw(ctx, e.Calls)
		case batch.ListApproval:
			if err := r.listApproval(ctx, e); err != nil {
				return err
			}
		case batch.Remember:
			if err := r.remember(ctx, e.Change); err != nil {
				return err
			}
		case batch.Notify:
			r.notify(ctx)
		case batch.Park:
			return r.park(ctx)
		case batch.Complete:
			r.index(ctx, r.m.State())
			r.meter()
			failpoint.Hit(failpoint.BatchOver)
			r.complete = true
			r.indexing.Wait()
			if err := r.submission().Done(ctx); err != nil {
				// It will be delivered again, to whomever, who finds the batch complete.
				level := slog.LevelInfo
				if ctx.Err() != nil { // this dispatcher is being stopped
					level = slog.LevelDebug
				}
				r.log.Log(ctx, level, "the batch is complete, but its submission could not be acknowledged",
					"error", err)
			}
		}
	}
	return r.queue(ctx, calls)
}

// append stores an event, or finds what stands there instead.
func (r *runner) append(ctx context.Context, e batch.Append) error {
	var pool toolyard.Pool
	if e.Chain == batch.ChainCall {
		pool = r.m.State().Plan.Calls[e.Index].Pool
	}
	var rec batch.Record
	err := broker.RetryFull(ctx, r.log, func() (err error) {
		rec, err = r.d.b.Append(ctx, r.key, e.Chain, pool, e.Index, e.Expected, e.Body)
		return err
	})
	failpoint.HitIf(err == nil && replies(e, false), failpoint.SomeReplied)
	failpoint.HitIf(err == nil && replies(e, true), failpoint.AllReplied)
	if !errors.Is(err, broker.ErrConflict) {
		if err == nil {
			r.stored(rec)
		}
		return err
	}
	if e.Chain == batch.ChainBatch {
		return errLost
	}
	return r.read(ctx, e.Chain, e.Index)
}

// queue hands calls to the workers. It waits while the queue is full, because the calls are accepted.
func (r *runner) queue(ctx context.Context, calls []batch.Queue) error {
	if len(calls) == 0 {
		return nil
	}
	routes := make([]batch.Route, len(calls))
	requests := make([]events.Requested, len(calls))
	for i, c := range calls {
		routes[i], requests[i] = c.Route, c.Request
	}
	return broker.RetryFull(ctx, r.log, func() error {
		full := 0 // how many were refused for want of room: only those are tried again
		reconnects := r.d.b.Reconnects()
		if r.queueReconnects == nil {
			r.queueReconnects = &reconnects
		}
		var refused error
		for n, q := range r.d.b.QueueAll(ctx, r.m.State().Plan.Lane, routes, requests) {
			switch {
			case errors.Is(q.Err, broker.ErrFull):
				routes[full], requests[full] = routes[n], requests[n]
				full++
				refused = q.Err
			case q.Err != nil:
				return q.Err
			default:
				r.queued[requests[n].Calls[0].Index] = queued{routes[n], q.Seq, reconnects}
			}
		}
		failpoint.HitIf(full == 0, failpoint.CallsQueued)
		routes, requests = routes[:full], requests[:full]
		return refused
	})
}

// unqueue takes the messages of calls that have ended out of the work queue, so that none of them starts late. The
// worker that takes one that stays finds its answer.
func (r *runner) unqueue(ctx context.Context, calls []int) {
	for _, i := range calls {
		q, ok := r.queued[i]
		if !ok || r.m.State().Open(i) {
			continue
		}
		delete(r.queued, i)
		if err := r.d.b.Unqueue(ctx, q.seq); err != nil {
			r.log.Info("a call that is over stays in the work queue", "call", i, "error", err)
		}
	}
}

// withdraw takes the messages of calls out of the work queue, and tells the machine which of them no worker was
// ever given. A server that may have restarted since they were queued has forgotten what it delivered: then nothing
// is known.
func (r *runner) withdraw(ctx context.Context, calls []int) {
	byRoute := map[batch.Route]map[uint64]int{}
	for _, i := range calls {
		q, ok := r.queued[i]
		if !ok || q.seq == 0 {
			continue
		}
		if byRoute[q.route] == nil {
			byRoute[q.route] = map[uint64]int{}
		}
		byRoute[q.route][q.seq] = i
	}
	var proven batch.Withdrawn
	for route, bySeq := range byRoute {
		never, err := r.d.b.Withdraw(ctx, route, r.m.State().Plan.Lane, slices.Sorted(maps.Keys(bySeq)))
		if err != nil {
			r.log.Info("calls that are over may stay in the work queue", "error", err)
			continue
		}
		for _, seq := range never {
			if i := bySeq[seq]; r.queued[i].reconnects == r.d.b.Reconnects() {
				proven.Never = append(proven.Never, i)
			}
		}
	}
	if len(proven.Never) > 0 {
		r.pending = append(r.pending, proven)
	}
}

func (r *runner) holder(group int) ticket.Holder {
	return ticket.Holder{Agent: r.key.Agent, Batch: r.key.ID, Group: group, Term: r.term}
}

func (r *runner) takeTicket(ctx context.Context, group int, mode ticket.Mode) {
	r.ticketRequests++
	take := r.ticketRequests
	r.d.locks.Acquire(r.workspace, r.holder(group), mode, func(t ticket.Ticket, err error) {
		select {
		case r.granted <- grantAnswer{take, group, mode, t, err}:
		case <-ctx.Done():
		}
	})
}

// ticketAnswer takes in a ticket. When joining failed for a reason that may pass, it is tried again.
func (r *runner) ticketAnswer(ctx context.Context, g grantAnswer) error {
	switch {
	case g.take != r.ticketRequests: // the batch has left the queue since, or asked again
		return nil
	case g.err == nil:
		r.pending = append(r.pending, batch.Granted{Group: g.group, Ticket: g.t.N})
		return nil
	case errors.Is(g.err, ticket.ErrPassed):
		return errLost
	case errors.Is(g.err, ticket.ErrFull), errors.Is(g.err, broker.ErrFull):
		r.log.Warn("waiting for a place in the workspace's queue", "error", g.err)
		r.retryTicket = &g
		return nil
	}
	return fmt.Errorf("take a ticket: %w", g.err)
}

// submission is the delivery by which this dispatcher keeps the batch.
func (r *runner) submission() *broker.Submission {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sub
}

// redeliver takes a new delivery of the message by which the batch is kept. Another message (a wake, of a batch
// that runs or is being parked) is given back, and looked at again after a pause.
func (r *runner) redeliver(sub *broker.Submission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sub.Seq == r.sub.Seq {
		if !sub.Follows(r.sub) {
			sub.Suspect()
		}
		r.sub = sub
		return
	}
	if err := sub.Return(wakePause(sub.Deliveries)); err != nil {
		r.log.Warn("a wake was not given back; it is delivered again when its wait is over", "error", err)
	}
}

// wakePause is how long a wake waits that was given back: short at first, because a batch that is being parked is
// woken soon, and longer for one that goes on running.
func wakePause(deliveries uint64) time.Duration {
	return min(50*time.Millisecond<<min(deliveries, 10), 10*time.Second)
}

// keepAlive keeps the delivery alive until ctx ends, whatever the runner is waiting for. When no answer comes, the
// next append finds out whose the batch is.
func (r *runner) keepAlive(ctx context.Context) {
	wait := r.d.b.Settings().BatchAckWait
	tick := time.NewTicker(broker.Heartbeat(wait))
	defer tick.Stop()
	var telling sync.WaitGroup
	defer telling.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.idle.Load() { // there are many of these, and nothing runs that an answer would keep safe
			if err := r.submission().Hold(); err != nil && ctx.Err() == nil {
				r.log.Info("the submission could not be kept", "error", err)
			}
			continue
		}
		telling.Go(func() {
			alive, cancel := context.WithTimeout(ctx, broker.Lease(wait))
			defer cancel()
			if err := r.submission().Alive(alive); err != nil && ctx.Err() == nil {
				r.log.Info("the submission could not be kept", "error", err)
			}
		})
	}
}
