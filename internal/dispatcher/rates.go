package dispatcher

import (
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// rated is the calls of one message that are under a rate.
type rated struct {
	q       batch.Queue
	calls   []int
	asked   time.Time
	waiting bool
}

// batchRates is what a runner has to do with rates: nothing, for most batches.
type batchRates struct {
	gate *rateGate
	in   rateInbox
	all  map[uint64]*rated
	// reads is how often the rates had been read again when the calls that run were last looked at.
	reads uint64
}

// add notes calls that wait for their turn, or run under a rate.
func (b *batchRates) add(c *rated, enter func() (id uint64)) {
	if b.all == nil {
		b.all, b.in.news = map[uint64]*rated{}, make(chan struct{}, 1)
	}
	b.all[enter()] = c
}

func (r *runner) rateKey(i int) admission.RateKey {
	c := &r.m.State().Plan.Calls[i]
	return admission.RateKey{Agent: r.key.Agent, Tool: c.Tool, Dependency: c.Dependency}
}

// nameDependencies says in a plan what its calls depend on, where dependencies have rates.
func (d *Dispatcher) nameDependencies(p *Plan, calls []events.PlannedCall) {
	if !d.admission.rates.dependencies.Load() {
		return
	}
	for n := range calls {
		input := p.calls[n].Input
		if mended := calls[n].Mended; mended != nil {
			input = mended.Input
		}
		calls[n].Dependency = pipeline.Dependency(&p.entries[n].Declaration, input)
	}
}

// holdRated counts the calls that run, of a batch that was taken over: under its former owner they have begun.
func (r *runner) holdRated() {
	r.rates.reads = r.rates.gate.reads.Load()
	if r.m.State().Takeovers > 0 {
		r.holdRunning()
	}
}

// holdUnderNew counts the calls that run and were under no rate when they began, when rates have been read since.
func (r *runner) holdUnderNew() {
	if reads := r.rates.gate.reads.Load(); reads != r.rates.reads {
		r.rates.reads = reads
		r.holdRunning()
	}
}

// holdRunning counts the calls that run and are not counted yet.
func (r *runner) holdRunning() {
	counted := map[int]bool{}
	for _, c := range r.rates.all {
		for _, i := range c.calls {
			counted[i] = true
		}
	}
	s := r.m.State()
	for i := range s.Calls {
		if !s.Open(i) || !r.m.Active(i) || r.m.MayHand(i) || counted[i] {
			continue
		}
		if key := r.rateKey(i); r.rates.gate.bounds(key) {
			r.rates.add(&rated{calls: []int{i}}, func() uint64 { return r.rates.gate.hold(key, 1) })
		}
	}
}

// awaitTurn keeps messages back whose calls are under a rate, and returns the others. Of a message that has several
// calls, the first says under which.
func (r *runner) awaitTurn(calls []batch.Queue) (now []batch.Queue, held []batch.Input) {
	if !r.rates.gate.any.Load() {
		return calls, nil
	}
	for n := range calls {
		first := calls[n].Request.Calls[0].Index
		key := r.rateKey(first)
		if !r.rates.gate.bounds(key) {
			now = append(now, calls[n])
			continue
		}
		c := &rated{q: calls[n], calls: callsOf(calls[n]), asked: time.Now(), waiting: true}
		r.leaveFor(c.calls)
		r.rates.add(c, func() uint64 { return r.rates.gate.ask(&r.rates.in, key, len(c.calls)) })
		held = append(held, batch.Held{Calls: c.calls})
	}
	return now, held
}

// leaveFor gives up the places that calls have which are handed over again: they would wait for themselves.
func (r *runner) leaveFor(calls []int) {
	for id, c := range r.rates.all {
		c.calls = slices.DeleteFunc(c.calls, func(i int) bool { return slices.Contains(calls, i) })
		if len(c.calls) == 0 {
			delete(r.rates.all, id)
			r.rates.gate.leave(id)
		}
	}
}

// rateAnswers takes in what was decided about calls that wait for their turn: they go to the workers, or end.
func (r *runner) rateAnswers() (now []batch.Queue, inputs []batch.Input) {
	granted, refused := r.rates.in.take()
	for _, g := range granted {
		c := r.rates.all[g.ID]
		if c == nil {
			continue
		}
		c.waiting = false
		c.calls = slices.DeleteFunc(c.calls, func(i int) bool { return !r.m.MayHand(i) })
		if len(c.calls) == 0 {
			continue // it leaves with the next look
		}
		req := &c.q.Request
		waited := time.Since(c.asked)
		goOn(req, waited, func(call int) bool { return slices.Contains(c.calls, call) })
		if g.Held != "" {
			for n := range req.Calls {
				req.Calls[n].Waited = "waited " + waited.Round(time.Millisecond).String() + " for the rate of " +
					g.Held.Text()
			}
		}
		now = append(now, c.q)
		inputs = append(inputs, batch.Handed{Calls: c.calls})
	}
	for _, f := range refused {
		c := r.rates.all[f.ID]
		if c == nil {
			continue
		}
		inputs = append(inputs, batch.Limited{Calls: c.calls, Code: toolyard.RateLimited,
			RetryAfterMS: f.RetryAfter.Milliseconds(),
			Why:          "The call did not get its turn: " + f.Why(),
			Detail:       f.Detail()})
	}
	return now, inputs
}

// leaveRated gives up the places of calls that wait no longer, or are over.
func (r *runner) leaveRated() {
	for id, c := range r.rates.all {
		if !slices.ContainsFunc(c.calls, func(i int) bool {
			return c.waiting && r.m.MayHand(i) || !c.waiting && r.m.Active(i)
		}) {
			delete(r.rates.all, id)
			r.rates.gate.leave(id)
		}
	}
}

// leaveAllRated gives up the places of all calls: another owner counts them.
func (r *runner) leaveAllRated() {
	for id := range r.rates.all {
		r.rates.gate.leave(id)
	}
	clear(r.rates.all)
}

// callsOf are the calls of messages.
func callsOf(messages ...batch.Queue) (out []int) {
	for n := range messages {
		for _, c := range messages[n].Request.Calls {
			out = append(out, c.Index)
		}
	}
	return out
}

// goOn has a message that was kept back for a while go on: with those of its calls that may still be handed over, and
// with the time that they have left.
func goOn(req *events.Requested, waited time.Duration, may func(call int) bool) {
	req.RemainingMS = max(0, req.RemainingMS-waited.Milliseconds())
	req.Calls = slices.DeleteFunc(slices.Clone(req.Calls),
		func(c events.RequestedCall) bool { return !may(c.Index) })
}
