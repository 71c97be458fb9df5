package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/gate"
	"github.com/toolyard/toolyard/internal/shard"
)

// A system of several shards has a set of streams for each. Shard 0 has the names that a system of one shard has; those
// of shard 3 begin with ty3 and TY3. Code above the requests to NATS uses the names of shard 0 everywhere: they are
// translated where a request is made, and back where an answer comes. Live copies have no shard in their subjects.
//
// A Broker is of the system, or of one shard ([Broker.in]). What belongs to a batch is done with that of its shard
// ([Broker.of]), and what belongs to a workspace's queue with those of its path. A broker of one shard is its own, and
// one of a system of one shard is that of shard 0.
//
// The number of shards may grow while a broker is used: see [Raise]. A broker reads the map of shards again when the
// one that it has is too old to be relied on, and then reaches the new shards too.

// global are the streams and buckets that only shard 0 has.
var global = []string{streamDead, "KV_" + bucketAlive, "KV_" + bucketSession, "OBJ_" + bucketBlob,
	"KV_" + bucketMap, bucketMap, "KV_" + bucketUsage,
	"KV_" + bucketBudget, bucketAlive, bucketSession, bucketBlob, bucketUsage, bucketBudget}

// moved are the beginnings of the subjects that each shard has.
var moved = []string{prefixBatch, prefixWake, prefixEvent, prefixCall, prefixReply, prefixArchive,
	"$KV." + bucketLock + ".", "$KV." + bucketApproval + ".", prefixIndex}

// nameIn is the name of a stream or bucket in a shard.
func nameIn(n int, name string) string {
	if n == 0 || slices.Contains(global, name) {
		return name
	}
	kind, rest, ok := strings.Cut(name, "_")
	if ok && (kind == "KV" || kind == "OBJ") {
		return kind + "_" + nameIn(n, rest)
	}
	return kind + strconv.Itoa(n) + "_" + rest
}

// subjectIn is a subject in a shard.
func subjectIn(n int, subject string) string {
	if n > 0 && slices.ContainsFunc(moved, func(p string) bool { return strings.HasPrefix(subject, p) }) {
		return strings.Replace(subject, "ty", "ty"+strconv.Itoa(n), 1)
	}
	return subject
}

// canonical is the inverse of [subjectIn], for any shard.
func canonical(subject string) string {
	root, rest := "ty", subject
	if after, ok := strings.CutPrefix(subject, "$KV."); ok {
		root, rest = "$KV.ty", after
	}
	rest, ok := strings.CutPrefix(rest, "ty")
	if !ok || rest == "" || rest[0] < '0' || rest[0] > '9' { // in shard 0, where most systems have all
		return subject
	}
	return root + strings.TrimLeft(rest, "0123456789")
}

// canonicalBucket is the name in shard 0 of a bucket.
func canonicalBucket(name string) string { return strings.TrimPrefix(canonical("$KV."+name), "$KV.") }

// name is the name of a stream or bucket in this broker's shard, and out a subject there.
func (b *Broker) name(name string) string   { return nameIn(b.shard, name) }
func (b *Broker) out(subject string) string { return subjectIn(b.shard, subject) }

// view is what a broker knows about the shards of its system. It does not change.
type view struct {
	shard.Map
	// read is when the map was read: a moment before that.
	read time.Time
	// server is about what the server's clock showed then; zero: that is not known.
	server time.Time
	// sets are the brokers of the shards.
	sets []*Broker
	// grown is closed when there is a view with more shards.
	grown chan struct{}
}

// time is the time by the server's clock, by which epochs begin, as far as it is known.
func (v *view) time() time.Time {
	if v.server.IsZero() {
		return time.Now()
	}
	return v.server.Add(time.Since(v.read))
}

// system is what all copies of a broker share.
type system struct {
	now     atomic.Pointer[view]
	reading gate.Gate // one at a time reads the map again
	where   where
}

func newSystem() *system {
	s := &system{}
	s.now.Store(&view{grown: make(chan struct{})})
	return s
}

func (b *Broker) view() *view { return b.system.now.Load() }

// in returns the broker of one shard.
func (b *Broker) in(n int) *Broker { return b.inOf(b.view(), n) }

func (b *Broker) inOf(v *view, n int) *Broker {
	if b.one || len(v.sets) == 0 {
		return b
	}
	one := *v.sets[n]
	one.source, one.pools = b.source, b.pools
	return &one
}

// whole is the inverse of in, for who looks for the shard of a batch.
func (b *Broker) whole() *Broker {
	w := *b
	w.one = false
	return &w
}

// each returns the brokers of all shards.
func (b *Broker) each() []*Broker {
	if b.one {
		return []*Broker{b}
	}
	v := b.view()
	out := make([]*Broker, max(1, len(v.sets)))
	for n := range out {
		out[n] = b.inOf(v, n)
	}
	return out
}

// all returns the brokers of all shards, for who reads from each. It reads the map again if that is too old: a process
// that only makes lists does not read it otherwise.
func (b *Broker) all(ctx context.Context) ([]*Broker, error) {
	if !b.one {
		if _, err := b.current(ctx); err != nil {
			return nil, fmt.Errorf("which shards there are: %w", err)
		}
	}
	return b.each(), nil
}

