package broker

import (
	"context"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Submission is one delivery of a submission, or of a wake for a parked batch, to this dispatcher. It stays
// unacknowledged, and is kept alive with heartbeats, until the batch is complete or parks.
type Submission struct {
	Key toolyard.BatchKey
	Seq uint64
	// Shard is which set of streams it is in.
	Shard int
	// Deliveries counts all deliveries of the submission to any dispatcher, including this one. From the second on the
	// batch may be under way.
	Deliveries uint64
	// Earlier says that the submission may have been stored before this process was connected to the server as it is
	// now: the server may have been started again since, may have forgotten deliveries, and reads what belongs to the
	// batch from its disk.
	Earlier bool
	// Parked is the sequence of the event that parked the batch, if this is a wake for it; 0 for a submission.
	Parked uint64
	// Wait is how long the dispatcher may be silent before another gets the submission.
	Wait time.Duration
	// SubmissionMessage reads and answers it.
	SubmissionMessage

	mu   sync.Mutex
	kept time.Time // when it was received, or the last valid heartbeat was sent
	late bool      // a heartbeat was too late once
}

// SubmissionMessage is the message below a [Submission].
type SubmissionMessage interface {
	// Read returns the batch as it was submitted. The error is an [*events.UnreadableError] or a [*toolyard.InputError]
	// if the submission cannot be accepted, an [*events.NewerError] if another dispatcher can accept it, a [*LostError]
	// if the store has lost it, and wraps [ErrNoBatch] if a wake is for a batch that no longer exists.
	Read(ctx context.Context) (batch.State, error)
	// Outline returns what admission must know of a batch before it is read: all of it if whole is set, else its
	// priority. Of one that cannot be read, or was released, nothing is known.
	Outline(ctx context.Context, whole bool) Outline
	// CheckFields returns a [*toolyard.InputError] for a field that does not exist, has a name in the wrong case, or is
	// repeated. It is only for a submission without a plan, because an accepted submission is not refused later.
	CheckFields(ctx context.Context) error
	// Release drops the content of the submission from memory; Read gets it from the stream again. So a waiting
	// submission needs little memory, whatever its size.
	Release()
	// Heartbeat tells the stream that the batch is in work. If answered is set, it waits for the answer; an error then
	// means that another dispatcher may have the batch by now. If another heartbeat is lost, the submission is
	// redelivered, which does no harm.
	Heartbeat(ctx context.Context, answered bool) (counts bool, err error)
	// Return gives the submission back, to be redelivered after a pause.
	Return(pause time.Duration) error
	// Done acknowledges the submission: the batch is complete, or parks.
	Done(ctx context.Context) error
	// DoneSoon is Done without waiting for the answer. If the acknowledgement is lost, the message is delivered again.
	DoneSoon() error
	// BuryBatch records that the batch was given up.
	BuryBatch(ctx context.Context, why string) error
	// Refuse answers a submission that can never be accepted, on its reply subject, and acknowledges it.
	Refuse(ctx context.Context, why events.Refused) error
	// TurnAway refuses a submission that could be accepted at another time. Another dispatcher may accept it at the
	// same moment, so the refusal is first appended to the log in place of the plan: [ErrConflict] says that the batch
	// was planned, or refused, by another.
	TurnAway(ctx context.Context, why events.Refused) error
}

// Outline is what is known of a submission that was not read.
type Outline struct {
	Priority toolyard.Priority
	// Calls are those that came with it, and Bytes what it is long. More follow if it is open.
	Calls, Bytes int
	Open         bool
	// MaxConcurrency is what it asks for; 0 if it does not.
	MaxConcurrency int
	// Child says that it names a running call for which it was made.
	Child bool
}

// Received records when the submission came to this process.
func (s *Submission) Received(at time.Time) *Submission {
	s.kept = at
	return s
}

// Alive tells the stream that the batch is in work, and waits for the answer. An error means that another dispatcher
// may have it by now. An answer proves nothing once the submission has lapsed, since the stream answers any sender.
func (s *Submission) Alive(ctx context.Context) error { return s.beat(ctx, true) }

// Hold tells the stream that the batch is in work, and does not wait for an answer.
func (s *Submission) Hold() error { return s.beat(context.Background(), false) }

func (s *Submission) beat(ctx context.Context, answered bool) error {
	sent := time.Now()
	counts, err := s.Heartbeat(ctx, answered)
	if counts {
		s.Kept(sent)
	}
	return err
}

// Kept records when a heartbeat was sent. A heartbeat proves nothing if it was sent after the submission may have been
// redelivered.
func (s *Submission) Kept(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lapsed(); !s.late && sent.After(s.kept) {
		s.kept = sent
	}
}

// Follows reports whether this delivery directly follows another one, so that no other dispatcher got the submission in
// between. If the other one had lapsed, this is unknown: this delivery may have waited for long while its receiver was
// paused, and another dispatcher may have the next one.
func (s *Submission) Follows(other *Submission) bool {
	return s.Deliveries == other.Deliveries+1 && !other.Lapsed()
}

// Suspect records that the submission was delivered to another dispatcher.
func (s *Submission) Suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = true
}

// Lapsed reports whether the submission may have been delivered to another dispatcher since it came to this one. Once
// this is true, it stays true.
func (s *Submission) Lapsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapsed()
	return s.late
}

func (s *Submission) lapsed() { s.late = s.late || time.Since(s.kept) > Lease(s.Wait) }

// Origin is where a batch came from: the sequence of its submission, and the trace context that it came with, or "".
type Origin struct {
	Key         toolyard.BatchKey
	Seq         uint64
	TraceParent string
}
