package natsbroker

import (
	"bytes"
	"cmp"
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
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/shard"
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
	return b.submitAlong(ctx, sub)
}

// submitAlong submits a batch in its home, behind fences in the former shards.
func (b *Broker) submitAlong(ctx context.Context, sub toolyard.Batch) error {
	k := sub.Key()
	v, err := b.current(ctx)
	if err != nil {
		return err
	}
	renewed := false
	if v.Served() == 1 {
		if err := b.submit(ctx, sub); !errors.Is(err, errMoved) {
			return err
		}
		if v, err = b.renewed(ctx); err != nil {
			return err
		}
		renewed = true
	}
	for {
		path, stands := b.path(v, shard.OfBatch(k)), map[int]shard.Stand{}
		step := shard.Submit(path, stands)
		for ; step.Kind == shard.Fence; step = shard.Submit(path, stands) {
			if stands[step.Shard], err = b.inOf(v, step.Shard).fenceOff(ctx, k); err != nil {
				return err
			}
			failpoint.Hit(failpoint.IDFenced)
		}
		switch step.Kind {
		case shard.Store:
			err = b.inOf(v, step.Shard).submit(ctx, sub)
		case shard.Answer:
			err = b.inOf(v, step.Shard).same(ctx, sub)
		default:
			err = errMoved
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		was := len(v.Epochs)
		if v, err = b.renewed(ctx); err != nil {
			return err
		}
		if renewed && len(v.Epochs) == was {
			return fmt.Errorf("%w: %s stands in no shard where it may be used; use a new id", broker.ErrOtherContent, k)
		}
		renewed = true
	}
}

// errMoved says that the id is fenced off here: somebody has a newer map.
var errMoved = errors.New("the id has moved to another shard")

// fenceOff makes sure that the id of a batch is not used in this former shard, and returns what stands there.
func (b *Broker) fenceOff(ctx context.Context, k toolyard.BatchKey) (shard.Stand, error) {
	_, err := b.Append(ctx, k, batch.ChainSubmission, "", 0, 0, events.Moved{})
	switch {
	case err == nil:
		return shard.Moved, nil
	case errors.Is(err, broker.ErrFull):
		return shard.Unread, fmt.Errorf("batch %s was not accepted: the system has no room for more submissions now; "+
			"try again later (%w)", k, err)
	case !errors.Is(err, broker.ErrConflict):
		return shard.Unread, err
	}
	return b.standing(ctx, k)
}

// standing is what stands under an id behind a conflict: a fence, or the batch.
func (b *Broker) standing(ctx context.Context, k toolyard.BatchKey) (shard.Stand, error) {
	if b.guest != nil { // a dispatcher passes over fences
		_, found, err := b.guest.where(ctx, b, k)
		if err == nil && !found {
			return shard.Moved, nil
		}
		return shard.Taken, err
	}
	stand, err := b.stand(ctx, k)
	if err == nil && stand == shard.Nothing {
		err = fmt.Errorf("what stood under the id of batch %s was removed: %w", k, broker.ErrNoBatch)
	}
	return stand, err
}

// submit stores a batch in this shard.
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
	return b.same(ctx, sub)
}

// same compares a batch that is submitted with the one that has its id. It returns [errMoved] if that is a fence.
func (b *Broker) same(ctx context.Context, sub toolyard.Batch) error {
	k := sub.Key()
	if done, err := b.submittedArchived(ctx, &sub); done || err != nil {
		return err
	}
	m, ok, err := b.submitted(ctx, k)
	if err != nil {
		return err
	}
	if !ok { // it is a fence, or was removed in the meantime
		_, err := b.standing(ctx, k)
		return cmp.Or(err, errMoved)
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
		if s.raw, ok, err = s.b.submitted(ctx, s.key); err == nil && !ok {
			err = fmt.Errorf("%w: %s", broker.ErrNoBatch, s.key)
		}
	}
	if err != nil {
		return st, err
	}
	err = s.b.applyRaw(ctx, &st, s.raw)
	if _, ok := errors.AsType[*toolyard.InputError](err); ok { // maybe a misspelt field, which is then missing
		if misspelt, ok := errors.AsType[*toolyard.InputError](s.CheckFields(ctx)); ok {
			return st, misspelt
		}
	}
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
	if !whole && !bytes.Contains(data, []byte(toolyard.Bulk)) && !bytes.Contains(data, []byte(`"parent"`)) {
		return o
	}
	var sub struct {
		Open    bool
		Calls   []json.RawMessage
		Options struct {
			Priority       toolyard.Priority
			MaxConcurrency int `json:"max_concurrency"`
			Parent         *toolyard.Parent
		}
	}
	if json.Unmarshal(data, &sub) != nil { // whoever reads it says what is wrong
		return o
	}
	return broker.Outline{Priority: sub.Options.Priority, Calls: len(sub.Calls), Bytes: len(data), Open: sub.Open,
		MaxConcurrency: max(0, sub.Options.MaxConcurrency), Child: sub.Options.Parent != nil}
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
	b, err := b.of(ctx, k)
	if err != nil {
		return false, err
	}
	_, ok, err := b.last(ctx, streamBatch, subjectBatch(k))
	return ok, err
}

