package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// tail reads what is stored about one batch, from its submission on, each event once and none left out: events in the
// order of their stream, replies between them by their time, and no reply before the results in it. It reads from the
// streams' leaders, one message at a time, and holds two. An event that only a newer version knows is an
// [events.Newer]. It is not safe for concurrent use.
type tail struct {
	b     *Broker
	key   toolyard.BatchKey
	begun bool
	// event and reply are the last sequences read; aheadEvent and aheadReply are messages that were read and not
	// returned.
	event, reply           uint64
	aheadEvent, aheadReply *broker.Logged
}

// Tail begins before the submission.
func (b *Broker) Tail(k toolyard.BatchKey) broker.Tail { return &tail{b: b, key: k} }

// Next returns the next event; ok is false if no more is stored at this time. The first call wraps [ErrNoBatch] if
// there is no such batch.
func (t *tail) Next(ctx context.Context) (l broker.Logged, ok bool, err error) {
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
	m, ok, err := t.b.lastOrLost(ctx, streamBatch, subjectBatch(t.key))
	if err != nil {
		return broker.Logged{}, err
	}
	if !ok {
		return broker.Logged{}, fmt.Errorf("%w: %s", broker.ErrNoBatch, t.key)
	}
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
	m, ok, err := t.b.after(ctx, stream, subject, *after)
	if err != nil || !ok {
		return nil, err
	}
	_, r, meta, err := t.b.looking(ctx, m)
	if err != nil {
		return nil, err
	}
	*after = m.seq
	return &broker.Logged{Record: r, Meta: meta}, nil
}

// maxSubscriptionChains is how many chains a subscription remembers. If there are more it drops them, and detects only
// later gaps.
const maxSubscriptionChains = 200_000

// subscription is the live copies of what is stored about all batches of an agent, or of all agents. Some may be
// missing; it reports that if it can detect it. It is not safe for concurrent use, but its channel is.
type subscription struct {
	c chan *broker.LiveMsg

	b    *Broker
	subs []*nats.Subscription
	// seen has the last sequence of each subject, and base, for each stream, the sequence up to which nothing is known.
	seen       map[string]uint64
	base, last map[string]uint64
	dropped    int
	reconnects uint64
}

// Subscribe starts to follow an agent's batches; "" means all agents.
func (b *Broker) Subscribe(ctx context.Context, agent toolyard.Agent) (_ broker.Subscription, err error) {
	l := &subscription{b: b, c: make(chan *broker.LiveMsg, feedBuffer), seen: map[string]uint64{},
		base: map[string]uint64{}, last: map[string]uint64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Stop())
		}
	}()
	token := "*"
	if agent != "" {
		token = broker.Escape(string(agent))
	}
	for stream, prefix := range map[string]string{streamEvent: prefixLiveEvent, streamReply: prefixLiveReply} {
		sub, err := b.nc.ChanSubscribe(prefix+token+".>", l.c)
		if err != nil {
			return l, fmt.Errorf("subscribe to %s: %w", prefix+token+".>", err)
		}
		l.subs = append(l.subs, sub)
		if b.guest != nil { // it cannot read the stream, so it detects no gaps
			l.base[stream], l.last[stream] = math.MaxUint64, 0
			continue
		}
		info, err := b.streams[stream].Info(ctx)
		if err != nil {
			return l, fmt.Errorf("look at stream %s: %w", stream, err)
		}
		l.base[stream], l.last[stream] = info.State.LastSeq, info.State.LastSeq
	}
	l.reconnects = b.nc.Stats().Reconnects
	return l, nil
}

func (l *subscription) Copies() <-chan *broker.LiveMsg { return l.c }

// Read reads a message. gap says that an earlier event of the same chain is missing.
func (l *subscription) Read(ctx context.Context, m *broker.LiveMsg) (k toolyard.BatchKey, e broker.Logged, gap bool,
	err error) {
	stored, before, err := fromLive(m)
	if err != nil {
		return k, e, false, err
	}
	stream := streamEvent
	if strings.HasPrefix(stored.subject, prefixReply) {
		stream = streamReply
	}
	gap = before > l.base[stream] && before != l.seen[stored.subject]
	if len(l.seen) >= maxSubscriptionChains {
		clear(l.seen)
		for s, seq := range l.last {
			l.base[s] = max(l.base[s], seq)
		}
	}
	l.seen[stored.subject] = stored.seq
	l.last[stream] = max(l.last[stream], stored.seq)
	k, e.Record, e.Meta, err = l.b.looking(ctx, stored)
	return k, e, gap, err
}

// Missed describes what this connection has lost since the last call; "" if no loss is known.
func (l *subscription) Missed() string {
	dropped := 0
	for _, s := range l.subs {
		n, err := s.Dropped()
		if err == nil {
			dropped += n
		}
	}
	var words []string
	if n := dropped - l.dropped; n > 0 {
		words = append(words, fmt.Sprintf("%d live events came faster than they were read", n))
	}
	reconnects := l.b.nc.Stats().Reconnects
	if reconnects > l.reconnects {
		words = append(words, "the connection to NATS was lost for a while")
	}
	l.dropped, l.reconnects = dropped, reconnects
	return strings.Join(words, ", and ")
}

// Stop ends the subscription.
func (l *subscription) Stop() error {
	var errs []error
	for _, s := range l.subs {
		if err := s.Unsubscribe(); err != nil {
			errs = append(errs, fmt.Errorf("unsubscribe from %s: %w", s.Subject, err))
		}
	}
	return errors.Join(errs...)
}

// Follow calls see with everything stored about a batch, in the order of [Tail], and then, if live is set, with each
// event as it is stored. It returns after the last event of the batch, or an error of see. The live feeds only say when
// to read; it also reads at the interval reread, so nothing depends on the messages that they drop.
func (b *Broker) Follow(ctx context.Context, k toolyard.BatchKey, live bool, reread time.Duration,
	see func(broker.Logged) error) (err error) {
	happened, err := b.FollowEvents(k)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, happened.Stop()) }()
	replied, err := b.FollowReplies(k)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, replied.Stop()) }()
	tick := time.NewTimer(reread)
	defer tick.Stop()
	quiet := broker.Quiet{}
	for t := (&tail{b: b, key: k}); ; {
		news := false
		for {
			l, ok, err := t.Next(ctx)
			if live && err != nil && ctx.Err() == nil && MayPass(err) {
				break // NATS was away for longer than a read takes: try again later
			}
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			news = true
			if err := see(l); err != nil {
				return err
			}
			if broker.Over(l.Record) {
				return nil
			}
		}
		if !live {
			return nil
		}
		if quiet.Long(news) {
			if err := b.Forsaken(ctx, k, t.reply); err != nil && !MayPass(err) {
				return err
			}
		}
		tick.Reset(reread)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-happened.Copies():
		case <-replied.Copies():
		}
		for drained := false; !drained; { // everything else that was announced by now is read at once
			select {
			case <-happened.Copies():
			case <-replied.Copies():
			default:
				drained = true
			}
		}
	}
}

// fromLive reads the envelope of a live copy. before is the sequence of the previous message of its subject.
func fromLive(m *broker.LiveMsg) (stored raw, before uint64, err error) {
	number := func(header string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(m.Header.Get(header), 10, 64)
		}
		return n
	}
	stored = raw{subject: m.Header.Get("Nats-Subject"), seq: number("Nats-Sequence"), header: m.Header, data: m.Data}
	before = number("Nats-Last-Sequence")
	if err == nil {
		stored.time, err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	}
	if err != nil {
		return stored, 0, fmt.Errorf("live message on %s: %w", m.Subject, err)
	}
	return stored, before, nil
}
