package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/tool"
)

// Cache has the outputs that answer later calls, and the executions that calls share. The zero Cache is empty. It is
// safe for concurrent use. What it has is not passed on: another process has its own.
type Cache struct {
	mu      sync.Mutex
	entries cache.Entries
	// flights are the executions that equal calls may share.
	flights map[flightKey]*flight
}

// flightKey names calls that may share an execution.
type flightKey struct {
	key  cache.Key
	code *tool.Tool
}

// flight is an execution that other calls may wait for. over is closed when its call has ended; good says that out may
// then be used.
type flight struct {
	over  chan struct{}
	batch toolyard.BatchKey
	index int
	good  bool
	out   tool.Output
}

// Bytes is how many bytes the outputs that are kept count.
func (s *Cache) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries.Bytes()
}

func (s *Cache) get(k flightKey, now time.Time) (cache.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries.Get(k.key, k.code, now)
}

func (s *Cache) put(k cache.Key, e cache.Entry, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.Put(k, e, now)
}

// join returns the execution that a call may wait for; leads says that it is the call's own.
func (s *Cache) join(k flightKey, c *call) (f *flight, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.flights[k]; ok {
		return f, false
	}
	if s.flights == nil {
		s.flights = map[flightKey]*flight{}
	}
	f = &flight{over: make(chan struct{}), batch: c.job.Key, index: c.job.Index}
	s.flights[k] = f
	return f, true
}

// land ends an execution. Calls that begin later do not wait for it.
func (s *Cache) land(k flightKey, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, k)
	close(f.over)
}

// reuse is what a call whose tool declares a cache has to do when it has ended.
type reuse struct {
	key   flightKey
	began time.Time
	// flight is the execution that others may wait for; nil if the call leads none.
	flight *flight
	// ran says that the tool has run for this call and succeeded, and given is what it gave.
	ran   bool
	given tool.Output
}

// executeOrReuse answers the call with the output of an equal one if its tool allows it, and executes the tool
// otherwise.
func (c *call) executeOrReuse(ctx context.Context) finding {
	d := &c.entry.Declaration
	turn := c.job.Turn
	if turn == nil {
		turn = &cache.Turn{}
	}
	why := cache.Refuses(d, c.judgement, turn.Generation)
	if c.job.Answer != nil {
		why = "a person has answered what the tool asked"
	}
	if why != "" {
		return c.executeTool(ctx).noting("not cached: " + why)
	}
	question := cache.Question{Turn: *turn, Declaration: c.entry.Hash, Input: c.value.Hash(),
		Workspace: c.job.Workspace, Agent: c.job.Key.Agent, Scope: d.Cache.Scope, Context: c.job.Context}
	c.reuse = &reuse{key: flightKey{question.Key(), c.code}}
	if d.Cache.TTLMS > 0 {
		now := c.p.now()
		if e, ok := c.p.Cache.get(c.reuse.key, now); ok {
			c.reuse = nil
			age := now.Sub(e.Began).Round(time.Millisecond)
			return c.answer(toolyard.CacheHit, e.Output,
				fmt.Sprintf("from the cache: the output of call %d of %s, %s old", e.Index, e.Batch, age))
		}
	}
	note := ""
	if d.Cache.Coalesce {
		f, leads := c.p.Cache.join(c.reuse.key, c)
		if leads {
			c.reuse.flight = f
		} else {
			fail, good := c.await(ctx, f)
			switch {
			case fail != nil:
				c.reuse = nil
				return finding{fail: fail}
			case good:
				c.reuse = nil
				return c.answer(toolyard.CacheShared, f.out,
					fmt.Sprintf("shared the execution of call %d of %s", f.index, f.batch))
			}
			note = fmt.Sprintf("call %d of %s, for whose output it has waited, came to none", f.index, f.batch)
		}
	}
	c.res.Cache = toolyard.CacheMiss
	c.reuse.began = c.p.now()
	f := c.executeTool(ctx)
	c.reuse.ran = f.fail == nil
	if note != "" {
		f = f.noting(note)
	}
	return f
}

// await waits until an execution of another call is over, at most for as long as this call may take itself. fail says
// that this call has ended before, and good that the output may be used.
func (c *call) await(ctx context.Context, f *flight) (fail *failure, good bool) {
	limit, own := c.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{limit: limit, own: own,
		what: "the execution of an equal call, for which this one waited,"})
	defer cancel()
	select {
	case <-f.over:
	case <-ctx.Done():
	}
	if fail := c.ended(ctx); fail != nil {
		return fail, false
	}
	return nil, f.good
}

// answer takes the output of another call as this call's. The tool has not run for it.
func (c *call) answer(how toolyard.CacheUse, out tool.Output, detail string) finding {
	c.executed, c.res.Cache = true, how
	c.out = cache.Copy(out)
	c.res.WasConcurrent, c.res.Origin = c.job.WasConcurrent, c.origin()
	return noted(detail)
}

// share keeps the output of a call that has succeeded, and lets go whoever waits for it.
func (c *call) share() {
	r := c.reuse
	if r == nil {
		return
	}
	good := r.ran && c.fail == nil && !c.lost && c.waiting == nil
	if good && cache.Keeps(&c.entry.Declaration, &r.given) == "" {
		c.p.Cache.put(r.key.key, cache.Entry{Output: r.given, Batch: c.job.Key, Index: c.job.Index, Began: r.began,
			TTL: c.entry.Cache.TTL(), Code: c.code}, c.p.now())
	}
	if r.flight != nil {
		r.flight.good, r.flight.out = good && r.given.Session == nil, r.given
		c.p.Cache.land(r.key, r.flight)
	}
}

// noting adds a detail to a finding, which is recorded although nothing failed.
func (f finding) noting(detail string) finding {
	f.noted, f.detail = true, join(f.detail, detail)
	return f
}
