package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// maxClockStep bounds how far the times of two submissions may be from their order, because servers that led the stream
// one after the other had different clocks.
const maxClockStep = time.Minute

// errGuest refuses lists to agents' accounts.
var errGuest = errors.New("only the platform's own account may list what all agents have handed in; use the " +
	"credentials of an operator")

// Kept: see [broker.History].
func (b *Broker) Kept(ctx context.Context, agent toolyard.Agent, since, until time.Time) iter.Seq2[broker.Kept, error] {
	return func(yield func(broker.Kept, error) bool) {
		if b.guest != nil {
			yield(broker.Kept{}, errGuest)
			return
		}
		each, err := b.all(ctx)
		if err != nil {
			yield(broker.Kept{}, err)
			return
		}
		if len(each) > 1 {
			keptOfAll(ctx, each, agent, since, until, yield)
			return
		}
		if err := b.yieldKept(ctx, agent, since, until,
			func(k broker.Kept) bool { return yield(k, nil) }); err != nil {
			yield(broker.Kept{}, fmt.Errorf("list the submissions: %w", err))
		}
	}
}

// keptSubjects are the subjects of an agent's submissions, or of all if it is empty.
func keptSubjects(agent toolyard.Agent) string {
	if agent == "" {
		return prefixBatch + ">"
	}
	return prefixBatch + broker.Escape(string(agent)) + ".*"
}

func (b *Broker) yieldKept(ctx context.Context, agent toolyard.Agent, since, until time.Time,
	yield func(broker.Kept) bool) error {
	subjects := keptSubjects(agent)
	at, newest, err := b.keptSince(ctx, subjects, since)
	if err != nil {
		return err
	}
	archives, err := b.hasArchive(ctx)
	if err != nil {
		return err
	}
	seen := places{from: at} // a batch may be archived meanwhile: its record says the place of its submission
	for {
		m, ok, err := b.hotAfter(ctx, streamBatch, subjects, at)
		if err != nil || !ok || m.seq > newest && !archives {
			return err
		}
		at = m.seq
		if !archives && !until.IsZero() && m.time.After(until.Add(maxClockStep)) {
			return nil
		}
		k, ok, err := b.keptIn(ctx, m, archives)
		if err != nil {
			return err
		}
		again := seen.has(k.Place)
		if ok && !again {
			if again, err = b.follows(ctx, m, &seen); err != nil {
				return err
			}
		}
		seen.add(m.seq)
		if !ok || again || k.Place > newest || !within(k.Time, since, until) {
			continue
		}
		if !yield(k) {
			return nil
		}
	}
}

// follows reports whether a message stands behind one of the same batch that was seen. Its batch is listed then: the
// message may be a record that cannot be read, or one that an agent has written.
func (b *Broker) follows(ctx context.Context, m raw, seen *places) (bool, error) {
	if before, ok := m.follows(); ok {
		return seen.has(before), nil
	}
	first, ok, err := b.hotAfter(ctx, streamBatch, m.subject, seen.from)
	return ok && first.seq < m.seq, err
}

// places are sequences behind one, a bit each: there may be millions.
type places struct {
	from uint64
	bits []uint64
}

// add takes a sequence in that is behind from.
func (p *places) add(seq uint64) {
	at := seq - p.from
	for uint64(len(p.bits)) <= at/64 {
		p.bits = append(p.bits, 0)
	}
	p.bits[at/64] |= 1 << (at % 64)
}

func (p *places) has(seq uint64) bool {
	at := seq - p.from
	return seq > p.from && at/64 < uint64(len(p.bits)) && p.bits[at/64]&(1<<(at%64)) != 0
}

// keptSince is the range of the submissions since a time: all of them are behind the first sequence, and none is behind
// the last.
func (b *Broker) keptSince(ctx context.Context, subjects string, since time.Time) (at, newest uint64, err error) {
	oldest, newest, err := b.kept(ctx)
	if err != nil {
		return 0, 0, err
	}
	at = max(oldest, 1) - 1
	if !since.IsZero() { // the record of an archived batch is behind its submission
		at, err = b.placeBefore(ctx, subjects, at, newest, since.Add(-maxClockStep))
	}
	return at, newest, err
}

