package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// keyIndex is the index as keys without values: see indexkeys.go. It gets the keys from the leader of their stream,
// which has them in memory, and never reads a message. Each read covers a span of places, so that its answer is
// bounded, whatever the number of batches.
type keyIndex struct {
	publish func(ctx context.Context, stream string, msg *nats.Msg) (*jetstream.PubAck, error)
	stream  jetstream.Stream
	// out translates subjects to those of the shard.
	out func(string) string
	// kept returns the range of submissions that are kept.
	kept func(context.Context) (oldest, newest uint64, err error)
}

// kept returns the sequences of the first and the last submission that is kept.
func (b *Broker) kept(ctx context.Context) (oldest, newest uint64, err error) {
	info, err := retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return b.streams[streamBatch].Info(ctx)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("look at stream %s: %w", streamBatch, err)
	}
	return info.State.FirstSeq, info.State.LastSeq, nil
}

// indexMargin is how far below the place of the oldest key of the index others are looked for, where submissions are
// archived before they are too old: a batch that ran for long has a newer key than those that were submitted after it.
const indexMargin = 1 << 17

// listed is the range of submissions that may be in the index: those that are kept, and those that are archived.
func (b *Broker) listed(ctx context.Context) (oldest, newest uint64, err error) {
	if oldest, newest, err = b.kept(ctx); err != nil {
		return 0, 0, err
	}
	if archives, err := b.hasArchive(ctx); err != nil || !archives {
		return oldest, newest, err
	}
	m, ok, err := b.hotAfter(ctx, streamIndex, prefixIndex+">", 0)
	if err != nil || !ok {
		return oldest, newest, err
	}
	if e, err := parseIndexSubject(m.subject); err == nil {
		oldest = min(oldest, e.Place-min(e.Place, indexMargin))
	}
	return oldest, newest, nil
}

func (x keyIndex) Add(ctx context.Context, e broker.Entry) error {
	_, _, err := x.put(ctx, e)
	return err
}

func (x keyIndex) Change(ctx context.Context, e broker.Entry) error {
	subject, seq, err := x.put(ctx, e)
	if err != nil {
		return err
	}
	if !e.Live() { // no earlier entry counts any more
		return x.remove(ctx, subjectsOf(&e, "*"), seq)
	}
	earlier, err := x.subjects(ctx, subjectsOf(&e, lifeLive))
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range earlier {
		if old, err := parseIndexSubject(s); err == nil && s != subject && old.Revision <= e.Revision {
			errs = append(errs, x.remove(ctx, s, 0))
		}
	}
	return errors.Join(errs...)
}

// put stores an entry and returns its subject and sequence.
func (x keyIndex) put(ctx context.Context, e broker.Entry) (subject string, seq uint64, err error) {
	e.Changed = time.Now()
	if subject, err = indexSubject(&e); err != nil {
		return "", 0, err
	}
	ack, err := x.publish(ctx, "", nats.NewMsg(subject))
	if err != nil {
		return "", 0, fmt.Errorf("index batch %s: %w", e.Key(), err)
	}
	return subject, ack.Sequence, nil
}

// remove removes entries; if before is not 0, only those stored before that sequence.
func (x keyIndex) remove(ctx context.Context, subjects string, before uint64) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		what := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(x.out(subjects))}
		if before > 0 {
			what = append(what, jetstream.WithPurgeSequence(before))
		}
		return struct{}{}, x.stream.Purge(ctx, what...)
	})
	if err != nil {
		return fmt.Errorf("take obsolete entries out of the index: %w", err)
	}
	return nil
}

// removeBehind removes the entries of places behind one. They have no gap as wide as a wide span.
func (x keyIndex) removeBehind(ctx context.Context, place uint64) error {
	for at := place + 1; ; {
		s := spanOf(at, true)
		subjects, err := x.subjects(ctx, filterSubjects(&broker.Filter{}, s))
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			if e, err := parseIndexSubject(subject); err != nil || e.Place <= place {
				continue
			}
			if err := x.remove(ctx, subject, 0); err != nil {
				return err
			}
		}
		if len(subjects) == 0 && s.first > place {
			return nil
		}
		at = s.last + 1
	}
}

