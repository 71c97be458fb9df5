package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// firstEnd waits until the first call of a batch has its end in the log, and returns when that was stored.
func (y *yard) firstEnd(k toolyard.BatchKey) (at time.Time) {
	y.Helper()
	y.Eventually("the call is answered", func() bool {
		records, err := y.b.Item(y.Context(), k, toolyard.DefaultPool, 0, 0)
		if err != nil {
			y.Fatal(err)
		}
		for _, r := range records {
			if _, ok := r.Body.(events.Finished); ok {
				at = r.Time
			}
		}
		return !at.IsZero()
	})
	return at
}

// TestTheWorkspaceOfABatchThatIsGivenUp: a batch is given up while a worker runs its write, for which another batch
// waits. That one begins when the worker must have heard that its call is answered: also where the dispatcher dies that
// gives the batch up, once the call is answered, and another one goes on.
func TestTheWorkspaceOfABatchThatIsGivenUp(t *testing.T) {
	for name, dies := range map[string]bool{"by one dispatcher": false, "by one that dies": true} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				var stopped atomic.Bool
				end, err := y.b.OnHolds("w", func(toolyard.BatchKey, int) bool { return !stopped.Load() }, nil,
					func(err error) { y.Error(err) })
				if err != nil {
					y.Fatal(err)
				}
				y.Cleanup(func() { _ = end() }) // the connection is closed with the test
				y.dispatcher("d1")
				k := y.submit("write")
				claim := y.claim(y.take(toolyard.WriteExclusive), "w")
				next := y.submit("write")
				y.Eventually("the next batch is planned", func() bool { return y.fold(next).Plan != nil })
				if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, claim,
					events.Decided{Decision: events.Reject, By: "nobody"}); err != nil { // nobody was asked
					y.Fatal(err)
				}
				answered, began := y.firstEnd(k), time.Time{}
				time.AfterFunc(y.b.Settings().CallAckWait, func() { stopped.Store(true) })
				if dies {
					y.Server.Cut("d1")
					y.dispatcher("d2")
				}
				y.Eventually("the next batch begins", func() bool {
					if len(y.fold(next).Started) > 0 {
						began = time.Now()
					}
					return !began.IsZero()
				})
				if wait := began.Sub(answered); wait < y.b.Settings().CallAckWait {
					y.Errorf("the next batch began %s after the worker's call was answered", wait)
				}
				if got := y.codes(k); got != "internal_error" {
					y.Errorf("its call ended as %s", got)
				}
			})
		})
	}
}

// TestTheWorkspaceOfABatchOfWhichNothingCanBeRead: a worker runs a call of a batch whose submission and plan are lost.
// Who waits for it is told, and with that others get its workspace, when the worker must have heard that the call is
// over. So it is where the call was not claimed, and where another dispatcher has ended the call and died.
func TestTheWorkspaceOfABatchOfWhichNothingCanBeRead(t *testing.T) {
	type ending func(ctx context.Context, d *Dispatcher, k *kept) error
	giveUp := func(ctx context.Context, d *Dispatcher, k *kept) error { return d.giveUp(ctx, k, errSubmissionLost) }
	inTheWay := func(ctx context.Context, d *Dispatcher, k *kept) error {
		d.endLost(ctx, map[toolyard.BatchKey]error{k.key: errSubmissionLost})
		return nil
	}
	twice := func(ctx context.Context, d *Dispatcher, k *kept) error {
		short, cancel := context.WithTimeout(ctx, d.b.Settings().CallAckWait/2)
		defer cancel()
		if giveUp(short, d, k) == nil {
			d.log.Error("it was ended at once")
		}
		return giveUp(ctx, d, k)
	}
	for name, c := range map[string]struct {
		tool  string
		class toolyard.Class
		end   ending
	}{
		"a write":                           {"write", toolyard.WriteExclusive, giveUp},
		"a read, which has no claim":        {"read", toolyard.ReadOnly, giveUp},
		"its ticket is in the way":          {"write", toolyard.WriteExclusive, inTheWay},
		"one that has begun to end it died": {"read", toolyard.ReadOnly, twice},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				owner := y.dispatcher("d1")
				k := y.submit(c.tool)
				call, seq := y.take(c.class), uint64(0)
				if c.class == toolyard.WriteExclusive {
					seq = y.claim(call, "w")
				}
				owner.End()

				d := New(&lostPlan{y.Broker("d2"), errSubmissionLost},
					Config{ID: "d2", Base: y.entries(), Log: y.Log()})
				of := &kept{key: k, log: d.log, sub: &broker.Submission{Key: k, SubmissionMessage: &lostMessage{}}}
				if err := c.end(y.Context(), d, of); err != nil {
					y.Fatal(err)
				}
				replied := batch.State{Key: k}
				if err := y.b.CatchUp(y.Context(), &replied, batch.ChainReply, 0); err != nil ||
					replied.Refused == nil {
					y.Fatalf("who waits is told %+v, %v", replied.Refused, err)
				}
				if err := y.finish(call, seq); err == nil {
					y.Error("what the worker did counts after others have the workspace")
				}
				if wait := time.Since(y.firstEnd(k)); wait < y.b.Settings().CallAckWait {
					y.Errorf("others get the workspace %s after the call was ended", wait)
				}
			})
		})
	}
}
