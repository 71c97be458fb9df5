package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/lock"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/ticket"
)

// runner is the shell around one batch's machine: it performs the effects in order, and feeds it what happens.
type runner struct {
	*kept
	log     *slog.Logger // names the trace too
	trace   batchTrace
	d       *Dispatcher
	m       *batch.Machine
	owned   *owned
	lapsed  bool              // the machine knows that another may own the batch
	surface *registry.Surface // what the batch sees; nil until it is needed by a batch that was adopted
	feed    broker.Feed
	noticed chan *batch.Noticed

	granted        chan *grantAnswer
	retryTicket    *grantAnswer // a request that failed because the queue was full
	ticketRequests int          // numbers the requests, so that an answer to an earlier one is ignored

	queued map[int]queued // the messages in the work queue, by call
	// wants are the slots of workers that the batch could use now.
	wants map[batch.Route]int
	// adopted says that another owner has started the current group. queueReconnects counts how often the connection
	// had been restored when this one queued the first call of it.
	adopted         bool
	queueReconnects *uint64

	lastHeard map[int]time.Time // when the log last said anything about a call
	lastNews  time.Time         // when the log last said anything
	lastAsked time.Time         // when workers were last asked about the calls that they claimed

	besides besides // what looks for the batches that this one waited for, and for an interrupt
	// startsOver are calls that start background calls and have ended since they were last looked at.
	startsOver []int

	// The first entry of the index is written a little later, unless stopIndexing is called before. indexed says that
	// the batch has an entry.
	stopIndexing func()
	indexed      bool

	rates  batchRates
	budget budget

	replied  chan *appended // the answer to the reply that is being stored
	replying sync.WaitGroup
}

// appended is what came of an append.
type appended struct {
	batch.Append
	rec batch.Record
	err error
}

// queued is a call's message in the work queue.
type queued struct {
	route batch.Route
	seq   uint64
	// reconnects is how often the connection had been restored when it was known to be there.
	reconnects uint64
}

type grantAnswer struct {
	take   int
	wanted batch.TakeTicket
	t      ticket.Ticket
	err    error
	// asked is when it was asked for, granted when it came, and behind which batches it waited for.
	asked, granted time.Time
	behind         []toolyard.BatchKey
}

func (d *Dispatcher) newRunner(k *kept, feed broker.Feed, o *owned) *runner {
	cfg := d.machineConfig()
	cfg.Reserved, cfg.Generation, cfg.Alone = o.reserved, o.generation, d.alone(k, &o.state)
	cfg.Rested = o.rested != nil
	cfg.Hooks = cfg.Hooks && !o.state.Submission.Options.DryRun // a hook may do anything
	r := &runner{
		kept: k, log: o.trace.named(k.log), trace: o.trace, d: d, feed: feed,
		surface: o.surface, adopted: o.state.Takeovers > 0,
		m: batch.New(cfg, o.state), owned: o,
		granted: make(chan *grantAnswer, 4), noticed: make(chan *batch.Noticed, 1), queued: map[int]queued{},
		lastHeard: map[int]time.Time{}, lastNews: time.Now(), replied: make(chan *appended, 1),
		indexed: o.state.Takeovers > 0 || o.state.Parked,
		rates:   batchRates{gate: d.admission.rates},
		budget:  budget{owed: d.budgetsOf(&o.state), told: o.state.Takeovers > 0},
	}
	if o.rested != nil {
		r.goOn(o.rested)
	}
	return r
}

func (d *Dispatcher) machineConfig() batch.Config {
	return batch.Config{
		WorkerWait: d.cfg.WorkerWait, MaxAttempts: maxAttempts, AbortEvery: abortEvery, OpenIdle: d.cfg.OpenIdle,
		QueueWait: d.cfg.QueueWait, Hooks: d.cfg.AfterBatch != nil,
		EndGrace: broker.Patience(d.b.Settings().CallAckWait), LogTime: d.clock.at,
	}
}

