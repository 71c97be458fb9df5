package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// How an owner asks whether anything of its batch still runs.
const (
	maxAsked      = 64                    // workers at a time
	askAgainAfter = 20 * time.Millisecond // between two rounds of questions
)

// mayStillRun reports whether a read of the current group, or of an earlier one, may still run although it has its
// result. A server that was restarted may have delivered it to a second worker, and only one of the two has ended.
// Claimed calls have one holder, and so have calls that are known to have been delivered before.
func (r *runner) mayStillRun() bool {
	return r.d.b.Settings().Replicas == 1 && (r.adopted || r.queueReconnects != nil &&
		*r.queueReconnects != r.d.b.Reconnects())
}

// awaitReadsStopped returns when no worker runs a read of the groups before one, or a call there that a former owner
// has ended when it gave the batch up. Workers that do are told to stop. One that does not answer is waited for until
// it is proven to be silent, or until it can have no right to run a call of the batch any more, because the deadline is
// long past.
func (r *runner) awaitReadsStopped(ctx context.Context, before int) error {
	doubt, adopted := r.mayStillRun(), r.adopted
	s := r.m.State()
	// A group that a former owner has started is taken too: its reads are asked about when they are over.
	if _, started := s.Started[before]; !started {
		r.adopted, r.queueReconnects = false, nil
	}
	if !doubt && !adopted {
		return nil
	}
	var calls []int
	pools := map[toolyard.Pool]bool{}
	for n, g := range s.Plan.Groups[:before] {
		if _, started := s.Started[n]; !started || !g.Ticket {
			continue
		}
		for _, i := range g.Calls {
			if !s.Open(i) && (doubt && g.Safe || s.GivenUp(i)) {
				calls = append(calls, i)
				pools[s.Plan.Calls[i].Pool] = true
			}
		}
	}
	if len(calls) == 0 {
		return nil
	}
	if err := r.d.workers.catchUp(ctx); err != nil {
		return err
	}
	asked := r.d.workers.inPools(pools)
	notice := broker.AbortNotice{
		Agent: r.key.Agent, Batch: r.key.ID, Calls: calls, Code: toolyard.Canceled, Reason: "the call has its result",
		By: "toolyard",
	}
	past := time.NewTimer(s.Plan.Deadline.Add(broker.Patience(r.d.b.Settings().CallAckWait)).Sub(r.d.clock.now()))
	defer past.Stop()
	for {
		if err := r.d.b.Abort(notice); err != nil {
			r.log.Warn("workers were not told to stop; they are told again", "error", err)
		}
		asked = r.stillRunning(ctx, asked, calls)
		if len(asked) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-past.C:
			r.log.Warn("workers did not say whether they still run calls that have their results", "workers", asked)
			return nil
		case <-time.After(askAgainAfter):
		}
	}
}

// stillRunning asks workers whether they have any of some calls, and returns those that have one, or may have.
func (r *runner) stillRunning(ctx context.Context, workers []string, calls []int) []string {
	may := make([]bool, len(workers))
	var asking sync.WaitGroup
	room := make(chan struct{}, maxAsked)
	for n, id := range workers {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			may[n] = r.mayHave(ctx, id, calls)
		})
	}
	asking.Wait()
	var out []string
	for n, id := range workers {
		if may[n] {
			out = append(out, id)
		}
	}
	return out
}

func (r *runner) mayHave(ctx context.Context, worker string, calls []int) bool {
	has, answered, err := r.d.b.Holds(ctx, worker, r.key, calls...)
	switch {
	case err != nil:
		r.log.Warn("a worker could not be asked what it runs", "worker", worker, "error", err)
		return true
	case answered:
		r.d.workers.heardFrom(worker)
		return has
	}
	gone, err := r.d.workers.provenSilent(ctx, worker)
	if err != nil {
		r.log.Warn("a worker does not answer, and its entry cannot be read", "worker", worker, "error", err)
	}
	return !gone || err != nil
}

// maxReads is how many calls an owner reads from the stream in one beat; the others follow in the next.
const maxReads = 64

// rereadAfter is how long an owner trusts the live feed before it reads calls in flight from the stream, and
// rereadIdle how long it does for a batch that is idle, when nothing is known to be lost.
const (
	rereadAfter = time.Second
	rereadIdle  = 10 * time.Second
)

// rests reports whether nothing is due at this beat: the batch is idle, and its feed can be trusted. There may be
// thousands of such batches, so this needs little of the processor and of the stack.
func (r *runner) rests() bool {
	if !r.idle.Load() {
		return false
	}
	if _, _, owes := r.unsettled(); owes {
		return false
	}
	if r.feed.Lost() {
		r.lastNews = time.Time{}
	}
	return time.Since(r.lastNews) < rereadIdle
}

