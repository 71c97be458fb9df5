package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/gate"
)

// chain is the chain of events of a message's item, as far as this worker knows it. One append is under way at a time.
// Results that become ready meanwhile are appended together by the next one.
type chain struct {
	w *Worker
	d *broker.Delivery

	mu gate.Gate // held while an append or a read is under way
	// seq is the last known event, which the next append expects. last is the last event about each call after the one
	// that the message was queued after.
	seq  uint64
	last map[int]batch.Record

	readyMu sync.Mutex
	ready   []*readyEnd
}

// readyEnd is the end of a call that is to be appended.
type readyEnd struct {
	*events.End
	seen uint64 // the last event about the call that is known to who made it
	done bool
	rec  batch.Record
	err  error
}

func (w *Worker) newChain(d *broker.Delivery) *chain {
	return &chain{w: w, d: d, seq: d.Expected, last: map[int]batch.Record{}}
}

// look reads the new events, and returns the last one about a call.
func (c *chain) look(ctx context.Context, call int) (batch.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(ctx); err != nil {
		return batch.Record{}, err
	}
	return c.last[call], nil
}

// news reads the new events, and returns the last one about each call, and the last one of all.
func (c *chain) news(ctx context.Context) (last map[int]batch.Record, seen uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.read(ctx)
	return maps.Clone(c.last), c.seq, err
}

// read reads the events after the last known one. c.mu is held.
func (c *chain) read(ctx context.Context) error {
	records, err := c.w.b.Item(ctx, c.d.Key(), c.w.cfg.Pool, c.d.Item, c.seq)
	for _, rec := range records {
		c.note(rec)
	}
	return err
}

// goBehind has the next event appended behind one that cannot be read.
func (c *chain) goBehind(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq = max(c.seq, seq)
}

func (c *chain) note(rec batch.Record) {
	c.seq = rec.Seq
	for _, call := range rec.Calls() {
		c.last[call] = rec
	}
}

// append stores an event about calls. If there is an event about one of them after the last one that the caller has
// seen, it wraps [broker.ErrConflict] and returns that event.
func (c *chain) append(ctx context.Context, seen uint64, body events.Body, calls ...int) (batch.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for _, call := range calls {
			if last := c.last[call]; last.Seq > seen {
				return last, broker.ErrConflict
			}
		}
		rec, again, err := c.store(ctx, body)
		if !again {
			return rec, err
		}
	}
}

// store makes one append. again says that others have appended since: their events are known now, or are read at the
// next conflict. c.mu is held.
func (c *chain) store(ctx context.Context, body events.Body) (rec batch.Record, again bool, err error) {
	err = broker.RetryFull(ctx, c.w.log.With("batch", c.d.Key(), "item", c.d.Item), func() (err error) {
		rec, err = c.w.b.Append(ctx, c.d.Key(), batch.ChainItem, c.w.cfg.Pool, c.d.Item, c.seq, body)
		return err
	})
	switch {
	case err == nil:
		c.note(rec)
		return rec, false, nil
	case !errors.Is(err, broker.ErrConflict):
		return rec, false, err
	}
	expected := c.seq
	if err := c.read(ctx); err != nil { // so it is not known whether a call has an answer
		return rec, ctx.Err() == nil && c.w.b.MayPass(err), fmt.Errorf("read what others have appended: %w", err)
	}
	return rec, c.seq > expected, err
}

// offer adds the end of a call to those that are ready. seen is the last event about the call that the caller has seen.
// The caller calls finish with what it returns.
func (c *chain) offer(seen uint64, end *events.End) *readyEnd {
	mine := &readyEnd{End: end, seen: seen}
	c.readyMu.Lock()
	defer c.readyMu.Unlock()
	c.ready = append(c.ready, mine)
	return mine
}

// storedAlready reports whether the append of another end has taken this one along, and returns that event.
func (c *chain) storedAlready(mine *readyEnd) (batch.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return mine.rec, mine.done && mine.err == nil
}

// finish stores an end that was offered, together with others that are ready. It wraps [broker.ErrConflict] as append
// does.
func (c *chain) finish(ctx context.Context, mine *readyEnd) (batch.Record, error) {
	c.gather()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !mine.done { // another call's finish may have stored it too
		c.flush(ctx, c.take())
		if ctx.Err() != nil && !mine.done {
			c.readyMu.Lock()
			defer c.readyMu.Unlock()
			c.ready = slices.DeleteFunc(c.ready, func(r *readyEnd) bool { return r == mine })
			return batch.Record{}, context.Cause(ctx)
		}
	}
	return mine.rec, mine.err
}

// maxYields is how often calls whose tools have returned get the processor in turn without adding their ends.
const maxYields = 3

// gather lets calls whose tools have returned add their ends, as long as some do. It waits for no time to pass.
func (c *chain) gather() {
	for had, idle := 0, 0; idle < maxYields; idle++ {
		runtime.Gosched()
		c.readyMu.Lock()
		has := len(c.ready)
		c.readyMu.Unlock()
		if has > had {
			had, idle = has, 0
		}
	}
}

// take returns the ends that are ready and fit into one event.
func (c *chain) take() []*readyEnd {
	c.readyMu.Lock()
	defer c.readyMu.Unlock()
	n, bytes := 0, 0
	for ; n < len(c.ready); n++ {
		if bytes += batch.ResultBytes(&c.ready[n].Result); n > 0 && bytes > maxEndsBytes {
			break
		}
	}
	taken := c.ready[:n:n]
	c.ready = c.ready[n:]
	return taken
}

// maxEndsBytes is how many bytes of results one event has, unless a single one has more: so that it is stored inline.
const maxEndsBytes = broker.MaxInlineBytes / 2

// flush appends ends, but for those of calls that have got another event. When ctx ends they are ready as before: other
// calls may have more time. c.mu is held.
func (c *chain) flush(ctx context.Context, ready []*readyEnd) {
	for len(ready) > 0 {
		open, ends := make([]*readyEnd, 0, len(ready)), make([]events.End, 0, len(ready))
		for _, r := range ready {
			if last := c.last[r.Result.Index]; last.Seq > r.seen {
				r.done, r.rec, r.err = true, last, broker.ErrConflict
				continue
			}
			open, ends = append(open, r), append(ends, *r.End)
		}
		if ready = open; len(ready) == 0 {
			return
		}
		rec, again, err := c.store(ctx, events.Finish(ends...))
		if again {
			continue
		}
		if err != nil && ctx.Err() != nil {
			c.readyMu.Lock()
			defer c.readyMu.Unlock()
			c.ready = append(ready, c.ready...)
			return
		}
		for _, r := range ready {
			r.done, r.rec, r.err = true, rec, err
		}
		return
	}
}
