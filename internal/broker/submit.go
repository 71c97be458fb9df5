package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// ErrOtherContent is wrapped when a batch of the same id was submitted with other content.
var ErrOtherContent = errors.New("a batch of this id has other content")

// Submit stores a batch. When it returns nil the batch is accepted: it is in the stream, and will have one result for each
// call. Submitting the same batch again is accepted again and runs nothing; the same id with other content wraps
// [ErrOtherContent]. The batch must be normalized and valid.
func (b *Broker) Submit(ctx context.Context, sub toolyard.Batch) error {
	k := sub.Key()
	_, err := b.Append(ctx, k, batch.ChainSubmission, "", 0, 0, events.Submitted{Batch: sub})
	if !errors.Is(err, ErrConflict) {
		return err
	}
	m, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("batch %s was removed while it was submitted again: %w", k, ErrNoBatch)
	}
	stored := batch.State{Key: k}
	if err := b.applyRaw(ctx, &stored, m); err != nil {
		return fmt.Errorf("%w: %s (what is stored cannot be accepted: %w)", ErrOtherContent, k, err)
	}
	have, err := canonical(*stored.Submission)
	if err != nil {
		return err
	}
	want, err := canonical(sub)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%w: %s; use a new id", ErrOtherContent, k)
	}
	return nil
}

// canonical is a batch's content, whatever the white space and the order of the keys in its inputs.
func canonical(sub toolyard.Batch) ([]byte, error) {
	encoded, err := json.Marshal(sub)
	if err != nil {
		return nil, fmt.Errorf("encode batch %s: %w", sub.Key(), err)
	}
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode batch %s: %w", sub.Key(), err)
	}
	return json.Marshal(v)
}

// Submission is one delivery of a submission to this dispatcher. It stays unacknowledged, and kept alive, until the
// batch is complete.
type Submission struct {
	Key toolyard.BatchKey
	Seq uint64
	// Deliveries counts how often the submission was delivered, to whomever, this time included. From the second on the
	// batch may be under way.
	Deliveries uint64
	msg        jetstream.Msg
	b          *Broker
	raw        raw
}

// Read returns the batch. It is an [*events.UnreadableError] or a [*toolyard.InputError] when the submission cannot be
// accepted.
func (s *Submission) Read(ctx context.Context) (batch.State, error) {
	st := batch.State{Key: s.Key}
	return st, s.b.applyRaw(ctx, &st, s.raw)
}

// Alive tells the stream that the batch is in work. An error means that it may be another's by now; an answer proves
// nothing, since the stream answers whoever says so.
func (s *Submission) Alive(ctx context.Context) error {
	_, err := s.b.nc.RequestWithContext(ctx, s.msg.Reply(), []byte("+WPI"))
	return err
}

// Return gives the submission back, to be delivered again after a pause.
func (s *Submission) Return(pause time.Duration) error { return s.msg.NakWithDelay(pause) }

// Done acknowledges the submission: the batch is complete.
func (s *Submission) Done(ctx context.Context) error { return s.msg.DoubleAck(ctx) }

// Submissions delivers batches to one dispatcher.
type Submissions struct {
	b  *Broker
	it jetstream.MessagesContext
}

// prefetchSubmissions is how many submissions a dispatcher asks for: one, when it has room for one. What waits in a buffer is
// delivered again to others when its ack wait is over.
const prefetchSubmissions = 1

// Submissions starts to take submissions for one dispatcher.
func (b *Broker) Submissions() (*Submissions, error) {
	it, err := b.submissions.Messages(jetstream.PullMaxMessages(prefetchSubmissions), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return nil, fmt.Errorf("take submissions: %w", err)
	}
	return &Submissions{b: b, it: it}, nil
}

// ErrStopped is wrapped by iterators that were stopped.
var ErrStopped = errors.New("stopped")

// Next waits for a submission. Errors that pass are passed over; [ErrStopped] is the end. A message under a subject that
// names no batch is refused on the reply subject that goes with it, and reported as an [*events.UnreadableError].
func (s *Submissions) Next(ctx context.Context) (*Submission, error) {
	m, meta, err := next(s.it)
	if err != nil {
		return nil, err
	}
	p, err := parseSubject(m.Subject())
	if err != nil { // the stream takes only subjects of the right shape: this one has a token that is never made
		refused := s.b.refuseSubject(ctx, m.Subject(), err)
		if refused == nil {
			refused = m.TermWithReason("the subject names no batch")
		}
		return nil, errors.Join(&events.UnreadableError{ID: m.Headers().Get(headerID), Problem: err.Error()}, refused)
	}
	return &Submission{
		Key: p.key, Seq: meta.Sequence.Stream, Deliveries: meta.NumDelivered, msg: m, b: s.b,
		raw: raw{subject: m.Subject(), seq: meta.Sequence.Stream, time: meta.Timestamp, header: m.Headers(), data: m.Data()},
	}, nil
}

// refuseSubject answers whoever published under a subject that names no batch, where he reads.
func (b *Broker) refuseSubject(ctx context.Context, subject string, why error) error {
	tokens := strings.TrimPrefix(subject, prefixBatch)
	m := b.meta(toolyard.BatchKey{}, Escape(tokens))
	m.PartitionKey = m.Subject
	msg, err := b.message(ctx, prefixReply+tokens, m, events.Refuse(&toolyard.InputError{Field: "subject", Problem: why.Error()}))
	if err != nil {
		return err
	}
	if _, err := b.append(ctx, streamReply, 0, msg); err != nil && !errors.Is(err, ErrConflict) { // a conflict: he was told before
		return fmt.Errorf("refuse what was published under %s: %w", subject, err)
	}
	return nil
}

// Stop ends Next.
func (s *Submissions) Stop() { s.it.Stop() }

// next waits for the next message of an iterator, over interruptions that pass.
func next(it jetstream.MessagesContext) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	pause := firstPause
	for {
		m, err := it.Next()
		switch {
		case err == nil:
			meta, err := m.Metadata()
			if err != nil {
				return nil, nil, fmt.Errorf("read a delivery's metadata: %w", err)
			}
			return m, meta, nil
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil, nil, ErrStopped
		case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil, nil, fmt.Errorf("take from a consumer: %w", err)
		}
		// No heartbeat, a server that restarts, a leader that changes: the iterator asks again.
		time.Sleep(pause)
		pause = min(2*pause, longestPause)
	}
}

// Refuse answers a submission that cannot be accepted, on its reply subject, and is done with it.
func (s *Submission) Refuse(ctx context.Context, why events.Refused) error {
	_, err := s.b.Append(ctx, s.Key, batch.ChainReply, "", 0, 0, why)
	if err != nil && !errors.Is(err, ErrConflict) { // a conflict: it was refused before
		return err
	}
	return s.Done(ctx)
}