// keptIn is the submission that a message is, or that it says is archived. ok is false if it is neither.
func (b *Broker) keptIn(ctx context.Context, m raw, archives bool) (k broker.Kept, ok bool, err error) {
	if m.header.Get(headerType) == string(events.BatchMoved) {
		return k, false, nil // it is in another shard
	}
	p, err := parseSubject(m.subject)
	if err != nil {
		return k, false, nil //nolint:nilerr // it names no batch, and was refused
	}
	k = broker.Kept{Key: p.key, Place: m.seq, Time: m.time}
	if !archives || !m.fence() {
		return k, true, nil
	}
	rec, ok, err := b.recordIn(ctx, m)
	if unreadable(err) {
		return k, true, nil // its agent may write anything there, which must not end the list of all
	}
	k.Place, k.Time = rec.Place, rec.Submitted
	return k, ok, err
}

// within reports whether a time is in a period.
func within(t, since, until time.Time) bool {
	return !t.Before(since) && (until.IsZero() || t.Before(until))
}

// Newest: see [broker.History].
func (b *Broker) Newest(ctx context.Context, agent toolyard.Agent, since, until time.Time, most int) (
	list []broker.Kept, cut bool, err error) {
	if b.guest != nil {
		return nil, false, errGuest
	}
	each, err := b.all(ctx)
	if err != nil {
		return nil, false, err
	}
	if len(each) > 1 {
		return newestOfAll(ctx, each, agent, since, until, most)
	}
	if list, err = b.newestKept(ctx, agent, since, until, most+1); err != nil {
		return nil, false, fmt.Errorf("list the submissions: %w", err)
	}
	return list[:min(most, len(list))], len(list) > most, nil
}

// newestKept reads the stream from its end on, a block at a time. The record of an archived batch is behind its
// submission: what was submitted after the beginning of a block is known when the block is read.
func (b *Broker) newestKept(ctx context.Context, agent toolyard.Agent, since, until time.Time, most int) (
	[]broker.Kept, error) {
	subjects := keptSubjects(agent)
	at, newest, err := b.keptSince(ctx, subjects, since)
	if err != nil {
		return nil, err
	}
	archives, err := b.hasArchive(ctx)
	if err != nil {
		return nil, err
	}
	end := newest
	if !archives && !until.IsZero() {
		if end, err = b.placeBefore(ctx, subjects, at, newest, until.Add(maxClockStep)); err != nil {
			return nil, err
		}
	}
	found := map[toolyard.BatchKey]broker.Kept{}
	// read takes in what is behind one sequence, up to another.
	read := func(from, to uint64) error {
		for from < to {
			m, ok, err := b.hotAfter(ctx, streamBatch, subjects, from)
			if err != nil || !ok || m.seq > to {
				return err
			}
			from = m.seq
			k, ok, err := b.keptIn(ctx, m, archives)
			if err != nil {
				return err
			}
			if ok && k.Place <= newest && within(k.Time, since, until) {
				found[k.Key] = k
			}
			if len(found) > 2*most {
				for _, k := range inPlace(found)[most:] {
					delete(found, k.Key)
				}
			}
		}
		return nil
	}
	block := uint64(most)
	for low := end; low > at; {
		high, had := low, len(found)
		low = at
		if high-at > block {
			low = high - block
		}
		if err := read(low, high); err != nil {
			return nil, err
		}
		whole := 0
		for _, k := range found {
			if k.Place > low {
				whole++
			}
		}
		if whole >= most {
			break
		}
		if block = uint64(most); len(found) == had { // the next one may be as far away again
			block = max(block, 2*(high-low))
		}
	}
	if archives { // a batch that was archived meanwhile has its record there now
		_, now, err := b.kept(ctx)
		if err == nil {
			err = read(newest, now)
		}
		if err != nil {
			return nil, err
		}
	}
	list := inPlace(found)
	return list[:min(most, len(list))], nil
}

// inPlace are submissions, the newest first.
func inPlace(found map[toolyard.BatchKey]broker.Kept) []broker.Kept {
	return slices.SortedFunc(maps.Values(found), func(a, b broker.Kept) int { return cmp.Compare(b.Place, a.Place) })
}

// placeBefore finds a sequence from first to last such that what is stored up to it is older than a time.
func (b *Broker) placeBefore(ctx context.Context, subjects string, first, last uint64, t time.Time) (uint64, error) {
	for first < last { // up to first all are older, and behind last none is, or nobody knows
		middle := first + (last-first)/2
		m, ok, err := b.hotAfter(ctx, streamBatch, subjects, middle)
		switch {
		case err != nil:
			return 0, err
		case ok && m.time.Before(t) && m.seq <= last:
			first = m.seq
		default:
			last = middle
		}
	}
	return first, nil
}