// Origin reads where a batch came from, without its content.
func (b *Broker) Origin(ctx context.Context, k toolyard.BatchKey) (broker.Origin, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return broker.Origin{}, err
	}
	m, ok, err := b.submitted(ctx, k)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	return broker.Origin{Key: k, Seq: m.seq, TraceParent: traceparent.Valid(m.header.Get(headerTrace))}, err
}

// Planned reports whether a batch was planned, or turned away: whether its batch chain has begun.
func (b *Broker) Planned(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return false, err
	}
	_, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0))
	return ok, err
}

type submissions struct {
	b    *Broker
	pull *pull
	// unsure is when it could not be told in which shard a batch is.
	unsure time.Time
}

// While another shard is away, it cannot be told where batches are, and all other submissions wait behind one for which
// that is looked up.
const (
	longestLook = 2 * time.Second  // then the wake is given back
	unsureFor   = 10 * time.Second // and others are given back at once
)

// prefetchSubmissions is how many submissions a dispatcher requests at a time. If it requested them one by one, a flood
// would queue in the stream, where agents do not take turns. It handles each at once, so none grows old in the buffer.
const prefetchSubmissions = 64

// Submissions starts the delivery of submissions to one dispatcher, of all shards, also of those that are added.
func (b *Broker) Submissions() (broker.Submissions, error) {
	if !b.one {
		return b.submissionsOfAll()
	}
	return b.submissions()
}

func (b *Broker) submissions() (broker.Submissions, error) {
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
	for {
		if sub, err := s.take(ctx); !errors.Is(err, errGivenBack) {
			return sub, err
		}
	}
}

// errGivenBack says that a message was given back, and will be delivered again.
var errGivenBack = errors.New("the message was given back")

