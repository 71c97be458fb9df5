package natsbroker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// tail reads what is stored about one batch, from its submission on, each event once and none left out: events in the
// order of their stream, replies between them by their time, and no reply before the results in it. It reads from the
// streams' leaders, one message at a time, and holds two. An event that only a newer version knows is an
// [events.Newer]. It is not safe for concurrent use.
type tail struct {
	of, b *Broker // of the system, and of the batch's shard
	key   toolyard.BatchKey
	begun bool
	// event and reply are the last sequences read; aheadEvent and aheadReply are messages that were read and not
	// returned.
	event, reply           uint64
	aheadEvent, aheadReply *broker.Logged
	// archived is the log once it was read in the archive: then all of it is there.
	archived *archivedLog
}

// Tail begins before the submission.
func (b *Broker) Tail(k toolyard.BatchKey) broker.Tail { return &tail{of: b, b: b, key: k} }

// Next returns the next event; ok is false if no more is stored at this time. The first call wraps [ErrNoBatch] if
// there is no such batch.
func (t *tail) Next(ctx context.Context) (l broker.Logged, ok bool, err error) {
	if t.b, err = t.of.of(ctx, t.key); err != nil {
		return l, false, err
	}
	if !t.begun {
		l, err = t.submission(ctx)
		t.begun = err == nil
		return l, t.begun, err
	}
	// The replies are read first: if there is one, the results in it are stored too, and the following read of the
	// events finds them.
	if err := t.peekReply(ctx); err != nil {
		return l, false, err
	}
	early := t.aheadReply != nil
	if t.aheadEvent == nil {
		if t.aheadEvent, err = t.peek(ctx, streamEvent, subjectEvents(t.key), &t.event); err != nil {
			return l, false, err
		}
	}
	if !early && t.aheadEvent != nil {
		if err := t.peekReply(ctx); err != nil {
			return l, false, err
		}
	}
	e, r := t.aheadEvent, t.aheadReply
	switch {
	case e == nil && r == nil:
		return l, false, nil
	case r == nil || e != nil && !r.Time.Before(e.Time):
		t.aheadEvent = nil
		return *e, true, nil
	}
	t.aheadReply = nil
	return *r, true, nil
}

func (t *tail) submission(ctx context.Context) (broker.Logged, error) {
	m, ok, err := t.b.submitted(ctx, t.key)
	if err != nil {
		return broker.Logged{}, err
	}
	if !ok {
		return broker.Logged{}, fmt.Errorf("%w: %s", broker.ErrNoBatch, t.key)
	}
	t.archived = m.archive
	_, r, meta, err := t.b.looking(ctx, m)
	if err != nil {
		return broker.Logged{}, err
	}
	if sub, ok := r.Body.(events.Submitted); ok && checkSubmission(t.key, &sub.Batch) == nil {
		r.Body = sub // with its defaults; an invalid one is unchanged, and was refused
	}
	return broker.Logged{Record: r, Meta: meta}, nil
}

func (t *tail) peekReply(ctx context.Context) (err error) {
	if t.aheadReply == nil {
		t.aheadReply, err = t.peek(ctx, streamReply, subjectReply(t.key), &t.reply)
	}
	return err
}

// peek reads the first message of a stream after a sequence whose subject matches, if there is one.
func (t *tail) peek(ctx context.Context, stream, subject string, after *uint64) (*broker.Logged, error) {
	m, ok, err := t.b.afterIn(ctx, t.archived, stream, subject, *after)
	if err != nil || !ok {
		return nil, err
	}
	t.archived = m.archive
	_, r, meta, err := t.b.looking(ctx, m)
	if err != nil {
		return nil, err
	}
	*after = m.seq
	return &broker.Logged{Record: r, Meta: meta}, nil
}

// fromLive reads what stands around a live copy. before is the sequence of the message that its subject had before.
func fromLive(m *broker.LiveMsg) (stored raw, before uint64, err error) {
	number := func(header string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(m.Header.Get(header), 10, 64)
		}
		return n
	}
	stored = raw{subject: canonical(m.Header.Get("Nats-Subject")), seq: number("Nats-Sequence"), header: m.Header,
		data: m.Data}
	before = number("Nats-Last-Sequence")
	if err == nil {
		stored.time, err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	}
	if err != nil {
		return stored, 0, fmt.Errorf("live message on %s: %w", m.Subject, err)
	}
	return stored, before, nil
}