// see takes in the settings and the map that were read, and makes the brokers of the shards that it does not have yet:
// ready prepares each. An older map changes nothing: the number of shards only grows.
func (b *Broker) see(s broker.Settings, m shard.Map, read, server time.Time, ready func(*Broker) error) error {
	was := b.view()
	if m.Served() < was.Served() || len(m.Epochs) < len(was.Epochs) {
		return nil
	}
	now := &view{Map: m, read: read, server: server, sets: was.sets, grown: was.grown}
	if m.Served() > len(was.sets) {
		now.sets, now.grown = slices.Clone(was.sets), make(chan struct{})
		for n := len(was.sets); n < m.Served(); n++ {
			one := *b
			one.shard, one.one = n, true
			if n > 0 {
				one.forgotten, one.earlier = &forgotten{}, &earlier{}
				if err := ready(&one); err != nil {
					return err
				}
			}
			now.sets = append(now.sets, &one)
		}
	}
	s = served(s, m)
	b.held.Store(&s)
	b.system.now.Store(now)
	if now.grown != was.grown {
		close(was.grown)
	}
	return nil
}

// current returns a view that is young enough: see [shard.Young].
func (b *Broker) current(ctx context.Context) (*view, error) {
	if v := b.view(); shard.Young(v.read, time.Now()) {
		return v, nil
	}
	return b.renewed(ctx)
}

// renewed returns a view that was read after the call. Who reads the map may have more time than who waits for that.
func (b *Broker) renewed(ctx context.Context) (*view, error) {
	asked := time.Now()
	if err := b.system.reading.LockWithin(ctx); err != nil {
		return b.view(), fmt.Errorf("somebody else still reads the map of shards: %w", err)
	}
	defer b.system.reading.Unlock()
	if v := b.view(); v.read.After(asked) {
		return v, nil
	}
	err := b.look(ctx)
	return b.view(), err
}

func (b *Broker) path(v *view, s shard.Slot) []int {
	return v.Path(s, v.time(), b.Settings().KeptFor())
}

// of returns the broker of a batch's shard. If there is no such batch, it is the one where it would be submitted.
func (b *Broker) of(ctx context.Context, k toolyard.BatchKey) (*Broker, error) {
	if b.one {
		return b, nil
	}
	v, err := b.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("where batch %s is: %w", k, err)
	}
	if v.Served() == 1 {
		return b, nil
	}
	slot := shard.OfBatch(k)
	path, fresh := b.path(v, slot), v.Current(v.read, time.Now())
	if fresh && len(path) == 1 {
		return b.inOf(v, path[0]), nil
	}
	if n, ok := b.system.where.get(k); ok {
		return b.in(n), nil
	}
	n, found, err := b.search(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("where batch %s is: %w", k, err)
	}
	if found {
		b.system.where.note(k, n)
	}
	return b.in(n), nil
}

// search looks for the shard of a batch. If there is no such batch, it is the one where it would be submitted.
func (b *Broker) search(ctx context.Context, k toolyard.BatchKey) (n int, found bool, err error) {
	if b.guest != nil {
		return b.guest.where(ctx, b, k)
	}
	v := b.view()
	for fresh := v.Current(v.read, time.Now()); ; fresh = true {
		path, stands := b.path(v, shard.OfBatch(k)), map[int]shard.Stand{}
		home := path[len(path)-1]
		step := shard.Find(path, stands, fresh)
		for ; step.Kind == shard.Look; step = shard.Find(path, stands, fresh) {
			if stands[step.Shard], err = b.inOf(v, step.Shard).stand(ctx, k); err != nil {
				return 0, false, err
			}
		}
		switch was := v; {
		case step.Kind == shard.Answer:
			return step.Shard, true, nil
		case step.Kind == shard.None:
			return home, false, nil
		default:
			if v, err = b.renewed(ctx); err != nil {
				return 0, false, err
			}
			if fresh && len(v.Epochs) == len(was.Epochs) { // a fence in the newest home: somebody else has put it there
				return home, false, nil
			}
		}
	}
}

// stand is what stands under the id of a batch in this broker's shard.
func (b *Broker) stand(ctx context.Context, k toolyard.BatchKey) (shard.Stand, error) {
	m, ok, err := b.hotLastOrLost(ctx, streamBatch, subjectBatch(k))
	switch {
	case errors.Is(err, broker.ErrDamaged):
		return shard.Taken, nil
	case err != nil:
		return shard.Unread, err
	case !ok:
		return shard.Nothing, nil
	case m.header.Get(headerType) == string(events.BatchMoved):
		return shard.Moved, nil
	}
	return shard.Taken, nil
}

// ShardOf is the shard that a batch is in, or would be submitted to.
func (b *Broker) ShardOf(ctx context.Context, k toolyard.BatchKey) (int, error) {
	of, err := b.of(ctx, k)
	if err != nil {
		return 0, err
	}
	return of.shard, nil
}

