package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The server's error codes that append handles.
const (
	codeWrongLastSequence         jetstream.ErrorCode = 10071 // the subject has another last sequence
	codeWrongLastSequenceConstant jetstream.ErrorCode = 10164 // another write to the subject is in flight
	codeStreamFull                jetstream.ErrorCode = 10077 // a limit of the stream, and DiscardNew
	codeNoPeers                   jetstream.ErrorCode = 10005 // no servers of the cluster can have the stream
	codeInsufficientResources     jetstream.ErrorCode = 10023 // the server or account has no resources left
	codeMemoryExceeded            jetstream.ErrorCode = 10028 // the same, for memory
	codeStorageExceeded           jetstream.ErrorCode = 10047 // the same, for disk
)

// The timing of repeats: see [ask]. A failure that may be temporary is repeated until the caller's context ends.
const (
	attemptTimeout = 2 * time.Second  // then another attempt is made
	longestAttempt = 16 * time.Second // after this no answer is waited for
	firstPause     = 5 * time.Millisecond
	longestPause   = 500 * time.Millisecond
	longestRead    = 30 * time.Second // a read is given up, since the message may be damaged
)

// Append stores an event at the end of a chain of a batch, if the chain's last sequence is the expected one. It returns
// the new event's record; [ErrConflict] if the chain has another end; [ErrFull] if the stream is full. A lost answer is
// not a failure: the append is repeated, and recognises its own event, until ctx ends. pool is used only in call
// chains.
func (b *Broker) Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int,
	expected uint64, body events.Body) (batch.Record, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return batch.Record{}, err
	}
	if err := b.granted(k, c, pool); err != nil {
		return batch.Record{}, err
	}
	subject, stream, subjectOf := subjectChain(k, c, pool, index), streamEvent, about(k)
	m := b.meta(ctx, k, subjectOf)
	switch c {
	case batch.ChainSubmission:
		subject, stream = subjectBatch(k), streamBatch
	case batch.ChainReply:
		subject, stream = subjectReply(k), streamReply
		m.Sequence = events.Sequence(index)
	case batch.ChainItem:
		m.Subject = aboutCall(k, index)
	}
	if d, ok := body.(events.Decided); ok {
		if body, err = b.signed(k, expected, d); err != nil {
			return batch.Record{}, err
		}
	}
	msg, err := b.message(ctx, subject, m, body)
	if err != nil {
		return batch.Record{}, err
	}
	if body.EventType() == events.CallDecided {
		if err := b.prove(ctx, k, index, expected, m.ID, msg.Data); err != nil {
			return batch.Record{}, err
		}
	}
	seq, err := b.append(ctx, stream, expected, msg)
	if err != nil {
		return batch.Record{}, fmt.Errorf("append %s to %s: %w", body.EventType(), subject, err)
	}
	return batch.Record{Chain: c, Index: index, Seq: seq, Time: m.Time, Body: body}, nil
}

// append is the primitive. The event's id is the nonce by which it recognises its own event.
func (b *Broker) append(ctx context.Context, stream string, expected uint64, msg *nats.Msg) (uint64, error) {
	pause, began := firstPause, time.Now()
	for {
		ack, err := b.send(ctx, stream, msg, jetstream.WithExpectLastSequencePerSubject(expected))
		if err == nil {
			return ack.Sequence, nil
		}
		switch again, verdict := classify(err); {
		case errors.Is(verdict, broker.ErrConflict):
			seq, err := b.resolveConflict(ctx, stream, expected, msg, verdict)
			if errors.Is(err, errBehind) && time.Since(began) > lostAfter {
				return 0, verdict // what was stored there has expired, or is lost
			}
			if !errors.Is(err, errNoConflict) && !errors.Is(err, errBehind) {
				return seq, err
			}
		case !again:
			return 0, verdict
		}
		if err := wait(ctx, &pause); err != nil {
			return 0, err
		}
	}
}