// take is Next for one message.
func (s *submissions) take(ctx context.Context) (*broker.Submission, error) {
	m, err := s.pull.one(prefetchSubmissions)
	if err != nil {
		return nil, err
	}
	for events.Fences(events.Type(m.Header.Get(headerType))) { // it asks nothing of a dispatcher
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
		var unknown error
		switch err, unknown = s.misplaced(ctx, p, meta.Timestamp, m.received); {
		case unknown != nil && MayPass(unknown) && ctx.Err() == nil: // it is delivered again
			_ = m.NakWithDelay(longestPause) // or later, when its wait is over
			return nil, errGivenBack
		case unknown != nil:
			return nil, errors.Join(unknown, m.NakWithDelay(longestPause))
		}
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
	if !p.wake {
		first, err := s.begins(ctx, m, meta.Sequence.Stream)
		if err != nil { // it is delivered again
			_ = m.NakWithDelay(longestPause) // or later, when its wait is over
			return nil, errGivenBack
		}
		if !first {
			return nil, s.leaveOut(ctx, m, p.key, meta.Sequence.Stream)
		}
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
		Key: p.key, Parked: parked, Shard: s.b.shard, Seq: meta.Sequence.Stream, Deliveries: meta.NumDelivered,
		Earlier: !p.wake && s.b.isEarlier(ctx, meta.Sequence.Stream), Wait: s.b.Settings().BatchAckWait,
		SubmissionMessage: &submission{
			key: p.key, parked: parked, seq: meta.Sequence.Stream, reply: m.Reply, b: s.b,
			raw: raw{subject: m.Subject, seq: meta.Sequence.Stream, time: meta.Timestamp, header: m.Header,
				data: m.Data},
		},
	}
	return sub.Received(m.received), nil
}

// misplaced is what is wrong if a message belongs to another shard: it was published without a client of ours, or too
// late after the system got more shards. Nobody looks for it here. A submission is one of a moment, and a wake is of a
// batch that is here.
func (s *submissions) misplaced(ctx context.Context, p place, stored, received time.Time) (why, err error) {
	v, slot := s.b.view(), shard.OfBatch(p.key)
	if p.wake {
		n, err := s.lookUp(ctx, p.key)
		if err != nil || n == s.b.shard {
			return nil, err
		}
	}
	if !p.wake {
		step := shard.Take(v.Map, v.read, slot, s.b.shard, stored, received)
		if step.Kind == shard.Renew {
			if v, err = s.b.renewed(ctx); err != nil {
				return nil, err
			}
			// The map was read after this was received, and so after its sender had read its own.
			step = shard.Take(v.Map, received.Add(1), slot, s.b.shard, stored, received)
		}
		if step.Kind == shard.Run {
			if v.Served() > 1 {
				s.b.system.where.note(p.key, s.b.shard)
			}
			return nil, nil
		}
	}
	n := v.Home(slot)
	return fmt.Errorf("this system has %d shards, and batch %s belongs to shard %d: publish it to %s, under an id that "+
		"was not used, and read %s", v.Shards(), p.key, n, subjectIn(n, subjectBatch(p.key)),
		subjectIn(n, subjectReply(p.key))), nil
}

// lookUp finds the shard of a batch, unless that takes long.
func (s *submissions) lookUp(ctx context.Context, k toolyard.BatchKey) (n int, err error) {
	if since := time.Since(s.unsure); since < unsureFor {
		return 0, fmt.Errorf("where batches are was not to be told %s ago: %w", since, context.DeadlineExceeded)
	}
	looking, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	of, err := s.b.whole().of(looking, k)
	if err != nil {
		s.unsure = time.Now()
		return 0, err
	}
	return of.shard, nil
}

// begins reports whether a message is the submission of its batch, and does not stand behind it.
func (s *submissions) begins(ctx context.Context, m *message, seq uint64) (bool, error) {
	if stored := (raw{header: m.Header}); stored.begins() {
		return true, nil
	}
	first, ok, err := s.b.after(ctx, streamBatch, canonical(m.Subject), 0)
	return !ok || first.seq >= seq, err
}

// leaveOut is done with a message behind a submission, and returns the error that says so. The batch goes on as it was
// handed in, and answers on the subject where the publisher reads.
func (s *submissions) leaveOut(ctx context.Context, m *message, k toolyard.BatchKey, seq uint64) error {
	why := &events.UnreadableError{Type: m.Header.Get(headerType), ID: m.Header.Get(headerID), Problem: fmt.Sprintf(
		"batch %s was submitted before; use a new id, and the header %s: 0", k, headerExpected)}
	buried := s.bury(ctx, m.Msg, k, seq, why)
	return errors.Join(why, buried, terminate(m.Msg, "its batch was submitted before"))
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

// Refuse answers that the batch is refused. The log of an open one says first why, for who appends before there is a
// reply; an earlier attempt may have said it otherwise.
func (s *submission) Refuse(ctx context.Context, why events.Refused) error {
	if !s.Outline(ctx, true).Open {
		return s.answerRefused(ctx, why)
	}
	_, err := s.b.Append(ctx, s.key, batch.ChainBatch, "", 0, 0, why)
	if errors.Is(err, broker.ErrConflict) {
		stored, unread := s.b.Newer(ctx, &batch.State{Key: s.key}, batch.ChainBatch, 0)
		if err = nil; unread == nil && len(stored) > 0 {
			if before, ok := stored[0].Body.(events.Refused); ok {
				why = before
			}
		}
	}
	if err != nil {
		return err
	}
	return s.answerRefused(ctx, why)
}

// answerRefused closes the input of an open batch, and tells its agent that it is refused: what is appended from then
// on would be accepted, and have no result.
func (s *submission) answerRefused(ctx context.Context, why events.Refused) error {
	if s.Outline(ctx, true).Open {
		if err := s.b.CloseInput(ctx, s.key); err != nil {
			return err
		}
	}
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
	return s.answerRefused(ctx, why)
}
