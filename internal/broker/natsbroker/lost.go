package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// A stored message whose checksum is wrong reads as one that is not there, as one does that never was or has aged. One
// rule tells them apart: what nats-server counts on a subject, and nobody can read there, is lost. [Broker.counted] is
// that rule.

// lostAfter is for how long a message must not be found that the server counts, where there are replicas: a leader that
// was cut off takes that long to know, and answers meanwhile from what it has.
const lostAfter = 12 * time.Second

// counted calls read with how many messages the server counts on each subject that matches. read looks at them then, so
// it finds as many at least, and returns [tooFew] where it does not.
func (b *Broker) counted(
	ctx context.Context, stream, subjects string, read func(counted map[string]uint64) error,
) error {
	pause, began := firstPause, time.Now()
	for {
		counted, err := b.counts(ctx, stream, subjects)
		if err != nil {
			return err
		}
		if err = read(counted); !errors.Is(err, broker.ErrDamaged) || b.settings.Replicas <= 1 ||
			time.Since(began) > lostAfter {
			return err
		}
		if err := wait(ctx, &pause); err != nil {
			return err
		}
	}
}

// tooFew is a [*LostError] when fewer messages were read on a subject than the server counted before.
func tooFew(subject string, counted uint64, read int) error {
	if uint64(read) >= counted {
		return nil
	}
	problem := fmt.Sprintf("the server counts %d messages there, and %d can be read", counted, read)
	return &broker.LostError{Subject: subject, Problem: problem, Submission: strings.HasPrefix(subject, prefixBatch)}
}

func (b *Broker) counts(ctx context.Context, stream, subjects string) (map[string]uint64, error) {
	if b.guest != nil {
		return b.guest.counts(ctx, b, readQuestion{Stream: stream, Subject: subjects})
	}
	info, err := retry(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		s, err := b.js.Stream(ctx, stream) // and not the handle that is there, see Fill
		if err != nil {
			return nil, err
		}
		return s.Info(ctx, jetstream.WithSubjectFilter(subjects))
	})
	if err != nil {
		return nil, fmt.Errorf("count the messages on %s: %w", subjects, err)
	}
	return info.State.Subjects, nil
}

// end reads the last message of a literal subject. Other than last it tells a subject without messages from one whose
// last message is lost.
func (b *Broker) end(ctx context.Context, stream, subject string) (m raw, ok bool, err error) {
	if m, ok, err = b.last(ctx, stream, subject); ok || err != nil {
		return m, ok, err
	}
	err = b.counted(ctx, stream, subject, func(counted map[string]uint64) (err error) {
		if m, ok, err = b.last(ctx, stream, subject); ok || err != nil { // it was just stored
			return err
		}
		return tooFew(subject, counted[subject], 0)
	})
	return m, ok, err
}

// Resume is [Broker.Fold] for whoever takes a batch over. It also reports what is lost where a fold does not need it,
// so that nothing is done again for want of the event that says that it was done.
func (b *Broker) Resume(ctx context.Context, k toolyard.BatchKey) (s batch.State, err error) {
	if _, _, err := b.end(ctx, streamReply, subjectReply(k)); err != nil {
		return s, err
	}
	err = b.counted(ctx, streamEvent, subjectEvents(k), func(counted map[string]uint64) (err error) {
		read := map[string]int{}
		s, err = b.fold(ctx, k, func(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
			read[m.subject]++
			return b.tolerant(ctx, m)
		})
		if err != nil {
			return err
		}
		chains := []string{subjectChain(k, batch.ChainBatch, "", 0), subjectChain(k, batch.ChainInput, "", 0)}
		for _, g := range slices.Sorted(maps.Keys(s.Started)) {
			for _, i := range s.Plan.Groups[g].Calls {
				if s.Calls[i].Status != batch.Finished { // of which the last event says all
					chains = append(chains, subjectChain(k, batch.ChainCall, s.Plan.Calls[i].Pool, i))
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
	return s, err
}

// inputLost is a [*LostError] when calls that were appended to a batch are lost.
func (b *Broker) inputLost(ctx context.Context, k toolyard.BatchKey) error {
	subject := subjectChain(k, batch.ChainInput, "", 0)
	return b.counted(ctx, streamEvent, subject, func(counted map[string]uint64) error {
		stored, err := b.forward(ctx, streamEvent, subject, 0)
		if err != nil {
			return err
		}
		return tooFew(subject, counted[subject], len(stored))
	})
}

// Find is nil when there is a batch, [ErrNoBatch] when there is none, and a [*LostError] when its submission is lost.
func (b *Broker) Find(ctx context.Context, k toolyard.BatchKey) error {
	_, ok, err := b.end(ctx, streamBatch, subjectBatch(k))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	return err
}

// Forsaken is a [*LostError] when nobody will answer a batch any more, for who waits for replies behind a sequence: its
// replies or its submission are lost. That there is no submission says nothing here: a leader that was cut off says so
// too.
func (b *Broker) Forsaken(ctx context.Context, k toolyard.BatchKey, seen uint64) error {
	reply, ok, err := b.end(ctx, streamReply, subjectReply(k))
	if err != nil || ok && reply.seq > seen {
		return err
	}
	_, _, err = b.end(ctx, streamBatch, subjectBatch(k))
	return err
}

// AsPlanned is what the plan of a batch says of it, for when its submission is lost; nil when it has none.
func (b *Broker) AsPlanned(ctx context.Context, k toolyard.BatchKey) (sub *toolyard.Batch, err error) {
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

// RefuseBehind tells whoever waits for replies that no more come, and why, whatever stands there already and cannot be
// read.
func (b *Broker) RefuseBehind(ctx context.Context, k toolyard.BatchKey, why events.Refused) error {
	for expected := uint64(0); ; {
		_, err := b.Append(ctx, k, batch.ChainReply, "", 0, expected, why)
		other, ok := errors.AsType[*conflictError](err)
		if !ok || other.end <= expected {
			return err
		}
		expected = other.end
	}
}

// conflictError is an [ErrConflict] with where the subject ends, as the server says: what stands there may be lost.
type conflictError struct{ end uint64 }

func (e *conflictError) Error() string { return fmt.Sprintf("%v, at %d", broker.ErrConflict, e.end) }
func (e *conflictError) Unwrap() error { return broker.ErrConflict }

// conflict is what the server said of a conflict. The end is 0 when it did not say.
func conflict(api *jetstream.APIError) error {
	_, number, _ := strings.Cut(api.Description, ": ")
	end, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		end = 0
	}
	return &conflictError{end}
}
