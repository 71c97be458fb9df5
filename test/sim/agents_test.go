package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
)

// retryAfter is how long somebody waits who has had no answer.
const retryAfter = 100 * time.Millisecond

// seen is what agents saw of a batch. It outlives the parties.
type seen struct {
	spec *batchSpec
	// started says that a call has started it, and no agent; nil: an agent has.
	started *started
	mu      sync.Mutex
	// acked are the calls that were accepted, with the ids that the agent gave them.
	acked []string
	// results are what each attempt to read them to the end has got; over says when one had all.
	results []*reading
	over    time.Time
}

// reading is one reading of a batch's results.
type reading struct {
	who     string
	results []toolyard.Result
	at      []time.Time
	whole   bool
}

// agent is an agent's process: it hands in its batches, each on its own, and takes their results. A later one takes up
// what is not over.
func agent(s agentSpec) func(*party) error {
	return func(p *party) error {
		c, end, err := p.client(s.http)
		if err != nil {
			return err
		}
		defer end()
		var each sync.WaitGroup
		for i, spec := range s.batches {
			b := p.w.seen[spec.batch.Key()]
			each.Go(func() {
				if p.untilDue(spec, time.Duration(i)*time.Microsecond) == nil {
					p.handIn(c, b)
				}
			})
			if spec.cancel > 0 {
				each.Go(func() {
					if p.until(spec.cancel+time.Duration(i)*time.Microsecond) == nil {
						p.cancel(c, b)
					}
				})
			}
			if spec.last {
				each.Go(func() {
					for !p.w.othersOver(b) {
						if p.sleep(10*look+time.Duration(p.rand64()%100_000)) != nil {
							return
						}
					}
					p.cancel(c, b)
				})
			}
			if spec.interrupt > 0 {
				each.Go(func() {
					if p.until(spec.interrupt+time.Duration(i)*time.Microsecond) == nil {
						p.interrupt(c, b)
					}
				})
			}
			if spec.twice {
				each.Go(func() {
					if p.until(spec.submit+spec.again+50*time.Microsecond) == nil {
						p.handInAgain(c, s.http, b)
					}
				})
			}
		}
		each.Wait()
		return nil
	}
}

// untilDue waits until a batch is to be handed in, and for a moment.
func (p *party) untilDue(spec *batchSpec, moment time.Duration) error {
	if spec.of == nil {
		return p.until(spec.submit + moment)
	}
	for b := p.w.seen[spec.of.batch.Key()]; ; {
		b.mu.Lock()
		over := b.over
		b.mu.Unlock()
		if !over.IsZero() {
			return p.until(over.Sub(p.w.began) - p.w.opens + spec.submit + moment)
		}
		if err := p.sleep(2*look + time.Duration(p.rand64()%100_000)); err != nil {
			return err
		}
	}
}

// othersOver reports whether all batches are over but one.
func (w *world) othersOver(but *seen) bool {
	for _, b := range w.seen {
		b.mu.Lock()
		over := b == but || !b.over.IsZero()
		b.mu.Unlock()
		if !over {
			return false
		}
	}
	return true
}

// until waits for an instant after the agents have begun.
func (p *party) until(at time.Duration) error {
	return p.sleep(max(0, p.w.opens+at-p.w.now()) + time.Duration(p.rand64()%100_000|1))
}

// insist does something until it is done, or it is clear that it will not be.
func (p *party) insist(do func() error) error {
	for {
		err := do()
		if err == nil || p.ctx.Err() != nil || !passes(err) {
			return err
		}
		p.w.note(p.name, "tries again after: %v", err)
		if p.sleep(retryAfter) != nil {
			return err
		}
	}
}

