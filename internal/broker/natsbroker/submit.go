package natsbroker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	rules "github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Submit stores a batch. If it returns nil, the batch is accepted: it is in the stream, and will have one result for
// each call, unless a dispatcher refuses it because it has no room. Submitting the same batch again is accepted again
// and runs nothing; the same id with other content wraps [ErrOtherContent]. It wraps [ErrFull] if nothing was accepted
// because there is no room, and [ErrNoAnswer] if NATS does not answer within [SubmitWait]. The batch must be normalized
// and valid.
func (b *Broker) Submit(ctx context.Context, sub toolyard.Batch) error {
	ctx, cancel := context.WithTimeoutCause(ctx, broker.SubmitWait,
		fmt.Errorf("%w: batch %s was not acknowledged within %s. The same one again, under the same id, is safe",
			broker.ErrNoAnswer, sub.Key(), broker.SubmitWait))
	defer cancel()
	ctx, stop := b.unlessStalled(ctx)
	defer stop()
	return b.of(sub.Key()).submit(ctx, sub)
}

func (b *Broker) submit(ctx context.Context, sub toolyard.Batch) error {
	k := sub.Key()
	_, err := b.Append(ctx, k, batch.ChainSubmission, "", 0, 0, events.Submitted{Batch: sub})
	if errors.Is(err, broker.ErrFull) {
		return fmt.Errorf("batch %s was not accepted: the system has no room for more submissions now; try again "+
			"later (%w)", k, err)
	}
	if !errors.Is(err, broker.ErrConflict) {
		return err
	}
	if done, err := b.submittedArchived(ctx, &sub); done || err != nil {
		return err
	}
	m, ok, err := b.lastOrLost(ctx, streamBatch, subjectBatch(k))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("batch %s was removed while it was submitted again: %w", k, broker.ErrNoBatch)
	}
	stored := batch.State{Key: k}
	if err := b.applyRaw(ctx, &stored, m); errors.Is(err, events.ErrNewer) { // it may be the same
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %s (what is stored cannot be accepted: %w)", broker.ErrOtherContent, k, err)
	}
	same, err := rules.Same(stored.Submission, &sub)
	if err != nil {
		return err
	}
	if !same {
		return otherContent(k)
	}
	return nil
}

func otherContent(k toolyard.BatchKey) error {
	return fmt.Errorf("%w: %s; use a new id", broker.ErrOtherContent, k)
}

// submittedArchived answers who submits a batch again that is archived, from what stands behind its submission.
func (b *Broker) submittedArchived(ctx context.Context, sub *toolyard.Batch) (done bool, err error) {
	if b.guest != nil { // a dispatcher reads the archive for it
		return false, nil
	}
	m, ok, err := b.hotLast(ctx, streamBatch, subjectBatch(sub.Key()))
	if err != nil || !ok || !m.fence() {
		return false, err
	}
	rec, ok, err := b.recordIn(ctx, m)
	if err != nil || !ok {
		return false, err
	}
	sum, err := rules.Sum(sub)
	if err == nil && sum != rec.Content {
		err = otherContent(sub.Key())
	}
	return true, err
}

// submission is the message below a [broker.Submission].
type submission struct {
	key    toolyard.BatchKey
	seq    uint64
	parked uint64
	reply  string // its reply subject
	b      *Broker
	raw    raw
	// unreadable is Read's error, if the submission cannot be decoded.
	unreadable error
}

func (s *submission) Read(ctx context.Context) (batch.State, error) {
	st := batch.State{Key: s.key}
	var err error
	if s.parked != 0 || s.raw.header == nil { // or it was released
		var ok bool
		if s.raw, ok, err = s.b.lastOrLost(ctx, streamBatch, subjectBatch(s.key)); err == nil && !ok {
			err = fmt.Errorf("%w: %s", broker.ErrNoBatch, s.key)
		}
	}
	if err != nil {
		return st, err
	}
	err = s.b.applyRaw(ctx, &st, s.raw)
	if bad, ok := errors.AsType[*events.UnreadableError](err); ok {
		s.unreadable = bad
	}
	return st, err
}

func (s *submission) CheckFields(ctx context.Context) error {
	v, ok := envelope(s.raw.header)
	data := s.raw.data
	if !ok {
		e, err := s.b.event(ctx, s.raw.header, data)
		if err != nil {
			return err
		}
		v, data = events.EnvelopeOf(e), e.Data()
	}
	if newer, err := v.Newer(); err != nil || newer {
		return err
	}
	data, err := strictjson.MendText(data)
	if err != nil || events.OwnSubmission(data) {
		return err
	}
	_, err = native.Decode(data)
	return err
}

