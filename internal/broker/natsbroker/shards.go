package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/shard"
)

// A system of several shards has a set of streams for each. Shard 0 has the names that a system of one shard has; those
// of shard 3 begin with ty3 and TY3. Code above the requests to NATS uses the names of shard 0 everywhere: they are
// translated where a request is made, and back where an answer comes. Live copies have no shard in their subjects.
//
// A Broker is of the system, or of one shard ([Broker.in]). What belongs to a batch is done with that of its shard
// ([Broker.of]), and what belongs to a workspace's queue with that of its own. A broker of one shard, and one of a
// system of one shard, is its own.

// global are the streams and buckets that only shard 0 has.
var global = []string{streamDead, "KV_" + bucketAlive, "KV_" + bucketSession, "OBJ_" + bucketBlob, "KV_" + bucketUsage,
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

// name is the name of a stream or bucket in this broker's shard, and out a subject there.
func (b *Broker) name(name string) string       { return nameIn(b.shard, name) }
func (b *Broker) out(subject string) string     { return subjectIn(b.shard, subject) }
func (b *Broker) several() bool                 { return len(b.sets) > 0 }
func (b *Broker) ofKey(k toolyard.BatchKey) int { return b.Settings().ShardOf(k) }

// in returns the broker of one shard.
func (b *Broker) in(n int) *Broker {
	if !b.several() {
		return b
	}
	one := *b.sets[n]
	one.source = b.source
	return &one
}

// of returns the broker of a batch's shard, and ofWorkspace that of the shard with a workspace's ticket queue.
func (b *Broker) of(k toolyard.BatchKey) *Broker {
	if !b.several() {
		return b
	}
	return b.in(b.ofKey(k))
}

func (b *Broker) ofWorkspace(w toolyard.Workspace) *Broker {
	if !b.several() {
		return b
	}
	return b.in(shard.OfWorkspace(w).Shard(len(b.sets)))
}

// each returns the brokers of all shards.
func (b *Broker) each() []*Broker {
	out := make([]*Broker, max(1, len(b.sets)))
	for n := range out {
		out[n] = b.in(n)
	}
	return out
}

// split makes the brokers of the shards: ready prepares each.
func (b *Broker) split(ready func(*Broker) error) error {
	if b.Settings().ShardCount() == 1 {
		return nil
	}
	sets := make([]*Broker, b.Settings().ShardCount())
	for n := range sets {
		one := *b
		one.shard, one.sets = n, nil
		if n > 0 {
			one.forgotten = &forgotten{}
			if err := ready(&one); err != nil {
				return err
			}
		}
		sets[n] = &one
	}
	b.sets = sets
	return nil
}

// misplaced is what is wrong if a batch belongs to another shard than this broker's: it was published without a client
// of ours. Nobody looks for it here.
func (b *Broker) misplaced(k toolyard.BatchKey) error {
	n := b.Settings().ShardOf(k)
	if n == b.shard {
		return nil
	}
	return fmt.Errorf("this system has %d shards, and batch %s belongs to shard %d: publish it to %s, and read %s",
		b.Settings().ShardCount(), k, n, subjectIn(n, subjectBatch(k)), subjectIn(n, subjectReply(k)))
}

// numbered is a sequence of a shard as a number that no other shard has. In a system of one shard it is the sequence.
func (b *Broker) numbered(seq uint64) uint64 {
	n := uint64(b.Settings().ShardCount())
	if seq == 0 || n == 1 {
		return seq
	}
	return seq*n + uint64(b.shard)
}

// sequence is the inverse of [Broker.numbered]: the broker of the shard, and the sequence there.
func (b *Broker) sequence(number uint64) (*Broker, uint64) {
	n := uint64(b.Settings().ShardCount())
	if n == 1 {
		return b, number
	}
	return b.in(int(number % n)), number / n
}

// watchEach runs a watch in each shard until the first one ends. No two of them call see at a time.
func (b *Broker) watchEach(ctx context.Context, watch func(context.Context, *Broker, sync.Locker) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching sync.WaitGroup
	var seeing sync.Mutex
	for _, one := range b.each() {
		watching.Go(func() { cancel(watch(ctx, one, &seeing)) })
	}
	watching.Wait()
	return context.Cause(ctx)
}

// submissionsOf takes submissions of all shards.
type submissionsOf struct {
	each  []broker.Submissions
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
	for _, one := range b.each() {
		s, err := one.Submissions()
		if err != nil {
			all.Stop()
			return nil, err
		}
		all.each = append(all.each, s)
	}
	for _, s := range all.each {
		all.work.Go(func() { all.take(s) })
	}
	go func() {
		all.work.Wait()
		close(all.in)
	}()
	return all, nil
}

func (a *submissionsOf) take(s broker.Submissions) {
	for {
		sub, err := s.Next(a.ended)
		if errors.Is(err, broker.ErrStopped) {
			return
		}
		select {
		case a.in <- taken{sub, err}:
		case <-a.ended.Done():
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

func (a *submissionsOf) Stop() {
	for _, s := range a.each {
		s.Stop()
	}
	a.stop()
}
