package follow

import (
	"context"
	"sync"
)

// The bounds of a topic.
const (
	// MaxTopicItems and MaxTopicBytes are how much of what came last a topic holds for those who have not taken it yet.
	// The last item is always there.
	MaxTopicItems = 256
	MaxTopicBytes = 256 << 10
)

// topic is something that is read once in this process, whoever follows it: a window of what came last, from which each
// follower takes at its own pace. One that is slower than the window is behind.
type topic[T any] struct {
	mu    sync.Mutex
	items []T
	sizes []int
	bytes int
	// first is the number of items[0]; base is the item before it, or what the topic began behind.
	first   int
	base    T
	changed chan struct{} // closed at the next change
	begun   chan struct{} // closed when what happens from now on comes, or it has ended
	begins  sync.Once
	ended   bool
	err     error

	users int // guarded by the topics
	stop  context.CancelFunc
}

// put adds an item for all.
func (t *topic[T]) put(v T, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.items, t.sizes, t.bytes = append(t.items, v), append(t.sizes, size), t.bytes+size
	drop := 0
	for len(t.items)-drop > 1 && (len(t.items)-drop > MaxTopicItems || t.bytes > MaxTopicBytes) {
		t.bytes -= t.sizes[drop]
		t.base = t.items[drop]
		drop++
	}
	// Followers may still read the former items, so these stay as they are.
	t.items, t.sizes, t.first = t.items[drop:], t.sizes[drop:], t.first+drop
	t.tell()
}

// end says that nothing follows, and why.
func (t *topic[T]) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.err = true, err
	t.begin()
	t.tell()
}

// begin says that what happens from now on comes.
func (t *topic[T]) begin() { t.begins.Do(func() { close(t.begun) }) }

func (t *topic[T]) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// follower takes from a topic.
type follower[T any] struct {
	t    *topic[T]
	next int
	// made says that the topic was made for it, so that nothing in it is older than the follower.
	made bool
}

// taken is what a follower gets.
type taken[T any] struct {
	items []T
	// behind says that items are missing before these.
	behind bool
	// ended says that none follow; err says why.
	ended bool
	err   error
}

// take waits for items. It fails only when ctx ends.
func (f *follower[T]) take(ctx context.Context) (taken[T], error) {
	for {
		got, changed := f.now()
		if len(got.items) > 0 || got.ended {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return got, context.Cause(ctx)
		case <-changed:
		}
	}
}

// each gives give what comes, until it says that nothing follows. done is false when items are missing before what is
// held, and the error is [ErrBehind] when slow says that the follower is to blame.
func (f *follower[T]) each(ctx context.Context, slow func() bool,
	give func([]T) (over bool, err error)) (done bool, err error) {
	for {
		got, err := f.take(ctx)
		switch {
		case err != nil:
			return true, err
		case got.behind && slow != nil && slow():
			return true, ErrBehind
		case got.behind:
			return false, nil
		}
		if over, err := give(got.items); over || err != nil {
			return true, err
		}
		if got.ended {
			return true, got.err
		}
	}
}

// skip waits until the topic has begun, and leaves out what came before the follower did.
func (f *follower[T]) skip(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.t.begun:
	}
	if f.made {
		return nil
	}
	got, _ := f.now()
	return got.err
}

func (f *follower[T]) now() (got taken[T], changed <-chan struct{}) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	got.behind = f.next < t.first
	at := max(f.next-t.first, 0)
	got.items = t.items[at:len(t.items):len(t.items)]
	got.ended, got.err = t.ended, t.err
	f.next = t.first + len(t.items)
	return got, t.changed
}

// topics are those that are followed now. Their key is what is followed itself and no text made of it: a name may have
// any printable character, so two keys could make the same text, and who follows one would get the other.
type topics[K comparable, T any] struct {
	mu  sync.Mutex
	all map[K]*topic[T]
}

// join follows a topic from the oldest item that it holds. When there is none of that key, or it has ended, one is
// made: run fills it from base on until its context ends, which is when the last follower has left. covers says whether
// who joins misses nothing between what it has and the window, whose base it is given; without that it does not join,
// and ok is false.
func (ts *topics[K, T]) join(key K, base T, covers func(T) bool,
	run func(context.Context, *topic[T]) error) (f *follower[T], leave func(), ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[key]
	if t != nil {
		t.mu.Lock()
		gone, fits, first := t.ended, covers(t.base), t.first
		t.mu.Unlock()
		switch {
		case gone:
			t = nil
		case !fits:
			return nil, nil, false
		default:
			t.users++
			return &follower[T]{t: t, next: first}, ts.leaver(key, t), true
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	t = &topic[T]{base: base, changed: make(chan struct{}), begun: make(chan struct{}), users: 1, stop: stop}
	if ts.all == nil {
		ts.all = map[K]*topic[T]{}
	}
	ts.all[key] = t
	go func() { t.end(run(ctx, t)) }()
	return &follower[T]{t: t, made: true}, ts.leaver(key, t), true
}

// has reports whether who misses nothing behind a base can join a topic that is there.
func (ts *topics[K, T]) has(key K, covers func(T) bool) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[key]
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended && covers(t.base)
}

func (ts *topics[K, T]) leaver(key K, t *topic[T]) func() {
	return sync.OnceFunc(func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if t.users--; t.users > 0 {
			return
		}
		t.stop()
		if ts.all[key] == t {
			delete(ts.all, key)
		}
	})
}
