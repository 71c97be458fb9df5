package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// park submits a batch of one call that a worker has asked a person about, and waits until it is parked.
func (y *yard) park() toolyard.BatchKey {
	y.Helper()
	k := y.submit("write")
	y.ask(k, y.take(toolyard.WriteExclusive))
	y.Eventually("the batch is parked", func() bool { return y.fold(k).Parked })
	return k
}

// ask has a worker ask a person about a call.
func (y *yard) ask(k toolyard.BatchKey, d *broker.Delivery) {
	y.Helper()
	if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
		events.Waiting{Worker: "w", Input: json.RawMessage("{}"), InputSHA256: "11"}); err != nil {
		y.Fatal(err)
	}
	must.OK(y.T, d.Done())
}

// TestADecisionWhoseWakeFailed: a decision is stored, and there is no room for the wake. Who decides again is told that
// it is decided, and wakes the batch; so do the dispatchers, soon.
func TestADecisionWhoseWakeFailed(t *testing.T) {
	for name, again := range map[string]bool{"decided again": true, "left alone": false} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.dispatcher("d")
				k := y.park()
				y.Server.Fill("TY_BATCH", true)
				decide := func() error {
					return approval.Decide(context.WithoutCancel(y.Context()), y.b, k, 0,
						events.Decided{Decision: events.Reject, By: "somebody"})
				}
				if err := decide(); !errors.Is(err, broker.ErrFull) {
					y.Fatalf("the decision whose wake had no room: %v", err)
				}
				if err := decide(); !errors.Is(err, broker.ErrFull) {
					y.Errorf("the second decision whose wake had no room: %v", err)
				}
				if !again {
					time.Sleep(missedEvery + 2*expireEvery) // a sweep finds it, and no room
				}
				y.Server.Fill("TY_BATCH", false)
				room := time.Now()
				within := time.Second
				if !again {
					within = wakeAgain + 2*expireEvery
				} else if err := decide(); !errors.Is(err, broker.ErrNoApproval) {
					y.Errorf("the third decision: %v", err)
				}
				if got := y.codes(k); got != "approval_rejected" {
					y.Errorf("the result is %s", got)
				}
				if took := time.Since(room); took > within {
					y.Errorf("it went on %s after there was room, not within %s", took, within)
				}
			})
		})
	}
}