// subjects returns the matching subjects, in any order.
func (x keyIndex) subjects(ctx context.Context, filter string) ([]string, error) {
	info, err := retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return x.stream.Info(ctx, jetstream.WithSubjectFilter(x.out(filter)))
	})
	if err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	out := make([]string, 0, len(info.State.Subjects))
	for s := range info.State.Subjects {
		out = append(out, canonical(s))
	}
	return out, nil
}

// read returns the entries whose subjects match, in any order. It skips those that cannot be read.
func (x keyIndex) read(ctx context.Context, filter string) ([]broker.Entry, error) {
	subjects, err := x.subjects(ctx, filter)
	out := make([]broker.Entry, 0, len(subjects))
	for _, s := range subjects {
		if e, err := parseIndexSubject(s); err == nil {
			out = append(out, e)
		}
	}
	return out, err
}

func (x keyIndex) Page(ctx context.Context, f broker.Filter) (page []broker.Entry, more bool, err error) {
	if f.Limit <= 0 || f.Limit > broker.MaxListed {
		f.Limit = broker.MaxListed
	}
	if f.Live && f.Status != "" && !broker.IsLive(f.Status) {
		return nil, false, nil
	}
	oldest, newest, err := x.kept(ctx)
	if err != nil {
		return nil, false, err
	}
	if f.After > 0 {
		newest = min(newest, f.After-1)
	}
	w := walk{oldest: oldest, newest: newest}
	for s, ok := w.next(); ok && len(page) <= f.Limit; s, ok = w.next() {
		entries, err := x.read(ctx, filterSubjects(&f, s))
		if err != nil {
			return nil, false, err
		}
		entries = newestFirst(entries, s)
		w.advance(s, len(entries))
		if f.Live || f.Status != "" && broker.IsLive(f.Status) {
			if entries, err = x.recheck(ctx, f, entries, f.Limit+1-len(page)); err != nil {
				return nil, false, err
			}
		}
		page = append(page, entries...)
	}
	if more = len(page) > f.Limit; more {
		page = page[:f.Limit]
	}
	return page, more, nil
}

// newestFirst returns the entries in a span, the right one of each batch, newest first.
func newestFirst(entries []broker.Entry, s span) []broker.Entry {
	entries = slices.DeleteFunc(entries, func(e broker.Entry) bool { return e.Place < s.first || e.Place > s.last })
	slices.SortFunc(entries, func(a, b broker.Entry) int {
		if c := cmp.Compare(b.Place, a.Place); c != 0 {
			return c
		}
		switch {
		case a.Beats(&b):
			return -1
		case b.Beats(&a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(entries, func(a, b broker.Entry) bool { return a.Place == b.Place })
}

// checksAtOnce is how many batches that seem to be live are looked up at a time.
const checksAtOnce = 16

// recheck returns the first wanted batches whose right entry matches the filter. They were found among the entries of
// live batches; another entry may say that a batch is completed or has another status.
func (x keyIndex) recheck(ctx context.Context, f broker.Filter, found []broker.Entry, wanted int) (out []broker.Entry,
	err error) {
	for some := range slices.Chunk(found, checksAtOnce) {
		if len(out) >= wanted {
			break
		}
		right, errs := make([][]broker.Entry, len(some)), make([]error, len(some))
		var looking sync.WaitGroup
		for i := range some {
			looking.Go(func() { right[i], errs[i] = x.read(ctx, subjectsOf(&some[i], "*")) })
		}
		looking.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for i, e := range some {
			entries := newestFirst(right[i], span{first: e.Place, last: e.Place})
			if len(entries) > 0 && f.Wants(&entries[0]) {
				out = append(out, entries[0])
			}
		}
	}
	return out, nil
}
