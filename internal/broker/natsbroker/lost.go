package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// A stored message with a wrong checksum reads as missing, like one that never existed or has expired. One rule tells
// them apart: a message that nats-server counts on a subject, but that cannot be read there, is lost. [Broker.counted]
// applies this rule.
//
// Where the last message of a subject is damaged, a server before 2.15.3 appends as if there were none. A later one
// refuses that, and says where the damaged message is.

// lostAfter is how long a message that the server counts must be missing, if there are replicas: a leader that was cut
// off needs this long to notice, and answers from its own data until then.
const lostAfter = 12 * time.Second

// counted calls read with the server's number of messages on each matching subject. read then reads them, must find at
// least as many, and otherwise returns [tooFew].
func (b *Broker) counted(
	ctx context.Context, stream, subjects string, read func(counted map[string]uint64) error,
) error {
	return b.countedWith(ctx, stream, subjects, b.guest != nil, func(counted map[string]uint64, _ uint64) error {
		return read(counted)
	})
}

// countedWith is counted. fences says that read finds fences too. What it reads behind end does not make up for what is
// lost: it was stored since. A guest is told no end.
func (b *Broker) countedWith(
	ctx context.Context, stream, subjects string, fences bool, read func(counted map[string]uint64, end uint64) error,
) error {
	pause, began, again := firstPause, time.Now(), false
	for {
		counted, end, err := b.countsTo(ctx, stream, subjects)
		if err != nil {
			return err
		}
		err = read(counted, end)
		if errors.Is(err, broker.ErrDamaged) && !fences { // they are counted, and not read
			if counted, err = b.withoutFences(ctx, stream, counted); err == nil {
				err = read(counted, end)
			}
		}
		confirmed := time.Since(began) > lostAfter
		if b.Settings().Replicas <= 1 {
			confirmed = again // a server that was stopping when it was read is away now
		}
		if !errors.Is(err, broker.ErrDamaged) || confirmed {
			return err
		}
		again = true
		if err := wait(ctx, &pause); err != nil {
			return err
		}
	}
}

// tooFew is a [*LostError] if fewer messages were read on a subject than the server counted before.
func tooFew(subject string, counted uint64, read int) error {
	if uint64(read) >= counted {
		return nil
	}
	problem := fmt.Sprintf("the server counts %d messages there, and %d can be read", counted, read)
	return &broker.LostError{Subject: subject, Problem: problem, Submission: strings.HasPrefix(subject, prefixBatch)}
}

func (b *Broker) counts(ctx context.Context, stream, subjects string) (map[string]uint64, error) {
	counted, _, err := b.countsTo(ctx, stream, subjects)
	return counted, err
}

// countsTo is counts, and the end of the stream then.
func (b *Broker) countsTo(ctx context.Context, stream, subjects string) (counted map[string]uint64, end uint64,
	err error) {
	if b.guest != nil {
		counted, err = b.guest.counts(ctx, b, readQuestion{Stream: stream, Subject: subjects})
		return counted, math.MaxUint64, err
	}
	info, err := retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		s, err := b.js.Stream(ctx, b.name(stream)) // not the shared handle, see Fill
		if err != nil {
			return nil, err
		}
		return s.Info(ctx, jetstream.WithSubjectFilter(b.out(subjects)))
	})
	if err != nil {
		return nil, 0, fmt.Errorf("count the messages on %s: %w", subjects, err)
	}
	if b.shard == 0 {
		return info.State.Subjects, info.State.LastSeq, nil
	}
	counted = map[string]uint64{}
	for subject, n := range info.State.Subjects {
		counted[canonical(subject)] = n
	}
	return counted, info.State.LastSeq, nil
}

// lastOrLost reads the last message of a literal subject. Unlike last, it distinguishes a subject without messages from
// one whose last message is lost.
func (b *Broker) lastOrLost(ctx context.Context, stream, subject string) (m raw, ok bool, err error) {
	return b.orLost(ctx, stream, subject, b.guest != nil, b.last)
}

// hotLastOrLost is lastOrLost for [Broker.hotLast], which reads fences too.
func (b *Broker) hotLastOrLost(ctx context.Context, stream, subject string) (m raw, ok bool, err error) {
	return b.orLost(ctx, stream, subject, true, b.hotLast)
}

