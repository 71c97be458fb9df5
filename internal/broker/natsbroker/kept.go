package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// Kept is a submission that is kept: whose it is, its sequence, and when it was stored.
type Kept struct {
	Key   toolyard.BatchKey
	Place uint64
	Time  time.Time
}

// maxClockStep bounds how far the times of two submissions may be from their order, because servers that led the stream
// one after the other had different clocks.
const maxClockStep = time.Minute

// Kept yields the submissions of an agent, or of all if it is empty, in the order in which they were stored, up to the
// last one that is stored now; archived ones come later, each once. If since or until is not zero, it yields those that
// were stored from the one on, and before the other. What expires meanwhile may be missing. After an error it yields
// nothing.
func (b *Broker) Kept(ctx context.Context, agent toolyard.Agent, since, until time.Time) iter.Seq2[Kept, error] {
	return func(yield func(Kept, error) bool) {
		if b.guest != nil {
			yield(Kept{},
				errors.New("only the platform's own account may list what all agents have handed in; use the "+
					"credentials of an operator"))
			return
		}
		if b.several() {
			b.keptOfAll(ctx, agent, since, until, yield)
			return
		}
		if err := b.yieldKept(ctx, agent, since, until, func(k Kept) bool { return yield(k, nil) }); err != nil {
			yield(Kept{}, fmt.Errorf("list the submissions: %w", err))
		}
	}
}

func (b *Broker) yieldKept(ctx context.Context, agent toolyard.Agent, since, until time.Time,
	yield func(Kept) bool) error {
	subjects := prefixBatch + ">"
	if agent != "" {
		subjects = prefixBatch + broker.Escape(string(agent)) + ".*"
	}
	oldest, newest, err := b.kept(ctx)
	if err != nil {
		return err
	}
	at := max(oldest, 1) - 1
	if !since.IsZero() { // the record of an archived batch is behind its submission
		if at, err = b.placeBefore(ctx, subjects, at, newest, since.Add(-maxClockStep)); err != nil {
			return err
		}
	}
	archives, err := b.hasArchive(ctx)
	if err != nil {
		return err
	}
	yielded := map[toolyard.BatchKey]bool{} // with an archive: a batch may be archived meanwhile
	for {
		m, ok, err := b.hotAfter(ctx, streamBatch, subjects, at)
		if err != nil || !ok || m.seq > newest && !archives {
			return err
		}
		at = m.seq
		if m.header.Get(headerType) == string(events.BatchMoved) {
			continue // it is in another shard
		}
		p, err := parseSubject(m.subject)
		if err != nil {
			continue // it names no batch, and was refused
		}
		if archives && m.fence() {
			rec, ok, err := b.recordIn(ctx, m)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			m.seq, m.time = rec.Place, rec.Submitted
		} else if !archives && !until.IsZero() && m.time.After(until.Add(maxClockStep)) {
			return nil
		}
		if m.seq > newest || yielded[p.key] || m.time.Before(since) || !until.IsZero() && !m.time.Before(until) {
			continue
		}
		if archives {
			yielded[p.key] = true
		}
		if !yield(Kept{p.key, m.seq, m.time}) {
			return nil
		}
	}
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