// run advances the batch until it is complete, lost, or ctx ends, or until it rests: then it returns what is kept of
// it.
func (r *runner) run(ctx context.Context) (*resting, error) {
	ctx, stop := context.WithCancel(ctx)
	defer r.end(stop)
	inputs, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	beat := time.NewTicker(broker.Heartbeat(r.d.b.Settings().BatchAckWait))
	defer beat.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for rests := false; ; {
		if !rests {
			if over, err := r.step(ctx, inputs); err != nil || over {
				return nil, err
			}
			r.stopFailedStarts(ctx)
			r.stepped(wake)
		}
		rests = false
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case m := <-r.feed.Copies():
			inputs, err = r.copies(ctx, m)
		case a := <-r.replied:
			inputs, err = r.appended(ctx, a)
		case g := <-r.granted:
			inputs, err = r.ticketAnswer(ctx, g)
		case n := <-r.noticed:
			inputs = []batch.Input{*n}
		case <-r.rates.in.news:
			inputs, err = r.rated(ctx)
		case <-wake.C:
			inputs = nil
		case <-beat.C:
			r.leaveLate(ctx)
			if rests = r.rests(); !rests {
				inputs, err = r.beaten(ctx)
			} else if rest, err := r.rest(ctx); rest != nil || err != nil {
				return rest, err
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// begin starts what goes on beside the batch, and returns what the machine is stepped with first: what was canceled or
// appended before the feed began, and who serves the batch. end follows it, also when it fails.
func (r *runner) begin(ctx context.Context) ([]batch.Input, error) {
	s := r.m.State()
	for i, c := range s.Calls {
		if c.Result != nil && r.owned.rested == nil {
			r.noteOver(i)
		}
		if c.Status == batch.Claimed { // when it was claimed is not known here: this owner's patience begins now
			r.d.workers.heardFrom(c.Worker)
		}
	}
	if r.owned.rested != nil { // which it did not before it was in the index
		r.stopIndexing = func() {}
		r.besides.entered()
	} else {
		write := r.d.index(r.log, s, !r.indexed)
		session, submission := s.Plan.Session, s.SubmissionSeq
		heed := func(ctx context.Context) { r.heedInterrupt(ctx, session, submission) }
		r.stopIndexing = r.indexLater(ctx, write, heed)
	}
	if p := s.Submission.Options.Parent; p != nil {
		r.besides.run(func() { r.followParent(ctx, p) })
	}
	r.holdRated()
	said := r.owned.said
	if !r.owned.known {
		var err error
		if said, err = r.d.said(ctx, s); err != nil {
			return nil, err
		}
	}
	inputs := append(r.stored(said...), batch.Observed{Serving: r.d.workers.serving(r.submission().Shard)})
	if rest := r.owned.rested; rest != nil && rest.woken != nil {
		news, err := r.copies(ctx, rest.woken)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, news...)
	}
	r.owned = nil
	return inputs, nil
}

// end ends what goes on beside the batch, and waits for it.
func (r *runner) end(stop context.CancelFunc) {
	r.d.locks.StopWaiting(r.m.State().Plan.Workspace, r.key)
	r.leaveAllRated()
	r.d.demand.change(r.wants, nil)
	stop()
	r.replying.Wait()
	r.stopIndexing()
	r.besides.Wait()
}

// stepped tells others what the batch wants now, and sets the timer to when the machine is to be stepped again.
func (r *runner) stepped(wake *time.Timer) {
	r.trial.begins()
	r.trial = nil
	r.leaveRated()
	if wants := r.m.Wanted(); !maps.Equal(wants, r.wants) {
		r.d.demand.change(r.wants, wants)
		r.wants = wants
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
}

// stopFailedStarts stops the background calls of starts that have failed since, beside the batch: one may have the
// workspace that the next call waits for. What fails here is done again when the batch is over.
func (r *runner) stopFailedStarts(ctx context.Context) {
	s := r.m.State()
	for _, i := range r.startsOver {
		if !failedStart(s, i) {
			continue
		}
		session, code := s.Plan.Session, s.Calls[i].Result.Code
		r.besides.run(func() {
			if err := r.d.stopStarted(ctx, r.key, session, i, code); err != nil && ctx.Err() == nil {
				r.log.Warn("a background call whose start has failed goes on until its batch is over", "call", i,
					"error", err)
			}
		})
	}
	r.startsOver = nil
}

// rated takes in what the gate of rates says, and queues the calls that may go.
func (r *runner) rated(ctx context.Context) ([]batch.Input, error) {
	calls, inputs := r.rateAnswers()
	return inputs, r.queue(ctx, calls)
}

// beaten does what is due at each heartbeat of the batch.
func (r *runner) beaten(ctx context.Context) ([]batch.Input, error) {
	r.holdUnderNew()
	inputs := r.repeatTicket(ctx)
	more, err := r.beat(ctx)
	if err != nil {
		return nil, err
	}
	calls, tried, err := r.retryBudget(ctx)
	if err == nil {
		err = r.queue(ctx, calls)
	}
	if err == nil {
		err = r.settleBudget(ctx)
	}
	return slices.Concat(inputs, more, tried), err
}

// step steps the machine and performs its effects, until there is nothing new. It reports whether the batch is
// complete, or parked.
func (r *runner) step(ctx context.Context, inputs []batch.Input) (over bool, err error) {
	for {
		if !r.lapsed && r.submission().Lapsed() {
			r.lapsed = true
			inputs = append(inputs, batch.Lapsed{})
		}
		effects, err := r.m.Step(time.Now(), inputs...)
		if err != nil {
			return false, err
		}
		if inputs, over, err = r.perform(ctx, effects); err != nil || over || len(inputs) == 0 {
			return over, err
		}
	}
}

// perform performs effects in their order; calls are queued together, behind the others. It returns what the machine
// is stepped with next, and whether the batch is complete, or parked.
func (r *runner) perform(ctx context.Context, effects []batch.Effect) (inputs []batch.Input, over bool, err error) {
	var calls []batch.Queue
	for _, e := range effects {
		var news []batch.Input
		switch e := e.(type) {
		case batch.Append:
			failpoint.HitIf(starts(e), failpoint.GroupStarting)
			if e.Chain == batch.ChainReply { // nothing else waits for it
				r.d.crew.Run(&r.replying, func() { r.replied <- r.storeReply(ctx, e) })
			} else {
				news, err = r.append(ctx, e)
			}
		case batch.TakeTicket:
			failpoint.HitIf(e.Group > 0, failpoint.GroupOver)
			if err = r.awaitReadsStopped(ctx, e.Group); err == nil {
				news = r.takeTicket(ctx, e)
			}
		case batch.ReleaseTickets:
			r.ticketRequests++
			if err = r.awaitReadsStopped(ctx, e.Group+1); err == nil {
				s := r.m.State()
				err = r.d.locks.Release(ctx, s.Plan.Workspace, holder(s, e.Group))
			}
		case batch.Queue:
			calls = append(calls, e)
		case batch.Extend:
			var extended events.Extended
			if extended, err = r.extend(ctx); err == nil {
				news, err = r.append(ctx, batch.Append{Chain: batch.ChainBatch, Expected: e.Expected, Body: extended})
			}
		case batch.Abort:
			failpoint.Hit(failpoint.AbortDecided)
			r.abort(e)
			r.unqueue(ctx, e.Calls)
		case batch.Withdraw:
			news = r.withdraw(ctx, e.Calls)
		case batch.ListApproval:
			err = r.listApproval(ctx, e)
		case batch.Remember:
			err = r.remember(ctx, e.Change)
		case batch.Notify:
			r.notify(ctx)
		case batch.Park:
			if err = r.settleBudget(ctx); err != nil {
				return nil, false, err
			}
			return nil, true, r.park(ctx)
		case batch.Complete:
			r.settle(ctx)
			return nil, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		inputs = append(inputs, news...)
	}
	if r.m.State().Submission.Options.Undo {
		r.lookBack(ctx, calls)
	}
	calls, held, err := r.holdBack(ctx, calls)
	if err != nil {
		return nil, false, err
	}
	return append(inputs, held...), false, r.queue(ctx, calls)
}

// abort tells the workers to stop calls.
func (r *runner) abort(e batch.Abort) {
	err := r.d.b.Abort(broker.AbortNotice{Agent: r.key.Agent, Batch: r.key.ID, Calls: e.Calls, Code: e.Code,
		Culprit: e.Culprit, Reason: e.Reason, By: e.By})
	if err != nil {
		r.log.Warn("workers were not told to stop; they are told again", "error", err)
	}
}

// append stores an event, or finds what stands there instead.
func (r *runner) append(ctx context.Context, e batch.Append) ([]batch.Input, error) {
	return r.appended(ctx, r.store(ctx, e))
}

// storeReply is store, in a goroutine of its own.
func (r *runner) storeReply(ctx context.Context, e batch.Append) *appended {
	a := &appended{Append: e}
	func() {
		defer r.caught(&a.err)
		*a = *r.store(ctx, e)
	}()
	return a
}

func (r *runner) store(ctx context.Context, e batch.Append) *appended {
	var pool toolyard.Pool
	if e.Chain == batch.ChainItem {
		pool = r.m.State().Plan.Calls[e.Index].Pool
	}
	var rec batch.Record
	began := time.Now()
	err := broker.RetryFull(ctx, r.log, func() (err error) {
		rec, err = r.d.b.Append(ctx, r.key, e.Chain, pool, e.Index, e.Expected, e.Body)
		rec.Time = r.d.clock.at(rec.Time)
		return err
	})
	failpoint.HitIf(err == nil && replies(e, false), failpoint.SomeReplied)
	failpoint.HitIf(err == nil && replies(e, true), failpoint.AllReplied)
	if err == nil {
		r.trace.stored(began, e)
	}
	return &appended{e, rec, err}
}

func (r *runner) appended(ctx context.Context, a *appended) ([]batch.Input, error) {
	switch {
	case a.err == nil:
		return r.stored(a.rec), nil
	case !errors.Is(a.err, broker.ErrConflict):
		return nil, a.err
	case a.Chain == batch.ChainBatch:
		return nil, errLost
	}
	return r.read(ctx, a.Chain, a.Index)
}

// queue hands calls to the workers. It waits while the queue is full, because the calls are accepted.
func (r *runner) queue(ctx context.Context, calls []batch.Queue) error {
	if len(calls) == 0 {
		return nil
	}
	return broker.RetryFull(ctx, r.log, func() error {
		reconnects := r.d.b.Reconnects()
		if r.queueReconnects == nil {
			r.queueReconnects = &reconnects
		}
		var refused []batch.Queue // for want of room: only those are tried again
		var full error
		for n, q := range r.d.b.QueueAll(ctx, r.m.State().Plan.Lane, calls) {
			switch c := &calls[n]; {
			case errors.Is(q.Err, broker.ErrFull):
				refused, full = append(refused, *c), q.Err
			case q.Err != nil:
				return q.Err
			default:
				for _, call := range c.Request.Calls {
					r.queued[call.Index] = queued{c.Route, q.Seq, reconnects}
				}
			}
		}
		failpoint.HitIf(full == nil, failpoint.CallsQueued)
		calls = refused
		return full
	})
}

// unqueue takes messages out of the work queue whose calls have all ended, so that none of them starts late. The worker
// that takes one that stays finds the answers.
func (r *runner) unqueue(ctx context.Context, calls []int) {
	for _, i := range calls {
		q, ok := r.queued[i]
		if !ok || !r.all(i, func(i int) bool { return !r.m.State().Open(i) }) {
			continue
		}
		for _, i := range r.m.State().Item(i) {
			delete(r.queued, i)
		}
		if err := r.d.b.Unqueue(ctx, q.seq); err != nil {
			r.log.Info("a call that is over stays in the work queue", "call", i, "error", err)
		}
	}
}

// all reports whether a condition holds for all calls that are in one message with a call.
func (r *runner) all(call int, holds func(int) bool) bool {
	for _, i := range r.m.State().Item(call) {
		if r.queued[i].seq == r.queued[call].seq && !holds(i) {
			return false
		}
	}
	return true
}

// withdraw takes the messages of calls out of the work queue, if they have no others to run, and returns which of the
// calls no worker was ever given. A server that may have restarted since they were queued has forgotten what it
// delivered: then nothing is known.
func (r *runner) withdraw(ctx context.Context, calls []int) []batch.Input {
	byRoute := map[batch.Route]map[uint64][]int{}
	for _, i := range calls {
		q, ok := r.queued[i]
		if !ok || q.seq == 0 || !r.all(i, func(i int) bool {
			return !r.m.State().Open(i) || slices.Contains(calls, i)
		}) {
			continue
		}
		if byRoute[q.route] == nil {
			byRoute[q.route] = map[uint64][]int{}
		}
		byRoute[q.route][q.seq] = append(byRoute[q.route][q.seq], i)
	}
	var proven batch.Withdrawn
	for route, bySeq := range byRoute {
		never, err := r.d.b.Withdraw(ctx, route, r.m.State().Plan.Lane, slices.Sorted(maps.Keys(bySeq)))
		if err != nil {
			r.log.Info("calls that are over may stay in the work queue", "error", err)
			continue
		}
		for _, seq := range never {
			for _, i := range bySeq[seq] {
				if r.queued[i].reconnects == r.d.b.Reconnects() {
					proven.Never = append(proven.Never, i)
				}
			}
		}
	}
	if len(proven.Never) == 0 {
		return nil
	}
	slices.Sort(proven.Never)
	return []batch.Input{proven}
}

// takeTicket goes on under the ticket of an earlier group, or joins the queue; then the answer comes later.
func (r *runner) takeTicket(ctx context.Context, wanted batch.TakeTicket) []batch.Input {
	r.ticketRequests++
	take := r.ticketRequests
	s := r.m.State()
	h := waiter(s, wanted)
	if t, ok := r.d.locks.Kept(s.Plan.Workspace, h, wanted.Mode, wanted.Locks...); ok {
		return []batch.Input{granted(wanted, t)}
	}
	asked := time.Now()
	r.d.locks.Acquire(s.Plan.Workspace, h, wanted.Mode, func(g lock.Grant) {
		if g.Err == nil {
			r.d.cfg.Meter.TicketGranted(wanted.Mode, time.Since(asked))
		}
		select {
		case r.granted <- &grantAnswer{take, wanted, g.Ticket, g.Err, asked, time.Now(), g.Behind}:
		case <-ctx.Done():
		}
	}, wanted.Locks...)
	return nil
}

// granted tells the machine of the ticket that it wanted.
func granted(wanted batch.TakeTicket, t ticket.Ticket) batch.Granted {
	return batch.Granted{Group: wanted.Group, Ticket: t.Number(wanted.Group), Generation: t.After}
}

// repeatTicket asks again for a ticket for which the queue had no room.
func (r *runner) repeatTicket(ctx context.Context) (inputs []batch.Input) {
	g := r.retryTicket
	if r.retryTicket = nil; g != nil && g.take == r.ticketRequests {
		inputs = r.takeTicket(ctx, g.wanted)
	}
	return inputs
}

// ticketAnswer takes in a ticket. When joining failed for a reason that may pass, it is tried again.
func (r *runner) ticketAnswer(ctx context.Context, g *grantAnswer) ([]batch.Input, error) {
	switch {
	case g.take != r.ticketRequests: // the batch has left the queue since, or asked again
		return nil, nil
	case g.err == nil:
		r.traceTicket(ctx, g)
		return []batch.Input{granted(g.wanted, g.t)}, nil
	case errors.Is(g.err, ticket.ErrPassed):
		return nil, errLost
	case errors.Is(g.err, ticket.ErrFull), errors.Is(g.err, broker.ErrFull):
		r.log.Warn("waiting for a place in the workspace's queue", "error", g.err)
		r.retryTicket = g
		return nil, nil
	}
	return nil, fmt.Errorf("take a ticket: %w", g.err)
}
