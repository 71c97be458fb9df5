package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The server's error codes that the primitive knows.
const (
	codeWrongLastSequence         jetstream.ErrorCode = 10071 // the subject ends elsewhere
	codeWrongLastSequenceConstant jetstream.ErrorCode = 10164 // another write to the subject is in flight
	codeStreamFull                jetstream.ErrorCode = 10077 // a limit of the stream, and DiscardNew
	codeInsufficientResources     jetstream.ErrorCode = 10023 // what the server or account may use is used up
	codeMemoryExceeded            jetstream.ErrorCode = 10028 // the same, of memory
	codeStorageExceeded           jetstream.ErrorCode = 10047 // the same, of disk
)

// The rhythm of repeats: see [ask]. What fails so that it may succeed later is repeated until the caller's context
// ends.
const (
	attemptTimeout = 2 * time.Second  // then another attempt is made
	longestAttempt = 16 * time.Second // then an answer is waited for no longer
	firstPause     = 5 * time.Millisecond
	longestPause   = 500 * time.Millisecond
	longestRead    = 30 * time.Second // a read is given up, since what it wants may be broken
)

// Append stores an event at the end of a chain of a batch, if the chain's last sequence is still expected. It returns
// the new event's record; [ErrConflict] when the chain ends elsewhere; [ErrFull] when the stream takes nothing more.
// Losing the answer is no failure: the append is repeated, and finds itself, until ctx ends. pool is used in call
// chains only.
func (b *Broker) Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int,
	expected uint64, body events.Body) (batch.Record, error) {
	if err := b.granted(k, c, pool); err != nil {
		return batch.Record{}, err
	}
	subject, stream, subjectOf := subjectChain(k, c, pool, index), streamEvent, about(k)
	m := b.meta(k, subjectOf)
	switch c {
	case batch.ChainSubmission:
		subject, stream = subjectBatch(k), streamBatch
	case batch.ChainReply:
		subject, stream = subjectReply(k), streamReply
		m.Sequence = events.Sequence(index)
	case batch.ChainCall:
		m.Subject = aboutCall(k, index)
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

// append is the primitive. The event's id is the nonce by which it recognises itself.
func (b *Broker) append(ctx context.Context, stream string, expected uint64, msg *nats.Msg) (uint64, error) {
	pause := firstPause
	for {
		ack, err := b.send(ctx, stream, msg, jetstream.WithExpectLastSequencePerSubject(expected))
		if err == nil {
			return ack.Sequence, nil
		}
		switch again, verdict := classify(err); {
		case errors.Is(verdict, broker.ErrConflict):
			return b.won(ctx, stream, expected, msg, verdict)
		case !again:
			return 0, verdict
		}
		if err := wait(ctx, &pause); err != nil {
			return 0, err
		}
	}
}

// send publishes a message and waits for the answer of its stream. The stream's name is stored with it, unless it is
// empty.
func (b *Broker) send(ctx context.Context, stream string, msg *nats.Msg,
	opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if opts = append(opts, jetstream.WithRetryAttempts(0)); stream != "" {
		opts = append(opts, jetstream.WithExpectStream(stream))
	}
	return ask(ctx, func(ctx context.Context, before int) (*jetstream.PubAck, error) {
		if err := b.linked(ctx); err != nil {
			return nil, err
		}
		// publishing writes to the header
		m := &nats.Msg{Subject: msg.Subject, Header: maps.Clone(msg.Header), Data: msg.Data}
		// it may be stored, run and taken out before this one comes
		if before > 0 && stream == streamCall {
			m.Header.Set(headerAgain, "1")
		}
		return b.js.PublishMsg(ctx, m, opts...)
	})
}

// ask makes a request, and returns its answer. While none has come it makes the request again every attemptTimeout, and
// goes on waiting for the answers to those before: an answer may be late, from a server that is far away, and it may
// never come, from one that has lost its leader. before is how many were made before. It gives up after longestAttempt.
func ask[T any](ctx context.Context, request func(ctx context.Context, before int) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, longestAttempt/attemptTimeout+1)
	again := time.NewTicker(attemptTimeout)
	defer again.Stop()
	for before := 0; ; before++ {
		go func() {
			v, err := request(ctx, before)
			answers <- answer{v, err}
		}()
		select {
		case a := <-answers:
			return a.v, a.err
		case <-again.C:
			if before+1 < cap(answers) {
				continue
			}
			a := <-answers // they end with ctx
			return a.v, a.err
		}
	}
}

// classify says whether a publish that failed so may be repeated, and what it means if not.
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
			return api.Code >= 500, err // 503: no leader now; the rest is a mistake that stays one
		}
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrBadSubject),
		errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrConnectionDraining):
		return false, err
	}
	return true, err // timeouts, no responders, a connection that is being restored
}