// passes reports whether it is worth asking again.
func passes(err error) bool {
	if _, wrong := errors.AsType[*toolyard.InputError](err); wrong {
		return false
	}
	if _, refused := errors.AsType[*client.RefusedError](err); refused {
		return false
	}
	for _, final := range []error{client.ErrOtherContent, client.ErrClosed, client.ErrCompleted, client.ErrNoCall,
		client.ErrDamaged, events.ErrNewer} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

func (p *party) handIn(c *client.Client, b *seen) {
	whole := b.spec.batch
	if !b.spec.open {
		if err := p.insist(func() error { _, err := c.Submit(p.ctx, whole); return err }); err != nil {
			p.excuse(b, "submit", err)
			return
		}
		b.accept(whole.Calls)
	} else if !p.stream(c, b) {
		return
	}
	p.read(c, b)
}

// handInAgain hands in the same again, over the same connection or a new one.
func (p *party) handInAgain(c *client.Client, http bool, b *seen) {
	if b.spec.open {
		return
	}
	if b.spec.again > 0 {
		other, end, err := p.client(http)
		if err != nil {
			return
		}
		defer end()
		c = other
	}
	if err := p.insist(func() error { _, err := c.Submit(p.ctx, b.spec.batch); return err }); err != nil {
		p.excuse(b, "submit again", err)
		return
	}
	p.read(c, b)
}

// stream hands in an open batch, call by call. Who does not know whether an append was stored appends no more: the
// dispatcher closes what is left open.
func (p *party) stream(c *client.Client, b *seen) bool {
	open := b.spec.batch
	open.Calls = slices.Clone(open.Calls[:b.spec.first])
	var s *client.Stream
	if err := p.insist(func() (err error) { s, err = c.Open(p.ctx, open); return err }); err != nil {
		p.excuse(b, "open", err)
		return false
	}
	b.accept(open.Calls)
	b.mu.Lock()
	taken := len(b.acked) > len(open.Calls) // by a process of this agent that has crashed
	b.mu.Unlock()
	for _, call := range b.spec.batch.Calls[b.spec.first:] {
		if taken || p.sleep(b.spec.pause+time.Duration(p.rand64()%100_000)) != nil {
			break
		}
		if err := s.Append(p.ctx, call); err != nil {
			p.w.note(p.name, "appends no more: %v", err)
			return true
		}
		b.accept([]toolyard.Call{call})
	}
	if b.spec.closes && !taken {
		if err := p.insist(func() error { return s.Close(p.ctx) }); err != nil && p.ctx.Err() == nil &&
			!errors.Is(err, client.ErrClosed) {
			p.w.note(p.name, "does not close: %v", err)
		}
	}
	return true
}

// accept notes the calls that were accepted.
func (b *seen) accept(calls []toolyard.Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range calls {
		if !slices.Contains(b.acked, c.ID) {
			b.acked = append(b.acked, c.ID)
		}
	}
}

// read takes the results, from the first on, until it has all.
func (p *party) read(c *client.Client, b *seen) {
	err := p.insist(func() error {
		r := &reading{who: p.name}
		b.mu.Lock()
		b.results = append(b.results, r)
		b.mu.Unlock()
		for res, err := range c.Batch(b.spec.batch.Key()).Results(p.ctx) {
			if err != nil {
				return err
			}
			b.mu.Lock()
			r.results, r.at = append(r.results, res), append(r.at, time.Now())
			b.mu.Unlock()
			p.w.note(p.name, "has result %d of %s: %s", res.Index, b.spec.batch.Key(), outcome(res))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		r.whole = true
		if b.over.IsZero() {
			b.over = time.Now()
		}
		return nil
	})
	if err != nil {
		p.excuse(b, "results", err)
	}
}

func outcome(r toolyard.Result) string {
	if r.Code == "" {
		return "ok"
	}
	return string(r.Code)
}

// excuse notes an error, unless the party is at its end.
func (p *party) excuse(b *seen, what string, err error) {
	if p.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	p.w.fail("agent", "%s, %s of %s: %v", p.name, what, b.spec.batch.Key(), err)
}

// cancel cancels what its agent wants to cancel, at once or one by one.
func (p *party) cancel(c *client.Client, b *seen) {
	if b.spec.apart == 0 {
		p.cancelCalls(c, b, b.spec.canceled)
		return
	}
	for _, i := range b.spec.canceled {
		p.cancelCalls(c, b, []int{i})
		if p.sleep(b.spec.apart) != nil {
			return
		}
	}
}

func (p *party) cancelCalls(c *client.Client, b *seen, calls []int) {
	err := p.insist(func() error {
		err := c.Batch(b.spec.batch.Key()).Cancel(p.ctx, "it is not needed any more", calls...)
		if errors.Is(err, client.ErrNoBatch) && p.w.now() > b.spec.cancel+20*time.Second {
			return nil // it was never handed in
		}
		return err
	})
	p.w.note(p.name, "cancels %v of %s: %v", calls, b.spec.batch.Key(), err)
}

// interrupt interrupts the session of a batch.
func (p *party) interrupt(c *client.Client, b *seen) {
	n := 0
	err := p.insist(func() (err error) {
		n, err = c.Interrupt(p.ctx, b.spec.batch.Agent, b.spec.batch.Session, "something else came up")
		return err
	})
	p.w.note(p.name, "interrupts %d batches: %v", n, err)
}