// send publishes a message and waits for the answer of its stream. Unless stream is empty, the message names it as the
// stream that must store it.
func (b *Broker) send(ctx context.Context, stream string, msg *nats.Msg,
	opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if opts = append(opts, jetstream.WithRetryAttempts(0)); stream != "" {
		opts = append(opts, jetstream.WithExpectStream(b.name(stream)))
	}
	return ask(ctx, func(ctx context.Context, before int) (*jetstream.PubAck, error) {
		if err := b.linked(ctx); err != nil {
			return nil, err
		}
		// publishing writes to the header
		m := &nats.Msg{Subject: b.out(msg.Subject), Header: maps.Clone(msg.Header), Data: msg.Data}
		// it may be stored, run and removed before this one comes
		if before > 0 && stream == streamCall {
			m.Header.Set(headerAgain, "1")
		}
		return b.js.PublishMsg(ctx, m, opts...)
	})
}

// ask makes a request, and returns its answer. While no answer comes it repeats the request every attemptTimeout, and
// still accepts the answers to earlier ones: an answer may be late, from a distant server, or may never come, from a
// server that has lost its leader. before is the number of earlier requests. It gives up after longestAttempt.
func ask[T any](ctx context.Context, request func(ctx context.Context, before int) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1) // the first to a repeated request
	asking, stop := context.WithTimeout(ctx, longestAttempt)
	defer stop()
	repeating := time.AfterFunc(attemptTimeout, func() { // most requests need no goroutine
		again := time.NewTicker(attemptTimeout)
		defer again.Stop()
		for before := 1; before <= int(longestAttempt/attemptTimeout); before++ {
			go func() {
				v, err := request(asking, before)
				select {
				case answers <- answer{v, err}:
					stop()
				default:
				}
			}()
			select {
			case <-asking.Done():
				return
			case <-again.C:
			}
		}
	})
	defer repeating.Stop()
	v, err := request(asking, 0)
	if err != nil && asking.Err() != nil {
		select {
		case a := <-answers:
			return a.v, a.err
		default:
		}
	}
	return v, err
}

// classify says whether a failed publish may be repeated, and what the error means if not.
func classify(err error) (again bool, verdict error) {
	if errors.Is(err, broker.ErrFull) {
		return false, err
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case codeWrongLastSequence:
			return false, conflict(api)
		case codeWrongLastSequenceConstant:
			return true, err
		case codeStreamFull, codeInsufficientResources, codeMemoryExceeded, codeStorageExceeded:
			return false, fmt.Errorf("%w: %w", broker.ErrFull, err)
		default:
			return api.Code >= 500, err // 503: no leader now; the other errors are permanent
		}
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return false, fmt.Errorf("%w: %w", broker.ErrTooLong, err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubject),
		errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrConnectionDraining):
		return false, err
	}
	return true, err // timeouts, no responders, a connection that is being restored
}

// MayPass reports whether a failed operation may succeed if it is repeated: no answer came, there is no leader now, the
// cluster misses a server, or the connection is being restored.
func MayPass(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code >= 500 || misses(api)
	}
	for _, passes := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse,
		jetstream.ErrNoHeartbeat,
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrNoServers,
		nats.ErrStaleConnection,
	} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}

// misses reports whether a cluster has no place for a stream because it misses servers, or has not heard of all of them
// since it was started, and no server lacks room.
func misses(api *jetstream.APIError) bool {
	return api.ErrorCode == codeNoPeers && !strings.Contains(api.Description, "insufficient storage") &&
		(strings.Contains(api.Description, "peer offline") || strings.Contains(api.Description, "miscellaneous issue"))
}

// MayPass calls the function of this name.
func (b *Broker) MayPass(err error) bool { return MayPass(err) }

// errNoConflict says that a chain ends where the writer expects it, although a server has reported a conflict. One
// whose store is closed, as when its disk is full, reports the end 0 until it is no leader any more.
var errNoConflict = errors.New("the chain ends where it is expected to")

// errBehind says that a chain ends before the event behind which the writer appends, and which was stored. A server
// whose store is closed also reads as if it had no messages, until another one leads the stream.
var errBehind = errors.New("the chain ends before an event that was stored")