func (b *Broker) orLost(ctx context.Context, stream, subject string, fences bool,
	last func(ctx context.Context, stream, subject string) (raw, bool, error)) (m raw, ok bool, err error) {
	if m, ok, err = last(ctx, stream, subject); ok || err != nil {
		return m, ok, err
	}
	err = b.countedWith(ctx, stream, subject, fences, func(counted map[string]uint64, _ uint64) (err error) {
		if m, ok, err = last(ctx, stream, subject); ok || err != nil { // it was just stored
			return err
		}
		return tooFew(subject, counted[subject], 0)
	})
	return m, ok, err
}

// submitted reads the submission of a batch: the first message of its subject that is no fence. Agents can publish more
// behind it, and nothing of that counts.
func (b *Broker) submitted(ctx context.Context, k toolyard.BatchKey) (raw, bool, error) {
	m, ok, err := b.lastOrLost(ctx, streamBatch, subjectBatch(k))
	if err != nil || !ok || m.begins() {
		return m, ok, err
	}
	first, ok, err := b.after(ctx, streamBatch, subjectBatch(k), 0)
	if err != nil || !ok { // it has expired meanwhile
		return m, err == nil, err
	}
	return first, true, nil
}

// begins reports whether the server has found nothing on a message's subject when it stored the message. Of others that
// is not known: who publishes may leave the header out.
func (m *raw) begins() bool {
	before, ok := m.follows()
	return ok && before == 0
}

// follows is the sequence of the message before this one on its subject, as the server has compared it when it stored
// the message. ok is false if it has not.
func (m *raw) follows() (before uint64, ok bool) {
	before, err := strconv.ParseUint(m.header.Get(headerExpected), 10, 64)
	return before, err == nil && m.header.Get(headerExpectedOn) == ""
}