// MayPass reports whether what failed so may succeed when it is repeated: no answer came, there is no leader now, or
// the connection is being restored.
func MayPass(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code >= 500
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

// MayPass is the function of this name.
func (b *Broker) MayPass(err error) bool { return MayPass(err) }

// won decides a conflict: the message that took the place behind expected is either ours, stored by an attempt whose
// answer was lost, or another's. More may have been appended behind it since.
func (b *Broker) won(ctx context.Context, stream string, expected uint64, msg *nats.Msg, verdict error) (uint64,
	error) {
	m, ok, err := b.after(ctx, stream, msg.Subject, expected)
	if err != nil {
		return 0, err
	}
	if ok && m.header.Get(headerID) == msg.Header.Get(headerID) {
		return m.seq, nil
	}
	return 0, verdict
}

// after reads the first message of a literal subject behind a sequence, through the stream's leader.
func (b *Broker) after(ctx context.Context, stream, subject string, seq uint64) (raw, bool, error) {
	if b.guest != nil {
		return b.guest.read(ctx, b, readQuestion{Stream: stream, Subject: subject, Seq: seq + 1})
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return b.streams[stream].GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(subject))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return raw{}, false, nil
	}
	if err != nil {
		return raw{}, false, fmt.Errorf("read the message after %d on %s: %w", seq, subject, err)
	}
	return fromStream(m), true, nil
}

// chain returns the messages of a literal subject after a sequence, the oldest first, read through the leader. Each
// message of a chain says which one it was appended behind, so they are walked from the last one back. One that is not
// there has aged, or is lost: a [*LostError].
func (b *Broker) chain(ctx context.Context, stream, subject string, after uint64) (out []raw, err error) {
	if out, err = b.walk(ctx, stream, subject, after); !errors.Is(err, jetstream.ErrMsgNotFound) {
		return out, err
	}
	err = b.counted(ctx, stream, subject, func(counted map[string]uint64) error {
		var err error
		if out, err = b.walk(ctx, stream, subject, after); !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
		// what stands before it aged with it, and is not counted
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
		out = append(out, m)
		h := m.header.Get(headerExpected)
		before, err := strconv.ParseUint(h, 10, 64)
		if err != nil {
			return nil, &events.UnreadableError{ID: m.header.Get(headerID),
				Problem: fmt.Sprintf("message %d on %s was appended without expecting a sequence (%q)", m.seq, subject,
					h)}
		}
		if before == 0 || before <= after {
			break
		}
		if m, err = b.at(ctx, stream, before); err != nil {
			return out, err
		}
	}
	slices.Reverse(out)
	return out, nil
}

// forward returns the messages of a literal subject after a sequence, the oldest first, read through the leader,
// whatever they were appended behind. It looks at the last one first: the server finds that by the subject, while the
// first one behind a sequence, when there is none, costs it a search through the stream.
func (b *Broker) forward(ctx context.Context, stream, subject string, after uint64) ([]raw, error) {
	end, ok, err := b.last(ctx, stream, subject)
	if err != nil || !ok {
		return nil, err
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

// last reads the last message of a literal subject through the stream's leader; ok is false when there is none.
func (b *Broker) last(ctx context.Context, stream, subject string) (raw, bool, error) {
	if b.guest != nil {
		return b.guest.read(ctx, b, readQuestion{Stream: stream, Subject: subject})
	}
	m, err := retry(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return b.streams[stream].GetLastMsgForSubject(ctx, subject)
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return raw{}, false, nil
	}
	if err != nil {
		return raw{}, false, fmt.Errorf("read the last message on %s: %w", subject, err)
	}
	return fromStream(m), true, nil
}

// at reads one message by its sequence, through the stream's leader.
func (b *Broker) at(ctx context.Context, stream string, seq uint64) (raw, error) {
	if b.guest != nil {
		m, ok, err := b.guest.read(ctx, b, readQuestion{Stream: stream, Seq: seq, At: true})
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
	return raw{subject: m.Subject, seq: m.Sequence, time: m.Time, header: m.Header, data: m.Data}
}

// retry repeats a read that failed for want of an answer, until ctx ends or it has taken too long.
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