// copies takes in a live copy of an event, and those that came meanwhile: they are one step, and one reply.
func (r *runner) copies(ctx context.Context, m *broker.LiveMsg) (inputs []batch.Input, err error) {
	if r.idle.Load() { // who serves the batch was not looked at while it rested
		inputs = append(inputs, batch.Observed{Serving: r.d.workers.serving(r.submission().Shard)})
	}
	ends := map[int]uint64{} // of items, by what came and is not applied yet
	for {
		news, err := r.live(ctx, m, ends)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, news...)
		select {
		case m = <-r.feed.Copies():
		default:
			return inputs, nil
		}
	}
}

// live takes in a live copy of an event. If it shows a gap, the chain is read instead. ends has the ends of items that
// the state does not have yet.
func (r *runner) live(ctx context.Context, m *broker.LiveMsg, ends map[int]uint64) (inputs []batch.Input, err error) {
	unread := func(err error) ([]batch.Input, error) {
		r.log.Warn("a live event cannot be read; reading the stream instead", "error", err)
		r.lastNews = time.Time{}
		return nil, nil
	}
	head, err := r.feed.Head(m)
	if err != nil {
		return unread(err)
	}
	r.lastNews = time.Now()
	s := r.m.State()
	last := s.BatchSeq
	switch head.Chain {
	case batch.ChainControl:
		last = s.ControlSeq
	case batch.ChainInput:
		last = s.InputSeq
	case batch.ChainItem:
		if head.Index >= len(s.Calls) { // the next owner has extended the batch, or somebody writes what means nothing
			return r.read(ctx, batch.ChainBatch, 0)
		}
		if s.Plan != nil && head.Pool != s.Plan.Calls[head.Index].Pool {
			return nil, nil // a worker of another pool writes beside the chain
		}
		if w := r.feed.WorkerOf(m, head.Pool); w != "" {
			r.d.workers.heardFrom(w)
		}
		last = max(s.End(head.Index), ends[head.Index])
		r.lastHeard[head.Index] = r.lastNews
		defer func() {
			for _, in := range inputs {
				ends[head.Index] = max(ends[head.Index], in.(batch.Stored).Seq)
			}
		}()
	}
	switch {
	case head.Seq <= last: // the copies of this owner's own events, for the most part
		return nil, nil
	case head.Chain == batch.ChainBatch:
		return nil, errLost // the owner knows all events of this chain but those of the next owner
	}
	rec, before, err := r.feed.Record(ctx, m)
	if errors.Is(err, events.ErrNewer) {
		return nil, err
	}
	if err != nil {
		return unread(err)
	}
	// The result of a call that is an item of its own says all; of others something may be missing.
	_, finished := rec.Body.(events.Finished)
	whole := finished && head.Chain == batch.ChainItem && len(s.Item(head.Index)) == 1
	if before != last && !whole {
		return r.read(ctx, rec.Chain, rec.Index)
	}
	if r.ofNextOwner(rec) {
		return nil, errLost
	}
	failpoint.HitIf(failpoint.Enabled && r.someIn(rec), failpoint.ResultSeen)
	return r.stored(rec), nil
}

// said reads the cancels and appended calls that a batch's state does not have. Its feed must have begun.
func (d *Dispatcher) said(ctx context.Context, s *batch.State) ([]batch.Record, error) {
	records, err := d.b.Newer(ctx, s, batch.ChainControl, 0)
	if err != nil || s.Closed || s.Plan == nil && !s.Submission.Open {
		return records, err
	}
	appended, err := d.b.Newer(ctx, s, batch.ChainInput, 0)
	return append(records, appended...), err
}

// read takes in what a chain has beyond the state. On the batch's own chain that is the next owner's.
func (r *runner) read(ctx context.Context, c batch.Chain, index int) ([]batch.Input, error) {
	records, err := r.d.b.Newer(ctx, r.m.State(), c, index)
	if c == batch.ChainBatch && (len(records) > 0 || errors.Is(err, events.ErrNewer)) {
		return nil, errLost
	}
	if slices.ContainsFunc(records, r.ofNextOwner) {
		return nil, errLost
	}
	return r.stored(records...), err
}

// ofNextOwner reports whether an event is about an item that the next owner has made: its calls are in no item, or in
// another one, as far as this owner knows.
func (r *runner) ofNextOwner(rec batch.Record) bool {
	if rec.Chain != batch.ChainItem {
		return false
	}
	item := r.m.State().Item(rec.Index)
	return slices.ContainsFunc(rec.Calls(), func(i int) bool { return !slices.Contains(item, i) })
}