// resolveConflict decides a conflict: the message that follows expected is either ours, stored by an attempt whose
// answer was lost, or another writer's. More may have been appended since. It returns errNoConflict or errBehind if
// none follows.
func (b *Broker) resolveConflict(
	ctx context.Context, stream string, expected uint64, msg *nats.Msg, verdict error,
) (uint64, error) {
	m, ok, err := b.after(ctx, stream, msg.Subject, expected)
	if err != nil {
		return 0, err
	}
	if ok && m.header.Get(headerID) == msg.Header.Get(headerID) {
		return m.seq, nil
	}
	read := b.hotLast
	reported, _ := reportedEnd(verdict)
	if reported > 0 { // so the server counts a message there
		read = b.hotLastOrLost
	}
	end, ok, err := read(ctx, stream, msg.Subject)
	if lost, ok := errors.AsType[*broker.LostError](err); ok {
		lost.End = reported
	}
	switch {
	case err != nil:
		return 0, err
	case end.seq <= expected && b.mayBeNone(reported, expected): // both are 0 where there is no message
		if end.seq < expected {
			return 0, errBehind
		}
		return 0, errNoConflict
	case ok && b.guest == nil && end.fence(): // nobody appends behind a fence, also who would behind any other end
		return 0, fmt.Errorf("%w: the batch is over and archived", broker.ErrConflict)
	}
	return 0, verdict
}

// mayBeNone reports whether a conflict may be none although the server reported it. A guest reads through a dispatcher,
// which passes over fences: if the server has reported another end than the expected one, that may be a fence.
func (b *Broker) mayBeNone(reported, expected uint64) bool {
	return b.guest == nil || reported <= expected
}

// hotAfter reads the first message of a subject after a sequence, from the stream's leader: also a fence.
func (b *Broker) hotAfter(ctx context.Context, stream, subject string, seq uint64) (raw, bool, error) {
	if b.guest != nil {
		return b.guest.read(ctx, b, readQuestion{Stream: stream, Subject: subject, Seq: seq + 1})
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return b.streams[stream].GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(b.out(subject)))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return raw{}, false, nil
	}
	if err != nil {
		return raw{}, false, fmt.Errorf("read the message after %d on %s: %w", seq, subject, err)
	}
	return fromStream(m), true, nil
}

// chain returns the messages of a literal subject after a sequence, oldest first, read from the leader. Each message of
// a chain names the one before it, so the chain is walked from its last message back. A missing message has expired, or
// is lost: a [*LostError].
func (b *Broker) chain(ctx context.Context, stream, subject string, after uint64) (out []raw, err error) {
	if out, err = b.walk(ctx, stream, subject, after); !errors.Is(err, jetstream.ErrMsgNotFound) {
		return out, err
	}
	err = b.counted(ctx, stream, subject, func(counted map[string]uint64) error {
		var err error
		if out, err = b.walk(ctx, stream, subject, after); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
		// earlier messages expired with it, and are not counted
		return cmp.Or(tooFew(subject, counted[subject], len(out)), err)
	})
	return out, err
}

func (b *Broker) walk(ctx context.Context, stream, subject string, after uint64) ([]raw, error) {
	m, ok, err := b.last(ctx, stream, subject)
	if err != nil || !ok {
		return nil, err
	}
	var out []raw
	for m.seq > after {
		if len(out) == broker.MaxChainLength {
			return nil, fmt.Errorf("subject %s has more than %d events", subject, broker.MaxChainLength)
		}
		if m.archive != nil {
			older := m.archive.between(subject, after, m.seq)
			slices.Reverse(out)
			return append(older, out...), nil
		}
		if !m.fence() {
			out = append(out, m)
		}
		h := m.header.Get(headerExpected)
		before, err := strconv.ParseUint(h, 10, 64)
		if err != nil {
			return nil, &events.UnreadableError{ID: m.header.Get(headerID),
				Problem: fmt.Sprintf("message %d on %s was appended without expecting a sequence (%q)", m.seq, subject,
					h)}
		}
		if before >= m.seq {
			return nil, &events.UnreadableError{ID: m.header.Get(headerID), Problem: fmt.Sprintf(
				"message %d on %s says that message %d is before it", m.seq, subject, before)}
		}
		if before == 0 || before <= after {
			break
		}
		id := m.header.Get(headerID)
		if m, err = b.at(ctx, stream, subject, before); err != nil {
			return out, err
		}
		if m.subject != subject { // its writer had the server compare the number with the end of another chain
			return nil, &events.UnreadableError{ID: id, Problem: fmt.Sprintf(
				"a message on %s says that message %d is before it, which is on %s", subject, before, m.subject)}
		}
	}
	slices.Reverse(out)
	return out, nil
}

