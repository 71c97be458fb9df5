package natsbroker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// TailAt continues a tail after these sequences of the streams of events and replies; it does not read the submission
// again.
func (b *Broker) TailAt(k toolyard.BatchKey, event, reply uint64) broker.Tail {
	return b.tailAt(k, event, reply)
}

func (b *Broker) tailAt(k toolyard.BatchKey, event, reply uint64) *tail {
	return &tail{of: b, b: b, key: k, begun: true, event: event, reply: reply}
}

// Ended reports whether no reply of a batch follows one, as far as is stored now: it says that the batch is completed
// or was refused, and seq is at least its sequence.
func (b *Broker) Ended(ctx context.Context, k toolyard.BatchKey, seq uint64) (bool, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return false, err
	}
	m, ok, err := b.last(ctx, streamReply, subjectReply(k))
	if err != nil || !ok || m.seq > seq {
		return false, err
	}
	_, r, _, err := b.looking(ctx, m)
	return err == nil && broker.Over(r), err
}

// follower reads what is stored about a batch as a tail does, and then each event from its live copy, without a
// request. It reads the streams if copies were lost, and before each reply, which must not come before the results in
// it. It is not safe for concurrent use.
type follower struct {
	ear    *hubFollower
	tail   *tail
	behind bool
	queue  []*broker.LiveMsg
}

// Follower follows a batch after these sequences of the streams of events and replies.
func (h *Hub) Follower(ctx context.Context, k toolyard.BatchKey, event, reply uint64) (broker.Follower, error) {
	ear, err := h.Events(ctx, k)
	if err != nil {
		return nil, err
	}
	return &follower{ear: ear, tail: h.b.tailAt(k, event, reply), behind: true}, nil
}

func (f *follower) News() <-chan struct{} { return f.ear.news }

// Reread has Next read what is stored.
func (f *follower) Reread() { f.behind = true }

// Stop ends the follower.
func (f *follower) Stop() { f.ear.Stop() }

// Next returns the next event; ok is false if no more is known to be stored. After an error it may be called again.
func (f *follower) Next(ctx context.Context) (l broker.Logged, ok bool, err error) {
	for {
		if f.behind {
			if l, ok, err = f.tail.Next(ctx); ok || err != nil {
				return l, ok, err
			}
			f.behind = false
		}
		if len(f.queue) == 0 {
			if f.queue, f.behind = f.ear.Take(); f.behind {
				continue
			}
			if len(f.queue) == 0 {
				return broker.Logged{}, false, nil
			}
		}
		m := f.queue[0]
		f.queue = f.queue[1:]
		stored, _, err := fromLive(m)
		switch isReply := strings.HasPrefix(stored.subject, prefixReply); {
		case err != nil: // what stands in the stream says more
			f.behind = true
		case isReply:
			f.behind = stored.seq > f.tail.reply
		case stored.seq > f.tail.event:
			_, r, meta, err := f.tail.b.looking(ctx, stored)
			if err != nil {
				f.behind = true
				return l, false, err
			}
			f.tail.event = stored.seq
			return broker.Logged{Record: r, Meta: meta}, true, nil
		}
	}
}

// RepliesFrom reads the replies of a batch after a sequence of their stream, in order, and at most most of them. If one
// is missing it fails as [Broker.Replies] does.
func (b *Broker) RepliesFrom(ctx context.Context, k toolyard.BatchKey, after uint64, most int) ([]batch.Record, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return nil, err
	}
	end, ok, err := b.last(ctx, streamReply, subjectReply(k))
	if err != nil || !ok {
		return nil, err
	}
	var out []batch.Record
	for after < end.seq && len(out) < most {
		m, ok, err := b.afterIn(ctx, end.archive, streamReply, subjectReply(k), after)
		if err != nil || !ok {
			return out, err
		}
		if m.header.Get(headerExpected) != strconv.FormatUint(after, 10) {
			if _, err := b.chain(ctx, streamReply, subjectReply(k), after); err != nil {
				return out, err
			}
		}
		_, r, _, err := b.record(ctx, m)
		if err != nil {
			return out, err
		}
		out, after = append(out, r), m.seq
	}
	return out, nil
}

// replyFollower reads the replies of a batch, from the stream and then from live copies. It is not safe for concurrent
// use.
type replyFollower struct {
	of, b  *Broker // of the system, and of the batch's shard
	key    toolyard.BatchKey
	ear    *hubFollower
	seen   uint64
	behind bool
	read   []batch.Record
	queue  []*broker.LiveMsg
	// late ends the wait for the first copy of a new batch.
	late *time.Timer
}

// maxRepliesRead bounds the replies that were read and not returned.
const maxRepliesRead = 64

// ReplyFollower follows a batch after this sequence of the stream of replies. A new batch seldom has replies, and a
// copy of a later one says that there were some. So it costs no request unless nothing comes for [broker.NewBatchWait].
func (h *Hub) ReplyFollower(ctx context.Context, k toolyard.BatchKey, after uint64, isNew bool) (broker.ReplyFollower,
	error) {
	ear, err := h.Replies(ctx, k)
	if err != nil {
		return nil, err
	}
	f := &replyFollower{of: h.b, b: h.b, key: k, ear: ear, seen: after, behind: !isNew}
	if isNew {
		f.late = time.AfterFunc(broker.NewBatchWait, ear.markLost)
	}
	return f, nil
}

func (f *replyFollower) News() <-chan struct{} { return f.ear.news }

// Reread has Next read what is stored.
func (f *replyFollower) Reread() { f.behind = true }

// Stop ends the follower.
func (f *replyFollower) Stop() {
	f.heard()
	f.ear.Stop()
}

// heard says that a copy has come, or that none is waited for.
func (f *replyFollower) heard() {
	if f.late != nil {
		f.late.Stop()
		f.late = nil
	}
}

// Next returns the next reply, as a follower does: a record of a reply or a refusal.
func (f *replyFollower) Next(ctx context.Context) (r batch.Record, ok bool, err error) {
	if f.b, err = f.of.of(ctx, f.key); err != nil {
		return r, false, err
	}
	for {
		if len(f.read) == 0 && f.behind {
			if f.read, err = f.b.RepliesFrom(ctx, f.key, f.seen, maxRepliesRead); err != nil {
				return r, false, err
			}
			f.behind = len(f.read) > 0
		}
		if len(f.read) > 0 {
			r, f.read = f.read[0], f.read[1:]
			f.seen = r.Seq
			return r, true, nil
		}
		if len(f.queue) == 0 {
			if f.queue, f.behind = f.ear.Take(); f.behind {
				continue
			}
			if len(f.queue) == 0 {
				return r, false, nil
			}
		}
		m := f.queue[0]
		f.queue = f.queue[1:]
		stored, before, err := fromLive(m)
		switch {
		case err == nil && stored.seq <= f.seen:
		case err == nil && before == f.seen:
			if _, r, _, err = f.b.record(ctx, stored); err != nil {
				f.behind = true
				return r, false, err
			}
			f.heard()
			f.seen = r.Seq
			return r, true, nil
		default:
			f.behind = true
		}
	}
}
