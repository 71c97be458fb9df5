package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
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
// last one that is stored now. If since or until is not zero, it yields those that were stored from the one on, and
// before the other. What expires meanwhile may be missing. After an error it yields nothing.
func (b *Broker) Kept(ctx context.Context, agent toolyard.Agent, since, until time.Time) iter.Seq2[Kept, error] {
	return func(yield func(Kept, error) bool) {
		if b.guest != nil {
			yield(Kept{},
				errors.New("only the platform's own account may list what all agents have handed in; use the "+
					"credentials of an operator"))
			return
		}
		subjects := prefixBatch + ">"
		if agent != "" {
			subjects = prefixBatch + broker.Escape(string(agent)) + ".*"
		}
		oldest, newest, err := b.kept(ctx)
		at := max(oldest, 1) - 1
		if err == nil && !since.IsZero() {
			at, err = b.placeBefore(ctx, subjects, at, newest, since.Add(-maxClockStep))
		}
		for err == nil && at < newest {
			m, ok, rerr := b.after(ctx, streamBatch, subjects, at)
			if err = rerr; err != nil || !ok || m.seq > newest {
				break
			}
			at = m.seq
			if !until.IsZero() && m.time.After(until.Add(maxClockStep)) {
				return
			}
			if m.time.Before(since) || !until.IsZero() && !m.time.Before(until) {
				continue
			}
			p, perr := parseSubject(m.subject)
			if perr != nil {
				continue // it names no batch, and was refused
			}
			if !yield(Kept{p.key, m.seq, m.time}, nil) {
				return
			}
		}
		if err != nil {
			yield(Kept{}, fmt.Errorf("list the submissions: %w", err))
		}
	}
}

// placeBefore finds a sequence from first to last such that what is stored up to it is older than a time.
func (b *Broker) placeBefore(ctx context.Context, subjects string, first, last uint64, t time.Time) (uint64, error) {
	for first < last { // up to first all are older, and behind last none is, or nobody knows
		middle := first + (last-first)/2
		m, ok, err := b.after(ctx, streamBatch, subjects, middle)
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