// Resume is [Broker.Fold] for a takeover. It also reports losses that a fold does not need, so that nothing is repeated
// because the event that records it is lost.
func (b *Broker) Resume(ctx context.Context, k toolyard.BatchKey) (s batch.State, err error) {
	b, err = b.of(ctx, k)
	if err != nil {
		return s, err
	}
	reply, replied, err := b.lastOrLost(ctx, streamReply, subjectReply(k))
	if err != nil {
		return s, err
	}
	control, asked := subjectChain(k, batch.ChainControl, "", 0), false
	every := subjectEvents(k)
	err = b.countedWith(ctx, streamEvent, every, false, func(counted map[string]uint64, end uint64) (err error) {
		read := map[string]int{}
		asked = counted[control] > 0
		s, err = b.fold(ctx, k, func(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
			if m.seq <= end {
				read[m.subject]++
			}
			return b.tolerant(ctx, m)
		})
		if err != nil {
			return err
		}
		if replied && s.ReplySeq < reply.seq { // it was there
			return tooFew(subjectReply(k), 1, 0)
		}
		chains := []string{subjectChain(k, batch.ChainBatch, "", 0), subjectChain(k, batch.ChainInput, "", 0)}
		for _, g := range slices.Sorted(maps.Keys(s.Started)) {
			for _, i := range s.Plan.Groups[g].Calls {
				// Of a finished call that is an item of its own the last event says all.
				if s.Calls[i].Item == i && (len(s.Item(i)) > 1 || s.Calls[i].Status != batch.Finished) {
					chains = append(chains, subjectChain(k, batch.ChainItem, s.Plan.Calls[i].Pool, i))
				}
			}
		}
		for _, subject := range chains {
			if err := tooFew(subject, counted[subject], read[subject]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && asked && !s.Completed && s.Refused == nil {
		err = b.controlLost(ctx, control)
	}
	return s, err
}

// controlLost is a [*LostError] if cancels or interrupts of a batch are lost: calls would run that somebody has
// stopped. Its agent may write fences anywhere in this chain.
func (b *Broker) controlLost(ctx context.Context, subject string) error {
	return b.countedWith(ctx, streamEvent, subject, true, func(counted map[string]uint64, end uint64) error {
		n := 0
		for at := uint64(0); uint64(n) < counted[subject]; n++ {
			m, ok, err := b.hotAfter(ctx, streamEvent, subject, at)
			if err != nil {
				return err
			}
			if !ok || m.seq > end {
				break
			}
			at = m.seq
		}
		return tooFew(subject, counted[subject], n)
	})
}

// inputLost is a [*LostError] if appended calls of a batch are lost.
func (b *Broker) inputLost(ctx context.Context, k toolyard.BatchKey) error {
	return b.chainLost(ctx, subjectChain(k, batch.ChainInput, "", 0))
}

// ItemLost is a [*LostError] if events of an item's chain are lost. A worker asks before it claims a call that it may
// have been given before: a claim that is lost looks like none.
func (b *Broker) ItemLost(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, item int) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	err = b.chainLost(ctx, subjectChain(k, batch.ChainItem, pool, item))
	if refusedFor(err, codeNotYours) { // an older dispatcher counts for agents only
		return nil
	}
	return err
}

func (b *Broker) chainLost(ctx context.Context, subject string) error {
	fences := b.guest != nil
	return b.countedWith(ctx, streamEvent, subject, fences, func(counted map[string]uint64, end uint64) error {
		stored, err := b.forward(ctx, streamEvent, subject, 0)
		if err != nil {
			return err
		}
		stored = slices.DeleteFunc(stored, func(m raw) bool { return m.seq > end })
		return tooFew(subject, counted[subject], len(stored))
	})
}

// Find returns nil if there is a batch, [ErrNoBatch] if there is none, and a [*LostError] if its submission is lost.
func (b *Broker) Find(ctx context.Context, k toolyard.BatchKey) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	_, ok, err := b.lastOrLost(ctx, streamBatch, subjectBatch(k))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	return err
}

// Forsaken returns a [*LostError] if a batch will never be answered, because its replies or its submission are lost.
// The waiter has seen replies up to seen. A missing submission proves nothing here, because a leader that was cut off
// also reports one.
func (b *Broker) Forsaken(ctx context.Context, k toolyard.BatchKey, seen uint64) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	reply, ok, err := b.lastOrLost(ctx, streamReply, subjectReply(k))
	if err != nil || ok && reply.seq > seen {
		return err
	}
	_, _, err = b.lastOrLost(ctx, streamBatch, subjectBatch(k))
	return err
}

// AsPlanned returns the batch as its plan describes it, for use if its submission is lost; nil if it has no plan.
func (b *Broker) AsPlanned(ctx context.Context, k toolyard.BatchKey) (sub *toolyard.Batch, err error) {
	b, err = b.of(ctx, k)
	if err != nil {
		return sub, err
	}
	stored, err := b.chain(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0), 0)
	if err != nil {
		return nil, err
	}
	for _, m := range stored {
		_, r, _, err := b.record(ctx, m)
		if err != nil {
			return nil, err
		}
		var planned []events.PlannedCall
		switch body := r.Body.(type) {
		case events.Planned:
			sub = &toolyard.Batch{Agent: k.Agent, ID: k.ID, Session: body.Session, Workspace: body.Workspace,
				Open: body.Open}
			planned = body.Calls
		case events.Extended:
			planned = body.Calls
		}
		if sub == nil { // it was turned away
			return nil, nil
		}
		for _, c := range planned {
			sub.Calls = append(sub.Calls, toolyard.Call{ID: c.ID, Tool: c.Tool})
		}
	}
	return sub, nil
}

// RefuseBehind tells waiters for replies that no more come, and why, after whatever replies exist and cannot be read.
func (b *Broker) RefuseBehind(ctx context.Context, k toolyard.BatchKey, why events.Refused) error {
	for expected := uint64(0); ; {
		_, err := b.Append(ctx, k, batch.ChainReply, "", 0, expected, why)
		end, ok := reportedEnd(err)
		if !ok || end <= expected {
			return err
		}
		expected = end
	}
}

// reportedEnd is where the server has said that a chain ends, to who has appended behind another end.
func reportedEnd(err error) (end uint64, ok bool) {
	if other, ok := errors.AsType[*conflictError](err); ok {
		return other.end, true
	}
	lost, ok := errors.AsType[*broker.LostError](err)
	if !ok || lost.End == 0 {
		return 0, false
	}
	return lost.End, true
}

// conflictError is an [ErrConflict] with the subject's last sequence according to the server: that message may be lost.
type conflictError struct{ end uint64 }

func (e *conflictError) Error() string { return fmt.Sprintf("%v, at %d", broker.ErrConflict, e.end) }
func (e *conflictError) Unwrap() error { return broker.ErrConflict }

// conflict parses the server's conflict error. The end is 0 if the server did not report it.
func conflict(api *jetstream.APIError) error {
	_, number, _ := strings.Cut(api.Description, ": ")
	end, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		end = 0
	}
	return &conflictError{end}
}
