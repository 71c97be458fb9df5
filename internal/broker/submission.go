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
// unacknowledged, and kept alive, until the batch is complete or parks.
type Submission struct {
	Key toolyard.BatchKey
	Seq uint64
	// Deliveries counts how often the submission was delivered, to whomever, this time included. From the second on the
	// batch may be under way.
	Deliveries uint64
	// Parked is the sequence of the event that parked the batch, when this is a wake for it; 0 when it is a submission.
	Parked uint64
	// Wait is how long the dispatcher may be silent before another gets the submission.
	Wait time.Duration
	// SubmissionMessage is how it is read and answered.
	SubmissionMessage

	mu   sync.Mutex
	kept time.Time // when it was received, or the last heartbeat was sent that counts
	late bool      // that it took too long once
}

// SubmissionMessage is the message under a [Submission].
type SubmissionMessage interface {
	// Read returns the batch as it was submitted. It is an [*events.UnreadableError] or a [*toolyard.InputError] when
	// the submission cannot be accepted, an [*events.NewerError] when another dispatcher can, a [*LostError] when the
	// store has lost it, and wraps [ErrNoBatch] when a wake is for one that is no more.
	Read(ctx context.Context) (batch.State, error)
	// CheckFields says, as a [*toolyard.InputError], which field is none of a batch, has a name in the wrong case, or
	// stands there twice. What was accepted once is not refused later: it is for a submission that has no plan yet.
	CheckFields(ctx context.Context) error
	// Release lets go of what the submission says, which Read gets from the stream again: a submission that waits costs
	// little memory, however large it is.
	Release()
	// Heartbeat tells the stream that the batch is in work. With answered set it waits for the answer; an error means
	// then that the batch may be another's by now. What is lost otherwise is delivered again, which does no harm.
	Heartbeat(ctx context.Context, answered bool) (counts bool, err error)
	// Return gives the submission back, to be delivered again after a pause.
	Return(pause time.Duration) error
	// Done acknowledges the submission: the batch is complete, or parks.
	Done(ctx context.Context) error
	// BuryBatch records that the batch was given up.
	BuryBatch(ctx context.Context, why string) error
	// Refuse answers a submission that can never be accepted, on its reply subject, and is done with it.
	Refuse(ctx context.Context, why events.Refused) error
	// TurnAway refuses a submission that could be accepted at another time. Another dispatcher may think otherwise at
	// the same moment, so the refusal first takes the place of the plan in the log: [ErrConflict] says that the batch
	// was planned there, or refused.
	TurnAway(ctx context.Context, why events.Refused) error
}

// Received notes when the submission came to this process.
func (s *Submission) Received(at time.Time) *Submission {
	s.kept = at
	return s
}

// Alive tells the stream that the batch is in work, and waits for the answer. An error means that it may be another's
// by now; an answer proves nothing once the submission has lapsed, since the stream answers whoever says so.
func (s *Submission) Alive(ctx context.Context) error { return s.beat(ctx, true) }

// Hold tells the stream that the batch is in work, and waits for no answer.
func (s *Submission) Hold() error { return s.beat(context.Background(), false) }

func (s *Submission) beat(ctx context.Context, answered bool) error {
	sent := time.Now()
	counts, err := s.Heartbeat(ctx, answered)
	if counts {
		s.Kept(sent)
	}
	return err
}

// Kept notes when a heartbeat was sent. One that was sent after the submission may have been handed to another proves
// nothing.
func (s *Submission) Kept(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lapsed(); !s.late && sent.After(s.kept) {
		s.kept = sent
	}
}

// Follows reports whether this delivery came right behind another one: nobody else was handed the submission in
// between. Of one that had lapsed it is not known: this delivery may have waited for long while its receiver was
// paused, and another dispatcher may have been handed the next.
func (s *Submission) Follows(other *Submission) bool {
	return s.Deliveries == other.Deliveries+1 && !other.Lapsed()
}

// Suspect notes that the submission was handed to another dispatcher.
func (s *Submission) Suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = true
}

// Lapsed reports whether the submission may have been handed to another dispatcher since it came to this one. Once it
// may have been, nothing changes that.
func (s *Submission) Lapsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapsed()
	return s.late
}

func (s *Submission) lapsed() { s.late = s.late || time.Since(s.kept) > Lease(s.Wait) }
