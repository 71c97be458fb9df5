package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
)

// Lists of all shards are merged by time: sequences of different shards say nothing about each other. The places in
// them are those of [Broker.numbered].

// indexOfAll is the index of a system.
type indexOfAll struct{ b *Broker }

func (x indexOfAll) Add(ctx context.Context, e broker.Entry) error {
	of, err := x.b.of(ctx, e.Key())
	if err != nil {
		return err
	}
	return of.keyIndex().Add(ctx, e)
}

func (x indexOfAll) Change(ctx context.Context, e broker.Entry) error {
	of, err := x.b.of(ctx, e.Key())
	if err != nil {
		return err
	}
	e.Place &= maxSequence // it may be that of a page
	return of.keyIndex().Change(ctx, e)
}

// listing is a page of one shard.
type listing struct {
	entries []broker.Entry
	shard   int
}

// before reports whether an entry of a shard comes before another one: it is newer.
func before(e *broker.Entry, shard int, other *broker.Entry, otherShard int) bool {
	if c := e.Submitted.Compare(other.Submitted); c != 0 {
		return c > 0
	}
	return shard > otherShard
}

func (x indexOfAll) Page(ctx context.Context, f broker.Filter) (page []broker.Entry, more bool, err error) {
	if f.Limit <= 0 || f.Limit > broker.MaxListed {
		f.Limit = broker.MaxListed
	}
	each, err := x.b.all(ctx)
	if err != nil {
		return nil, false, err
	}
	if len(each) == 1 {
		return x.b.keyIndex().Page(ctx, f)
	}
	after, err := x.places(ctx, each, f.After)
	if err != nil {
		return nil, false, err
	}
	var all []listing
	for n, one := range each {
		of := f
		of.After = after[n]
		entries, rest, err := one.Index().Page(ctx, of)
		if err != nil {
			return nil, false, err
		}
		more = more || rest
		if len(entries) > 0 {
			all = append(all, listing{entries, n})
		}
	}
	for len(page) < f.Limit && len(all) > 0 {
		newest := 0
		for i := range all {
			if before(&all[i].entries[0], all[i].shard, &all[newest].entries[0], all[newest].shard) {
				newest = i
			}
		}
		from := &all[newest]
		e := from.entries[0]
		e.Place = x.b.in(from.shard).numbered(e.Place)
		page = append(page, e)
		if from.entries = from.entries[1:]; len(from.entries) == 0 {
			all = slices.Delete(all, newest, newest+1)
		}
	}
	return page, more || len(all) > 0, nil
}

// places are the places behind which each shard is listed, after an entry with a number; 0 is the newest.
func (x indexOfAll) places(ctx context.Context, each []*Broker, number uint64) ([]uint64, error) {
	out := make([]uint64, len(each))
	if number == 0 {
		return out, nil
	}
	of, place, err := x.b.sequence(number)
	if err != nil {
		return nil, err
	}
	if of.shard >= len(out) {
		return nil, fmt.Errorf("the list goes on in shard %d of %d: begin it again", of.shard, len(out))
	}
	out[of.shard] = place
	last, ok, err := below(ctx, of, place+1)
	if err != nil || !ok {
		return out, err
	}
	for n, one := range each {
		if n == of.shard {
			continue
		}
		_, newest, err := one.kept(ctx)
		if err != nil {
			return nil, err
		}
		// All entries below first come behind the last one, and all from end on before it.
		first, end := uint64(1), newest+1
		for first < end {
			middle := first + (end-first+1)/2
			e, ok, err := below(ctx, one, middle)
			if err != nil {
				return nil, err
			}
			if ok && before(&e, n, &last, of.shard) {
				end = e.Place
			} else {
				first = middle
			}
		}
		out[n] = first
	}
	return out, nil
}

// below is the newest entry of a shard whose place is less.
func below(ctx context.Context, b *Broker, place uint64) (e broker.Entry, ok bool, err error) {
	page, _, err := b.Index().Page(ctx, broker.Filter{After: place, Limit: 1})
	if err != nil || len(page) == 0 {
		return e, false, err
	}
	return page[0], true, nil
}

// keptOfAll yields the submissions of several shards.
func keptOfAll(ctx context.Context, each []*Broker, agent toolyard.Agent, since, until time.Time,
	yield func(broker.Kept, error) bool) {
	type source struct {
		next func() (broker.Kept, error, bool)
		kept broker.Kept
		of   *Broker
	}
	var open []*source
	// advance reads the next one of a source.
	advance := func(s *source) (more bool, err error) {
		kept, err, ok := s.next()
		s.kept = kept
		return ok, err
	}
	for _, one := range each {
		next, stop := iter.Pull2(one.Kept(ctx, agent, since, until))
		defer stop()
		s := &source{next: next, of: one}
		more, err := advance(s)
		if err != nil {
			yield(broker.Kept{}, err)
			return
		}
		if more {
			open = append(open, s)
		}
	}
	for len(open) > 0 {
		oldest := slices.MinFunc(open, func(s, other *source) int { return s.kept.Time.Compare(other.kept.Time) })
		k := oldest.kept
		k.Place = oldest.of.numbered(k.Place)
		if !yield(k, nil) {
			return
		}
		more, err := advance(oldest)
		if err != nil {
			yield(broker.Kept{}, err)
			return
		}
		if !more {
			open = slices.DeleteFunc(open, func(s *source) bool { return s == oldest })
		}
	}
}

// newestOfAll lists the newest submissions of several shards.
func newestOfAll(ctx context.Context, each []*Broker, agent toolyard.Agent, since, until time.Time, most int) (
	list []broker.Kept, cut bool, err error) {
	for _, one := range each {
		own, more, err := one.Newest(ctx, agent, since, until, most)
		if err != nil {
			return nil, false, err
		}
		cut = cut || more
		for _, k := range own {
			k.Place = one.numbered(k.Place)
			list = append(list, k)
		}
	}
	slices.SortStableFunc(list, func(a, b broker.Kept) int { return b.Time.Compare(a.Time) })
	return list[:min(most, len(list))], cut || len(list) > most, nil
}

// archiverOfAll archives the batches of all shards.
type archiverOfAll struct {
	b      *Broker
	after  time.Duration
	signer *archive.Signer
	each   []broker.Archiver
}

func (b *Broker) archiverOfAll(ctx context.Context, after time.Duration, signer *archive.Signer) (
	broker.Archiver, error) {
	all := &archiverOfAll{b: b, after: after, signer: signer}
	return all, all.grow(ctx)
}

// grow makes the archivers of shards that were added.
func (a *archiverOfAll) grow(ctx context.Context) error {
	for n, one := range a.b.each() {
		if n < len(a.each) {
			continue
		}
		of, err := one.archiver(ctx, a.after)
		if err != nil {
			return fmt.Errorf("shard %d: %w", n, err)
		}
		of.signer = a.signer
		a.each = append(a.each, of)
	}
	return nil
}

// Round archives in each shard, also where another one's archive takes no more.
func (a *archiverOfAll) Round(ctx context.Context) (r broker.ArchiveRound, err error) {
	if err := a.grow(ctx); err != nil {
		return r, err
	}
	for n, one := range a.each {
		of, failed := one.Round(ctx)
		r.Batches, r.Objects, r.Bytes, r.More = r.Batches+of.Batches, r.Objects+of.Objects, r.Bytes+of.Bytes,
			r.More || of.More
		r.Unreadable = append(r.Unreadable, of.Unreadable...)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("shard %d: %w", n, failed))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return r, err
}
