package dispatcher

import (
	"context"
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/lock"
)

// listed is what the list of batches says of one.
func (y *yard) listed(k toolyard.BatchKey) broker.Entry {
	y.Helper()
	page, _, err := y.b.Index().Page(y.Context(), broker.Filter{Agent: k.Agent})
	if err != nil {
		y.Fatal(err)
	}
	for _, e := range page {
		if e.Key() == k {
			return e
		}
	}
	return broker.Entry{}
}

// TestTheListOfABatchThatWasGivenUp: each call of the batch is answered once, those that were appended too, and the
// list says that the batch is over, with all of its calls. So it is if the submission is lost that nobody can read, of
// a batch that was parked and is woken, too, and of one whose tickets are in the way of others.
func TestTheListOfABatchThatWasGivenUp(t *testing.T) {
	type ending func(ctx context.Context, d *Dispatcher, k *kept, place uint64) error
	for name, lost := range map[string]ending{
		"its log contradicts itself": nil,
		"its submission is lost": func(ctx context.Context, d *Dispatcher, k *kept, place uint64) error {
			k.sub.Seq = place
			return d.giveUp(ctx, k, errSubmissionLost)
		},
		"its submission is lost, it is woken": func(ctx context.Context, d *Dispatcher, k *kept, place uint64) error {
			k.sub.Seq, k.sub.Parked = place+100, place+50
			return d.giveUp(ctx, k, errSubmissionLost)
		},
		"its tickets are in the way": func(ctx context.Context, d *Dispatcher, k *kept, _ uint64) error {
			d.endLost(ctx, map[toolyard.BatchKey]error{k.key: errSubmissionLost})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				owner := y.dispatcher("d1")
				k := y.submitBatch(toolyard.Batch{Open: true, Calls: []toolyard.Call{{Tool: "write"}}})
				if _, err := y.b.Input(y.Context(), k, 0, events.Appended{Calls: []toolyard.Call{{Tool: "write"},
					{Tool: "write"}}}); err != nil {
					y.Fatal(err)
				}
				y.Eventually("it is planned", func() bool { return len(y.fold(k).Calls) == 3 })
				y.Eventually("it is listed", func() bool { return y.listed(k).Status == toolyard.StatusOpen })
				was := y.listed(k)
				if lost != nil {
					d := New(y.Broker("d2"), Config{ID: "d2", Base: y.entries(), Log: y.Log(), Planner: planner()})
					owner.End()
					d.locks = lock.New(y.Context(), d.b, d.log, 0)
					of := &kept{key: k, log: d.log, sub: &broker.Submission{Key: k, SubmissionMessage: &lostMessage{}}}
					if err := lost(y.Context(), d, of, was.Place); err != nil {
						y.Fatalf("giving it up: %v", err)
					}
				} else { // nobody was asked
					if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, 0,
						events.Decided{Decision: events.Reject, By: "nobody"}); err != nil {
						y.Fatal(err)
					}
					y.Eventually("it is given up", func() bool {
						letters, err := y.b.DeadLetters(y.Context(), 1)
						return err == nil && len(letters) > 0
					})
				}
				answered := batch.State{Key: k}
				if err := y.b.CatchUp(y.Context(), &answered, batch.ChainReply, 0); err != nil ||
					!answered.Completed || answered.Replied != 3 {
					y.Errorf("%d of 3 calls are answered, completed: %t, %v", answered.Replied, answered.Completed, err)
				}
				got := y.listed(k)
				if got.Status != toolyard.StatusCompleted || got.Calls != 3 || got.Place != was.Place ||
					!got.Submitted.Equal(was.Submitted) {
					y.Errorf("the list has %+v; it had %+v", got, was)
				}
				live, _, err := y.b.Index().Page(y.Context(), broker.Filter{Live: true})
				if err != nil || len(live) > 0 {
					y.Errorf("under way are %+v, %v", live, err)
				}
			})
		})
	}
}

// TestNothingIsAppendedToABatchThatWasGivenUpUnplanned: an open batch is given up before it is planned, so that it is
// refused. What is appended then would be accepted, and have no result.
func TestNothingIsAppendedToABatchThatWasGivenUpUnplanned(t *testing.T) {
	inYard(t, func(y *yard) {
		k := y.submitBatch(toolyard.Batch{Open: true, Calls: []toolyard.Call{{Tool: "write"}}})
		subs, err := y.b.Submissions()
		if err != nil {
			y.Fatal(err)
		}
		defer subs.Stop()
		sub, err := subs.Next(y.Context())
		if err != nil {
			y.Fatal(err)
		}
		d := New(y.Broker("d"), Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()})
		d.locks = lock.New(y.Context(), d.b, d.log, 0)
		if err := d.giveUp(y.Context(), &kept{key: k, log: d.log, sub: sub}, errDeadly); err != nil {
			y.Fatal(err)
		}
		more := events.Appended{Calls: []toolyard.Call{{Tool: "write"}}}
		if _, err := y.b.Input(y.Context(), k, 0, more); !errors.Is(err, broker.ErrClosed) {
			y.Errorf("an append to the batch: %v", err)
		}
	})
}
