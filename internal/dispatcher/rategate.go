package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard/internal/admission"
)

// rateGate is the shell around [admission.Rates]: the calls of all batches here that wait for their turn under a rate,
// and those that run under one.
type rateGate struct {
	mu    sync.Mutex
	rates *admission.Rates
	// any and dependencies say that there are rates, or were, and that dependencies have some.
	any, dependencies atomic.Bool
	// reads counts how often the rates were read again.
	reads atomic.Uint64
	last  uint64
	of    map[uint64]*rateInbox
	// changed signals that something may begin, and reserved that something is, and waits to be reported.
	changed, reserved chan struct{}
}

// rateInbox has what was decided about calls of one batch, until its runner takes it.
type rateInbox struct {
	mu      sync.Mutex
	granted []admission.RateGrant
	refused []admission.RateRefusal
	news    chan struct{}
}

func newRateGate(g admission.Grants, reserved chan struct{}) *rateGate {
	out := &rateGate{rates: admission.NewRates(g), of: map[uint64]*rateInbox{}, changed: make(chan struct{}, 1),
		reserved: reserved}
	out.any.Store(g.Rates())
	out.dependencies.Store(len(g.Dependencies) > 0)
	return out
}

// bounds reports whether a call is under a rate.
func (g *rateGate) bounds(k admission.RateKey) bool {
	if !g.any.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rates.Bounds(k)
}

// ask has calls wait for their turn, and hold counts some that are in flight. What is decided comes to the inbox.
func (g *rateGate) ask(in *rateInbox, k admission.RateKey, calls int) (id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	g.of[g.last] = in
	g.rates.Ask(g.last, k, calls, time.Now())
	g.deliver()
	signal(g.changed)
	return g.last
}

func (g *rateGate) hold(k admission.RateKey, calls int) (id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	g.rates.Hold(g.last, k, calls, time.Now())
	return g.last
}

// leave ends calls that have waited or run.
func (g *rateGate) leave(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.of, id)
	g.rates.Leave(id, time.Now())
	signal(g.changed)
	if g.rates.Awaited() {
		signal(g.reserved) // and they hear of it
	}
}

// update changes the rates' state, and has everybody look at it. It does so without rates, too: what is heard of others
// counts when there are some.
func (g *rateGate) update(change func(r *admission.Rates, now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g.rates, time.Now())
	g.deliver()
	signal(g.changed)
}

// regrant has other rates bound calls from now on.
func (g *rateGate) regrant(to admission.Grants) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if to.Rates() {
		g.any.Store(true)
	}
	g.dependencies.Store(len(to.Dependencies) > 0)
	g.rates.Regrant(to, time.Now())
	g.reads.Add(1)
	g.deliver()
	signal(g.changed)
}

// deliver puts what was decided into the inboxes. The lock is held.
func (g *rateGate) deliver() {
	granted, refused := g.rates.Take()
	for _, d := range granted {
		if in := g.of[d.ID]; in != nil {
			in.put(func() { in.granted = append(in.granted, d) })
		}
	}
	for _, d := range refused {
		if in := g.of[d.ID]; in != nil {
			in.put(func() { in.refused = append(in.refused, d) })
		}
	}
}

func (in *rateInbox) put(add func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	add()
	signal(in.news)
}

func (in *rateInbox) take() (granted []admission.RateGrant, refused []admission.RateRefusal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	granted, refused = in.granted, in.refused
	in.granted, in.refused = nil, nil
	return granted, refused
}

// run reserves calls for which there is room, and refuses those that have waited for too long, until ctx ends.
func (g *rateGate) run(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.changed:
		case <-again.C:
		}
		g.mu.Lock()
		reserved, at := g.rates.Advance(time.Now())
		g.deliver()
		g.mu.Unlock()
		if reserved {
			signal(g.reserved)
		}
		if at.IsZero() {
			again.Stop()
		} else {
			again.Reset(max(time.Until(at), time.Millisecond))
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is signalled already
	}
}