// Outline decodes a submission as little as it has to: it is asked of each before others are taken. Nearly none is a
// bulk one.
func (s *submission) Outline(ctx context.Context, whole bool) (o broker.Outline) {
	if s.parked != 0 || s.raw.header == nil {
		return o
	}
	data := s.raw.data
	if len(data) == 0 { // it is an object
		e, err := s.b.event(ctx, s.raw.header, data)
		if err != nil {
			return o
		}
		data = e.Data()
	}
	if !whole && !bytes.Contains(data, []byte(toolyard.Bulk)) {
		return o
	}
	var sub struct {
		Open    bool
		Calls   []json.RawMessage
		Options struct {
			Priority       toolyard.Priority
			MaxConcurrency int `json:"max_concurrency"`
		}
	}
	if json.Unmarshal(data, &sub) != nil { // whoever reads it says what is wrong
		return o
	}
	return broker.Outline{Priority: sub.Options.Priority, Calls: len(sub.Calls), Bytes: len(data), Open: sub.Open,
		MaxConcurrency: max(0, sub.Options.MaxConcurrency)}
}

func (s *submission) Release() { s.raw = raw{} }

func (s *submission) Heartbeat(ctx context.Context, answered bool) (counts bool, err error) {
	if answered {
		_, err = s.b.nc.RequestWithContext(ctx, s.reply, []byte("+WPI"))
		return err == nil, err
	}
	err = s.b.nc.Publish(s.reply, []byte("+WPI"))
	return err == nil && s.b.nc.IsConnected(), err
}

func (s *submission) Return(pause time.Duration) error {
	return s.b.nc.Publish(s.reply, fmt.Appendf(nil, `-NAK {"delay": %d}`, pause.Nanoseconds()))
}

// Done acknowledges the submission: the batch is complete, or parks. It repeats this while there is no answer, for at
// most [longestRead]: if the server was killed, it may have lost the acknowledgement.
func (s *submission) Done(ctx context.Context) error {
	_, err := retry(ctx, func(ctx context.Context) (*nats.Msg, error) {
		return s.b.nc.RequestWithContext(ctx, s.reply, []byte("+ACK"))
	})
	return err
}

func (s *submission) DoneSoon() error { return s.b.nc.Publish(s.reply, []byte("+ACK")) }

func (s *submission) BuryBatch(ctx context.Context, why string) error {
	return s.b.Bury(ctx, broker.DeadLetter{Kind: broker.DeadBatch, Agent: s.key.Agent, Batch: s.key.ID,
		Subject: s.raw.subject, Seq: s.seq, Cause: why}, s.raw.data)
}

// Submitted reports whether a batch is in the stream of submissions.
func (b *Broker) Submitted(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	b = b.of(k)
	_, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	return ok, err
}

// Origin reads where a batch came from, without its content.
func (b *Broker) Origin(ctx context.Context, k toolyard.BatchKey) (broker.Origin, error) {
	b = b.of(k)
	m, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	return broker.Origin{Key: k, Seq: m.seq, TraceParent: traceparent.Valid(m.header.Get(headerTrace))}, err
}

// Planned reports whether a batch was planned, or turned away: whether its batch chain has begun.
func (b *Broker) Planned(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	b = b.of(k)
	_, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0))
	return ok, err
}

type submissions struct {
	b    *Broker
	pull *pull
}

// prefetchSubmissions is how many submissions a dispatcher requests at a time. If it requested them one by one, a flood
// would queue in the stream, where agents do not take turns. It handles each at once, so none grows old in the buffer.
const prefetchSubmissions = 64

// Submissions starts the delivery of submissions to one dispatcher.
func (b *Broker) Submissions() (broker.Submissions, error) {
	if b.several() {
		return b.submissionsOfAll()
	}
	p, err := b.pull(streamBatch, consumerDispatchers, b.Settings().BatchAckWait, nak)
	if err != nil {
		return nil, err
	}
	return &submissions{b: b, pull: p}, nil
}

