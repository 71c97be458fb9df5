package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
)

// Standing is where a batch stands, and since when.
type Standing struct {
	toolyard.BatchView
	// Calls is how many calls the batch has so far, with or without results.
	Calls int
	// Submitted and Changed are when the first and the last of its events were stored.
	Submitted, Changed time.Time
	// Asked says that a call waits for a person.
	Asked bool
	// Scripts are the calls of [toolyard.RunCodeTool] that have begun and not ended, as the parents of the calls that
	// their scripts make. N is not set. Those calls are in batches of their own.
	Scripts []toolyard.Parent
	// Canceled says that a cancel of the whole batch was stored before its calls had ended. It stays, also when a call
	// ended well after it.
	Canceled bool
	// Refused says why the pool could not accept the batch; nil if it has.
	Refused *RefusedError
}

// Standing returns where the batch stands now, in one reading of its log. It fails with [ErrNoBatch] and [ErrDamaged].
func (b *Batch) Standing(ctx context.Context) (Standing, error) {
	s := batch.State{Key: b.key}
	out := Standing{}
	err := b.follow(ctx, false, func(l logged) error {
		if out.Submitted.IsZero() {
			out.Submitted = l.record.Time
		}
		if l.record.Time.After(out.Changed) { // events of two streams are merged
			out.Changed = l.record.Time
		}
		return s.Apply(l.record)
	})
	if err != nil {
		return Standing{}, err
	}
	if s.Submission == nil {
		return Standing{}, errors.Join(ErrDamaged, errors.New("its submission is not there"))
	}
	s.Key.Agent = s.Submission.Agent // where it is the token's, this says whose
	out.BatchView, out.Canceled = s.View(), s.CanceledInTime()
	out.Calls = len(s.Submission.Calls) + len(s.Input)
	out.Asked = slices.ContainsFunc(s.Calls, func(c batch.Call) bool { return c.Status == batch.Waiting })
	if s.Plan != nil {
		for i, c := range s.Calls {
			if s.Plan.Calls[i].Tool == toolyard.RunCodeTool && c.Attempt > 0 && c.Result == nil {
				out.Scripts = append(out.Scripts, toolyard.Parent{Batch: s.Key.ID, Call: i, Attempt: c.Attempt})
			}
		}
	}
	if r := s.Refused; r != nil {
		out.Refused = refused(*r)
	}
	return out, nil
}