// forward returns the messages of a literal subject after a sequence, oldest first, read from the leader, whatever
// sequence they expected. It reads the last one first: the server finds that by the subject, while a search for the
// first one after a sequence, if there is none, goes through the stream.
func (b *Broker) forward(ctx context.Context, stream, subject string, after uint64) ([]raw, error) {
	end, ok, err := b.last(ctx, stream, subject)
	if err != nil || !ok {
		return nil, err
	}
	if end.archive != nil {
		return end.archive.between(subject, after, end.seq), nil
	}
	var out []raw
	for after < end.seq {
		m, ok, err := b.after(ctx, stream, subject, after)
		if err != nil || !ok {
			return out, err
		}
		if len(out) == broker.MaxChainLength {
			return nil, fmt.Errorf("subject %s has more than %d events", subject, broker.MaxChainLength)
		}
		out, after = append(out, m), m.seq
	}
	return out, nil
}

// hotLast reads the last message of a literal subject from the stream's leader, also a fence; ok is false if there is
// none.
func (b *Broker) hotLast(ctx context.Context, stream, subject string) (raw, bool, error) {
	if b.guest != nil {
		return b.guest.read(ctx, b, readQuestion{Stream: stream, Subject: subject})
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return b.streams[stream].GetLastMsgForSubject(ctx, b.out(subject))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return raw{}, false, nil
	}
	if err != nil {
		return raw{}, false, fmt.Errorf("read the last message on %s: %w", subject, err)
	}
	return fromStream(m), true, nil
}

// hotAt reads one message by its sequence, from the stream's leader. subject is the one that it has in a log.
func (b *Broker) hotAt(ctx context.Context, stream, subject string, seq uint64) (raw, error) {
	if b.guest != nil {
		m, ok, err := b.guest.read(ctx, b, readQuestion{Stream: stream, Subject: subject, Seq: seq, At: true})
		if err == nil && !ok {
			err = jetstream.ErrMsgNotFound
		}
		return m, err
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return b.streams[stream].GetMsg(ctx, seq)
	})
	if err != nil {
		return raw{}, fmt.Errorf("read message %d of %s: %w", seq, stream, err)
	}
	return fromStream(m), nil
}

func fromStream(m *jetstream.RawStreamMsg) raw {
	return raw{subject: canonical(m.Subject), seq: m.Sequence, time: m.Time, header: m.Header, data: m.Data}
}

// retry repeats a read that got no answer, until ctx ends or it has taken too long.
func retry[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	pause, began := firstPause, time.Now()
	for {
		v, err := ask(ctx, func(ctx context.Context, _ int) (T, error) { return read(ctx) })
		if err == nil {
			return v, nil
		}
		if again, verdict := classify(err); !again {
			return v, verdict
		}
		for _, stays := range []error{jetstream.ErrMsgNotFound, jetstream.ErrKeyNotFound, jetstream.ErrObjectNotFound,
			jetstream.ErrDigestMismatch} {
			if errors.Is(err, stays) {
				return v, err
			}
		}
		if time.Since(began) > longestRead {
			return v, fmt.Errorf("after %s: %w", longestRead, err)
		}
		if err := wait(ctx, &pause); err != nil {
			return v, err
		}
	}
}

// wait pauses before a repeat, longer each time.
func wait(ctx context.Context, pause *time.Duration) error {
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(2**pause, longestPause)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