// stored takes in events. What a worker has written is a sign of its life.
func (r *runner) stored(records ...batch.Record) (inputs []batch.Input) {
	for _, rec := range records {
		switch b := rec.Body.(type) {
		case events.Claimed:
			r.d.workers.heardFrom(b.Worker)
		case events.Finished:
			for e := range b.Ends() {
				r.noteOver(e.Result.Index)
			}
		}
		inputs = append(inputs, batch.Stored{Record: rec})
	}
	return inputs
}

// noteOver notes that a call is over, if it is a start of a background call.
func (r *runner) noteOver(i int) {
	if plan := r.m.State().Plan; i >= 0 && i < len(plan.Calls) && plan.Calls[i].Tool == toolyard.BackgroundStart {
		r.startsOver = append(r.startsOver, i)
	}
}

// beat looks at the workers, and reads what the feed may have missed.
func (r *runner) beat(ctx context.Context) (inputs []batch.Input, err error) {
	s := r.m.State()
	routes := map[batch.Route]bool{}
	observed := batch.Observed{Dropped: map[int]uint64{}}
	var claimed []int
	unheard := map[int]bool{} // items of which nothing was heard for a while
	read := func(c batch.Chain, index int) error {
		news, err := r.read(ctx, c, index)
		inputs = append(inputs, news...)
		return err
	}
	trust := rereadAfter
	if r.idle.Load() {
		trust = rereadIdle
	}
	quiet := time.Since(r.lastNews) >= trust
	for _, i := range r.m.InFlight() {
		p, c := s.Plan.Calls[i], s.Calls[i]
		switch c.Status {
		case batch.Claimed:
			claimed = append(claimed, i)
		case batch.Waiting:
		default:
			routes[batch.Route{Pool: p.Pool, Class: p.Judgement.Class}] = true
		}
		if time.Since(r.lastHeard[c.Item]) >= rereadAfter {
			unheard[c.Item] = true
		}
	}
	reads := slices.SortedFunc(maps.Keys(unheard), func(a, b int) int { // or the last ones would never have their turn
		return cmp.Or(r.lastHeard[a].Compare(r.lastHeard[b]), cmp.Compare(a, b))
	})
	for _, item := range reads[:min(len(reads), maxReads)] {
		if err := read(batch.ChainItem, item); err != nil {
			return nil, err
		}
		r.lastHeard[item] = time.Now()
	}
	if quiet {
		for _, c := range []batch.Chain{batch.ChainBatch, batch.ChainControl, batch.ChainInput} {
			if c == batch.ChainBatch && r.idle.Load() { // there are many of these, and their next append finds out
				continue
			}
			if err := read(c, 0); err != nil {
				return nil, err
			}
		}
		r.lastNews = time.Now()
	}
	// All holders are asked now and then; those that are gone from the registry at every beat.
	all := time.Since(r.lastAsked) >= r.d.b.Settings().CallAckWait
	if all {
		r.lastAsked = time.Now()
	}
	silent := map[string]bool{}
	for _, i := range claimed {
		if !all && r.d.workers.registered(s.Calls[i].Worker) {
			continue
		}
		news, dropped, err := r.askHolder(ctx, i, silent)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, news...)
		if dropped { // just this claim: the worker may come back and make others
			observed.Dropped[i] = s.Calls[i].Seq
		}
	}
	shard := r.submission().Shard
	observed.Absent, observed.Serving = r.d.workers.unserved(routes, shard), r.d.workers.serving(shard)
	return append(inputs, observed), nil
}

// askHolder finds out whether the worker that claimed a call still has it. The claim is dropped only when its holder
// says that it does not have the call, or is proven to be silent.
//
// silent are the workers that did not answer in this round, and are not asked again.
func (r *runner) askHolder(ctx context.Context, i int, silent map[string]bool,
) (inputs []batch.Input, dropped bool, err error) {
	c := r.m.State().Calls[i]
	var has, answered bool
	if !silent[c.Worker] {
		if has, answered, err = r.d.b.Holds(ctx, c.Worker, r.key, i); err != nil {
			r.log.Warn("the holder of a claim could not be asked", "worker", c.Worker, "call", i, "error", err)
			return nil, false, nil
		}
		silent[c.Worker] = !answered
	}
	if answered {
		r.d.workers.heardFrom(c.Worker)
	}
	switch {
	case has:
		return nil, false, nil
	case answered:
		// It lets go of a call only after it has written what became of it: that is there now, if ever.
		inputs, err = r.read(ctx, batch.ChainItem, i)
		for _, in := range inputs {
			rec := in.(batch.Stored).Record
			has = has || slices.Contains(rec.Calls(), i)
		}
		return inputs, err == nil && !has, err
	}
	gone, err := r.d.workers.provenSilent(ctx, c.Worker)
	if err != nil {
		r.log.Warn("the holder of a claim does not answer, and its entry cannot be read", "worker", c.Worker,
			"call", i, "error", err)
		return nil, false, nil
	}
	return nil, gone, nil
}
