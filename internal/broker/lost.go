package broker

import (
	"errors"
	"fmt"
)

// ErrDamaged is wrapped when the store has lost something of a batch: its files are damaged.
var ErrDamaged = errors.New("the store is damaged")

// LostError says what the store has lost. It is an [ErrDamaged].
type LostError struct {
	Subject string
	// Problem says how that is known.
	Problem string
	// Submission says that it is the batch's submission.
	Submission bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%v: what was stored on %s is lost (%s)", ErrDamaged, e.Subject, e.Problem)
}

// Is makes it an [ErrDamaged].
func (e *LostError) Is(target error) bool { return target == ErrDamaged }

// IsSubmissionLost reports whether an error is that a submission is lost. Then it may not be delivered again.
func IsSubmissionLost(err error) bool {
	lost, ok := errors.AsType[*LostError](err)
	return ok && lost.Submission
}

// Quiet says when who waits for a batch asks [Broker.Forsaken]: after a few looks that found nothing, and then now and
// then.
type Quiet struct{ looks int }

const (
	askAfter = 5
	askEvery = 60
)

// Long takes in a look, and reports whether it is time to ask.
func (q *Quiet) Long(news bool) bool {
	if q.looks++; news {
		q.looks = 0
	}
	return q.looks%askEvery == askAfter
}
