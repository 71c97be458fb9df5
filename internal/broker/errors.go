package broker

import (
	"errors"
	"fmt"
)

// The errors that programs act on. They come wrapped.
var (
	// ErrNoApproval is wrapped if there is no such request, or if it is over.
	ErrNoApproval = errors.New("no such approval is waited for")
	// ErrDecided is wrapped beside [ErrNoApproval] if a person has decided, and the batch's owner has not acted on it:
	// the batch may still have to be woken.
	ErrDecided = errors.New("it is decided")
	// ErrUnchecked says that no worker has checked an input that a person has changed, so the decision does not count.
	ErrUnchecked = errors.New("no worker has checked the changed input, so the call goes on waiting; try again, or " +
		"approve it as it is")
	// ErrConflict is wrapped by appends that failed because the chain has a newer event than the writer last saw.
	ErrConflict = errors.New("the chain has a newer event")
	// ErrFull is wrapped if there is no room: a stream is at one of its limits, or the server's disk is full. Nothing
	// was stored, unless it is a [*NoRoomError] that is unsure. Trying again later may help.
	ErrFull = errors.New("the stream is full")
	// ErrTooLong is wrapped if something is longer than a message of the NATS server may be. To store it again is of no
	// use.
	ErrTooLong = errors.New("it does not fit into a message")
	// ErrNoAnswer is wrapped if NATS did not answer in time. It is unknown whether anything was stored; repeating the
	// operation is safe.
	ErrNoAnswer = errors.New("NATS does not answer")
	// ErrNoSystem says that no dispatcher has ever run on the NATS system.
	ErrNoSystem = errors.New("no dispatcher has set this NATS system up yet; start one (dispatcher serve)")
	// ErrNoBatch is wrapped if there is no submission of that key, or no longer.
	ErrNoBatch = errors.New("no such batch")
	// ErrClosed is wrapped if calls are appended to a closed batch.
	ErrClosed = errors.New("the batch is closed")
	// ErrOtherContent is wrapped if a batch with the same id was submitted with other content.
	ErrOtherContent = errors.New("a batch of this id has other content")
	// ErrStopped is returned by methods that wait for messages if they were stopped or the connection was closed.
	ErrStopped = errors.New("stopped")
	// ErrDamaged is wrapped if the store has lost a part of a batch: its files are damaged.
	ErrDamaged = errors.New("the store is damaged")
	// ErrCompleted is wrapped if a batch already has its last result.
	ErrCompleted = errors.New("the batch is completed")
	// ErrNoCall is wrapped if a batch has no call of that index.
	ErrNoCall = errors.New("no such call")
	// ErrNoObject is wrapped if there is no object of that name, or no longer.
	ErrNoObject = errors.New("no such object")
)

// LostError says what the store has lost. It is an [ErrDamaged].
type LostError struct {
	Subject string
	// Problem says how that is known.
	Problem string
	// Submission says that the batch's submission is lost.
	Submission bool
	// End is the sequence of the last message that the server counts on the subject, if an append has met it. Who ends
	// what is lost appends behind it.
	End uint64
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%v: what was stored on %s is lost (%s)", ErrDamaged, e.Subject, e.Problem)
}

// Is makes it match [ErrDamaged].
func (e *LostError) Is(target error) bool { return target == ErrDamaged }

// IsSubmissionLost reports whether an error says that a submission is lost, so that it may not be delivered again.
func IsSubmissionLost(err error) bool {
	lost, ok := errors.AsType[*LostError](err)
	return ok && lost.Submission
}

// NoRoomError says that a batch was not accepted because the disk of the NATS server is full. It is an [ErrFull].
type NoRoomError struct {
	Reason string
	// Unsure says that the batch was sent before that was known.
	Unsure bool
}

func (e *NoRoomError) Error() string {
	if e.Unsure {
		return "there is no room: " + e.Reason +
			". The batch was not acknowledged; the same one again, under the same id, is safe"
	}
	return "there is no room: " + e.Reason + ". Nothing of the batch was stored: try again later"
}

// Is makes it an [ErrFull], and an [ErrNoAnswer] when it is unsure.
func (e *NoRoomError) Is(target error) bool {
	return target == ErrFull || target == ErrNoAnswer && e.Unsure
}