// TestADecisionThatIsRepeated: it wakes its batch once in a while, and not each time.
func TestADecisionThatIsRepeated(t *testing.T) {
	inYard(t, func(y *yard) {
		d := y.dispatcher("d")
		k := y.park()
		d.End()
		js, err := jetstream.New(y.Conn("test"))
		must.OK(y.T, err)
		stream, err := js.Stream(y.Context(), "TY_BATCH")
		must.OK(y.T, err)
		began := time.Now()
		for n := range 200 {
			err := approval.Decide(y.Context(), y.b, k, 0, events.Decided{Decision: events.Reject, By: "somebody"})
			if n == 0 && err != nil || n > 0 && !errors.Is(err, broker.ErrNoApproval) {
				y.Fatalf("decision %d: %v", n, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		info, err := stream.Info(y.Context(), jetstream.WithSubjectFilter("ty.wake.>"))
		must.OK(y.T, err)
		stored := info.State.Subjects["ty.wake."+string(k.Agent)+"."+string(k.ID)]
		if most := uint64(time.Since(began)/wakeAgain + 2); stored == 0 || stored > most {
			y.Errorf("%d wakes after %s; want 1 to %d", stored, time.Since(began), most)
		}
		y.dispatcher("e")
		if got := y.codes(k); got != "approval_rejected" {
			y.Errorf("the result is %s", got)
		}
	})
}

// TestABatchThatWasWokenDuringABackup: the backup has the event by which a dispatcher took a parked batch, and not the
// wake by which it had it. Once it is restored somebody takes it.
func TestABatchThatWasWokenDuringABackup(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("before")
		k := y.park()
		err := approval.Decide(y.Context(), y.b, k, 0, events.Decided{Decision: events.Approve, By: "ann"})
		must.OK(y.T, err)
		y.Eventually("it is adopted", func() bool { s := y.fold(k); return s.Takeovers == 1 && !s.Parked })
		y.Server.Cut("before") // for good
		nc := y.Conn("restore")
		js, err := jetstream.New(nc)
		must.OK(y.T, err)
		stream, err := js.Stream(y.Context(), "TY_BATCH")
		if err == nil {
			err = stream.DeleteMsg(y.Context(), y.fold(k).Handle)
		}
		must.OK(y.T, err)
		must.OK(y.T, y.b.WakeUnkept(y.Context()))
		y.dispatcher("after")
		y.work()
		if got := y.codes(k); got != "ok" {
			y.Errorf("the result is %s", got)
		}
	})
}

// TestASessionThatWasInterruptedDuringABackup: the backup has the interrupt, and not the last submissions that it
// names. Their sequences are those of the next ones, which were not interrupted.
func TestASessionThatWasInterruptedDuringABackup(t *testing.T) {
	inYard(t, func(y *yard) {
		_, err := y.b.ChangeSession(y.Context(), "a", toolyard.DefaultSession, func(s *broker.Session) {
			s.Interrupt(broker.Interrupt{Through: 1_000})
		})
		if err == nil {
			err = y.b.Guard(y.Context(), time.Now()) // it has a key beside those of sessions
		}
		if err == nil {
			err = y.b.LowerInterrupts(y.Context())
		}
		must.OK(y.T, err)
		y.dispatcher("d")
		y.work()
		if got := y.codes(y.of("a", "write")); got != "ok" {
			y.Errorf("the result is %s", got)
		}
	})
}

// TestABatchThatWasSubmittedDuringABackup: the backup has its entry in the index, and not its submission. It does not
// hide the next batch, which has its place.
func TestABatchThatWasSubmittedDuringABackup(t *testing.T) {
	inYard(t, func(y *yard) {
		kept := y.of("a", "write")
		y.dispatcher("d")
		y.work()
		y.codes(kept)
		for _, place := range []uint64{2, 3, 20_000} {
			id := toolyard.BatchID(fmt.Sprint("lost", place))
			err := y.b.Index().Add(y.Context(), broker.Entry{Agent: "a", ID: id, Session: "s", Workspace: "w",
				Status: toolyard.StatusCompleted, Place: place, Submitted: time.Now(), Revision: 1_000})
			must.OK(y.T, err)
		}
		must.OK(y.T, y.b.ForgetUnsubmitted(y.Context()))
		want := []toolyard.BatchKey{y.of("a", "write"), y.of("a", "write")}
		for _, k := range want {
			y.codes(k)
		}
		slices.Reverse(want)
		want = append(want, kept)
		y.Eventually("the batches that are there are listed, and no others", func() bool {
			page, _, err := y.b.Index().Page(y.Context(), broker.Filter{})
			return err == nil && slices.EqualFunc(page, want, func(e broker.Entry, k toolyard.BatchKey) bool {
				return e.Key() == k && !e.Live()
			})
		})
	})
}

// TestAnApprovalThatIsTooLong: a call that asks more than the list of approvals can store ends as soon as a batch whose
// log cannot be followed, and does not keep its workspace until the time of its batch is over.
func TestAnApprovalThatIsTooLong(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}},
			Options: toolyard.Options{TimeoutMS: time.Hour.Milliseconds()}})
		d := y.take(toolyard.WriteExclusive)
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
			events.Waiting{Worker: "w", Input: json.RawMessage("{}"), InputSHA256: "11",
				Diff: strings.Repeat("x", 3<<20)}); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, d.Done())
		asked := time.Now()
		for !y.fold(k).Completed && time.Since(asked) < 2*time.Hour {
			time.Sleep(10 * time.Second)
		}
		if got, took := y.codes(k), time.Since(asked); got != "internal_error" || took > 3*time.Minute {
			y.Errorf("it ends as %s after %s", got, took)
		}
		if n, _ := y.queue(); n != 0 {
			y.Errorf("%d tickets are left", n)
		}
	})
}
