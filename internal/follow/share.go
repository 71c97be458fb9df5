package follow

import (
	"context"
	"sync"
	"time"
)

// What followers share: turns at reading, reads that several want at the same time, and what was just read.

// turns lets so many of each key work at a time. The others wait, and get their turns in the order in which they came.
type turns[K comparable] struct {
	most int

	mu   sync.Mutex
	each map[K]*queue
}

type queue struct {
	busy    int
	waiting []chan struct{}
}

func newTurns[K comparable](most int) *turns[K] { return &turns[K]{most: most, each: map[K]*queue{}} }

// take waits for a turn, which lasts until done is called. It fails only when ctx ends.
func (t *turns[K]) take(ctx context.Context, key K) (done func(), err error) {
	if t.most == 0 {
		return func() {}, nil
	}
	t.mu.Lock()
	q := t.each[key]
	if q == nil {
		q = &queue{}
		t.each[key] = q
	}
	if q.busy < t.most {
		q.busy++
		t.mu.Unlock()
		return t.leaver(key, q), nil
	}
	mine := make(chan struct{})
	q.waiting = append(q.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return t.leaver(key, q), nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range q.waiting {
		if w == mine {
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			return nil, context.Cause(ctx)
		}
	}
	t.pass(key, q) // it was given the turn meanwhile
	return nil, context.Cause(ctx)
}

func (t *turns[K]) leaver(key K, q *queue) func() {
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pass(key, q)
	})
}

// pass gives a turn to the next who waits.
func (t *turns[K]) pass(key K, q *queue) {
	if len(q.waiting) > 0 {
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
		return
	}
	if q.busy--; q.busy == 0 {
		delete(t.each, key)
	}
}

// flights does the same work once for all who ask while it waits or runs. What is asked for is done after it was asked
// for: who comes while it runs gets what the next one finds.
type flights[K comparable, T any] struct {
	mu   sync.Mutex
	each map[K]*flight[T]
}

type flight[T any] struct {
	next *flight[T]
	done chan struct{}
	v    T
	err  error
}

// do returns what work returns, which many may read and nobody may change.
func (fs *flights[K, T]) do(ctx context.Context, key K, work func(context.Context) (T, error)) (T, error) {
	fs.mu.Lock()
	if fs.each == nil {
		fs.each = map[K]*flight[T]{}
	}
	f := fs.each[key]
	switch {
	case f == nil:
		f = &flight[T]{done: make(chan struct{})}
		fs.each[key] = f
		go fs.run(context.WithoutCancel(ctx), key, f, work)
	case f.next == nil:
		f.next = &flight[T]{done: make(chan struct{})}
		f = f.next
		go fs.after(context.WithoutCancel(ctx), key, fs.each[key], f, work)
	default:
		f = f.next
	}
	fs.mu.Unlock()
	select {
	case <-f.done:
		return f.v, f.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (fs *flights[K, T]) after(ctx context.Context, key K, before, f *flight[T],
	work func(context.Context) (T, error)) {
	<-before.done
	fs.run(ctx, key, f, work)
}

// run does the work, within readTimeout.
func (fs *flights[K, T]) run(ctx context.Context, key K, f *flight[T], work func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	f.v, f.err = work(ctx)
	fs.mu.Lock()
	if f.next != nil {
		fs.each[key] = f.next
	} else {
		delete(fs.each, key)
	}
	fs.mu.Unlock()
	close(f.done)
}

// pieces keeps for a while what was read of batches' logs, which are only appended to, for the streams that come to the
// same place.
type pieces struct {
	mu    sync.Mutex
	all   map[place]piece
	order []place // the oldest first
	bytes int
}

func (ps *pieces) get(at place) (piece, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.drop()
	p, ok := ps.all[at]
	return p, ok
}

func (ps *pieces) put(at place, p piece) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, there := ps.all[at]; there || p.size > maxKeptBytes {
		return
	}
	if ps.all == nil {
		ps.all = map[place]piece{}
	}
	p.read = time.Now()
	ps.all[at], ps.order, ps.bytes = p, append(ps.order, at), ps.bytes+p.size
	ps.drop()
}

// drop forgets what is old: another batch may have the name by then.
func (ps *pieces) drop() {
	for len(ps.order) > 0 {
		oldest := ps.all[ps.order[0]]
		if ps.bytes <= maxKeptBytes && time.Since(oldest.read) < maxKeptAge {
			return
		}
		ps.bytes -= oldest.size
		delete(ps.all, ps.order[0])
		ps.order = ps.order[1:]
	}
}