// shardBits is where the shard is in the numbers that [Broker.numbered] makes. They fit into the 53 bits that every
// reader of JSON has for a whole number.
const (
	shardBits   = 48
	maxSequence = 1<<shardBits - 1
)

// numbered is a sequence of a shard as a number that no other shard has, however many there are or will be. In shard 0
// it is the sequence.
func (b *Broker) numbered(seq uint64) uint64 {
	if seq == 0 {
		return 0
	}
	return seq | uint64(b.shard)<<shardBits
}

// sequence is the inverse of [Broker.numbered]: the broker of the shard, and the sequence there.
func (b *Broker) sequence(number uint64) (*Broker, uint64, error) {
	n, seq := int(number>>shardBits), number&maxSequence
	if v := b.view(); n >= max(1, len(v.sets)) {
		return nil, 0, fmt.Errorf("%d is of shard %d, and there are %d", number, n, v.Served())
	}
	return b.in(n), seq, nil
}

// lanes is how many lanes a route has in this broker's shard.
func (b *Broker) lanes() int { return b.view().lanes(b.shard) }

func (v *view) lanes(n int) int { return broker.ShardLanes(v.MadeWith(n)) }

// Lanes is how many lanes a route has in all shards that this process serves. more is closed when there are more. A
// lane keeps its number.
func (b *Broker) Lanes() (n int, more <-chan struct{}) {
	v := b.view()
	for at := range v.Served() {
		if b.serves.Has(at) {
			n += v.lanes(at)
		}
	}
	return n, v.grown
}

// laneIn is the shard of a lane of those in a set, and its number there.
func (v *view) laneIn(only shard.Set, number int) (n, lane int) {
	n, lane = -1, number
	for at := range v.Served() {
		switch {
		case !only.Has(at):
		case n < 0:
			n = at
		case lane < v.lanes(n):
			return n, lane
		default:
			n, lane = at, lane-v.lanes(n)
		}
	}
	return max(n, 0), lane
}

// watchEach runs a watch in each shard until the first one ends, also in those that are added. No two of them call see
// at a time.
func (b *Broker) watchEach(ctx context.Context, watch func(context.Context, *Broker, sync.Locker) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	var seeing sync.Mutex
	b.forEach(ctx, func(one *Broker) {
		watching.Go(func() { cancel(watch(ctx, one, &seeing)) })
	})
	watching.Wait()
	return context.Cause(ctx)
}

// forEach calls do with the broker of each shard, also of those that are added, until ctx ends. A broker of one shard
// calls it once.
func (b *Broker) forEach(ctx context.Context, do func(*Broker)) {
	for next := 0; ; {
		v := b.view()
		for ; next < max(1, len(v.sets)); next++ {
			do(b.inOf(v, next))
		}
		select {
		case <-v.grown:
		case <-ctx.Done():
			return
		}
	}
}

// submissionsOf takes submissions of all shards.
type submissionsOf struct {
	in    chan taken
	stop  context.CancelFunc
	ended context.Context
	work  sync.WaitGroup
}

// taken is what Next returns.
type taken struct {
	sub *broker.Submission
	err error
}

func (b *Broker) submissionsOfAll() (broker.Submissions, error) {
	all := &submissionsOf{in: make(chan taken)}
	all.ended, all.stop = context.WithCancel(context.Background())
	// One is opened at once, so that a system that cannot be used is said here.
	known := slices.IndexFunc(b.each(), func(one *Broker) bool { return b.serves.Has(one.shard) })
	first, err := b.inOf(b.view(), max(0, known)).submissions()
	if err == nil {
		err = b.answerRoll(all)
	}
	if err != nil {
		if first != nil {
			first.Stop()
		}
		all.stop()
		return nil, err
	}
	all.work.Go(func() {
		b.forEach(all.ended, func(one *Broker) {
			if !b.serves.Has(one.shard) {
				return
			}
			s := first
			for pause := firstPause; first == nil; {
				if s, err = one.submissions(); err == nil {
					break
				}
				if !all.give(taken{err: fmt.Errorf("shard %d: %w", one.shard, err)}) || wait(all.ended, &pause) != nil {
					return
				}
			}
			first = nil
			context.AfterFunc(all.ended, s.Stop)
			all.work.Go(func() { all.take(s) })
		})
	})
	go func() {
		all.work.Wait()
		close(all.in)
	}()
	return all, nil
}

// give hands over what Next returns. It returns false at the end.
func (a *submissionsOf) give(t taken) bool {
	select {
	case a.in <- t:
		return true
	case <-a.ended.Done():
		return false
	}
}

func (a *submissionsOf) take(s broker.Submissions) {
	for {
		sub, err := s.Next(a.ended)
		if errors.Is(err, broker.ErrStopped) {
			a.stop()
			return
		}
		if !a.give(taken{sub, err}) {
			if sub != nil {
				_ = sub.Return(0) // if it is lost, the submission is redelivered after its ack wait
			}
			return
		}
	}
}

func (a *submissionsOf) Next(context.Context) (*broker.Submission, error) {
	t, ok := <-a.in
	if !ok {
		return nil, broker.ErrStopped
	}
	return t.sub, t.err
}

func (a *submissionsOf) Stop() { a.stop() }