// Next waits for a submission. It skips temporary errors; [ErrStopped] is the end. A message under a subject that names
// no batch is refused on the corresponding reply subject, and reported as an [*events.UnreadableError]. A wake that
// only a newer version knows is given back for one, and reported as an [*events.NewerError].
func (s *submissions) Next(ctx context.Context) (*broker.Submission, error) {
	m, err := s.pull.one(prefetchSubmissions)
	if err != nil {
		return nil, err
	}
	for m.Header.Get(headerType) == string(events.BatchArchived) { // it asks nothing of a dispatcher
		_ = m.Ack() // it fails when the connection is closed; then it is delivered again
		if m, err = s.pull.one(prefetchSubmissions); err != nil {
			return nil, err
		}
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read a delivery's metadata: %w", err)
	}
	p, err := parseSubject(m.Subject)
	if err == nil {
		err = s.b.misplaced(p.key)
	}
	if err != nil { // the stream accepts only subjects of the right shape: this one has an invalid token
		bad := &events.UnreadableError{ID: m.Header.Get(headerID), Problem: err.Error()}
		if _, err := s.b.classifyUnknown(ctx, m.Header, m.Data, bad); errors.Is(err, events.ErrNewer) {
			return nil, errors.Join(err, m.NakWithDelay(broker.NewerPause(meta.NumDelivered)))
		}
		if strings.HasPrefix(m.Subject, prefixBatch) {
			if err := s.b.refuseSubject(ctx, m.Subject, err); err != nil {
				return nil, errors.Join(bad, err) // it is redelivered
			}
		}
		buried := s.bury(ctx, m.Msg, toolyard.BatchKey{}, meta.Sequence.Stream, bad)
		return nil, errors.Join(bad, buried, terminate(m.Msg, "the subject names no batch"))
	}
	parked := uint64(0)
	if p.wake {
		parked, err = s.b.readWake(ctx, m.Msg)
		if errors.Is(err, events.ErrNewer) {
			return nil, errors.Join(err, m.NakWithDelay(broker.NewerPause(meta.NumDelivered)))
		}
		if err != nil {
			buried := s.bury(ctx, m.Msg, p.key, meta.Sequence.Stream, err)
			return nil, errors.Join(err, buried, terminate(m.Msg, "it is no wake"))
		}
	}
	sub := &broker.Submission{
		Key: p.key, Parked: parked, Seq: meta.Sequence.Stream, Deliveries: meta.NumDelivered,
		Wait: s.b.Settings().BatchAckWait,
		SubmissionMessage: &submission{
			key: p.key, parked: parked, seq: meta.Sequence.Stream, reply: m.Reply, b: s.b,
			raw: raw{subject: m.Subject, seq: meta.Sequence.Stream, time: meta.Timestamp, header: m.Header,
				data: m.Data},
		},
	}
	return sub.Received(m.received), nil
}

// bury records a message of the batch stream that is not a submission.
func (s *submissions) bury(ctx context.Context, m *nats.Msg, k toolyard.BatchKey, seq uint64, why error) error {
	return s.b.Bury(ctx, broker.DeadLetter{
		Kind: broker.DeadSubmission, Agent: k.Agent, Batch: k.ID, Subject: m.Subject, Seq: seq, Cause: why.Error(),
	}, m.Data)
}

// refuseSubject answers the publisher of a subject that names no batch, on the subject where it reads.
func (b *Broker) refuseSubject(ctx context.Context, subject string, why error) error {
	tokens := strings.TrimPrefix(subject, prefixBatch)
	m := b.meta(ctx, toolyard.BatchKey{}, broker.Escape(tokens))
	m.PartitionKey = m.Subject
	msg, err := b.message(ctx, prefixReply+tokens, m, events.Refuse(&toolyard.InputError{Field: "subject",
		Problem: why.Error()}))
	if err != nil {
		return err
	}
	// a conflict: it was answered before
	if _, err := b.append(ctx, streamReply, 0, msg); err != nil && !errors.Is(err, broker.ErrConflict) {
		return fmt.Errorf("refuse what was published under %s: %w", subject, err)
	}
	return nil
}

// Stop ends Next. Messages that are on their way are given back.
func (s *submissions) Stop() { s.pull.stop() }

func (s *submission) Refuse(ctx context.Context, why events.Refused) error {
	_, err := s.b.Append(ctx, s.key, batch.ChainReply, "", 0, 0, why)
	if err != nil && !errors.Is(err, broker.ErrConflict) { // a conflict: it was refused before
		return err
	}
	if s.unreadable != nil {
		letter := broker.DeadLetter{Kind: broker.DeadSubmission, Agent: s.key.Agent, Batch: s.key.ID,
			Subject: s.raw.subject, Seq: s.seq, Cause: s.unreadable.Error()}
		if err := s.b.Bury(ctx, letter, s.raw.data); err != nil {
			return err
		}
	}
	return s.Done(ctx)
}

// TurnAway appends the refusal in place of the plan. A dispatcher that gets the submission after that finds the
// refusal, and answers.
func (s *submission) TurnAway(ctx context.Context, why events.Refused) error {
	if _, err := s.b.Append(ctx, s.key, batch.ChainBatch, "", 0, 0, why); err != nil {
		return err
	}
	return s.Refuse(ctx, why)
}
