package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// unwoken is a broker of calls that wait for people, which cannot be read, or whose batches cannot be woken.
type unwoken struct {
	answers
	looks, wakes *int
	unread, lost *error
}

func (b unwoken) Asked(context.Context, toolyard.BatchKey, int) (events.Waiting, broker.ItemEnd, error) {
	*b.looks++
	return events.Waiting{}, broker.ItemEnd{}, *b.unread
}

func (b unwoken) WakeIfParked(context.Context, toolyard.BatchKey) (bool, error) {
	if *b.lost == nil {
		*b.wakes++
	}
	return true, *b.lost
}

// TestAWaitingCallThatCannotBeLookedAfter: a call that waits for a person, and cannot be read or woken, is on the list
// until its batch is kept no longer. It is looked at now and then, which the log does not say each time, and it is
// woken soon when that can be done again.
func TestAWaitingCallThatCannotBeLookedAfter(t *testing.T) {
	damaged := errors.New("the server counts 1 message there, and 0 can be read")
	for _, c := range []struct {
		name         string
		unread, lost error
	}{
		{"not read", damaged, nil},
		{"not woken", nil, damaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			looks, wakes := 0, 0
			b := unwoken{looks: &looks, wakes: &wakes, unread: &c.unread, lost: &c.lost}
			d := New(b, Config{ID: "d", Planner: planner(), Log: slog.New(slog.NewTextHandler(&log, nil))})
			now := time.Now()
			w := approvalWatch{d: d, calls: map[string]*waitingCall{
				"x": {Approval: broker.Approval{ID: "x", Agent: "a", Batch: "b", Expires: now}}}}
			tick := func(span time.Duration) {
				for end := now.Add(span); now.Before(end); now = now.Add(expireEvery) {
					w.wakeDue(t.Context(), now)
				}
			}
			tick(2 * wakeAgain)
			if lines := bytes.Count(log.Bytes(), []byte("\n")); looks < 2 || lines == 0 {
				t.Errorf("it was looked at %d times soon, and the log has %d lines", looks, lines)
			}
			const day = 24 * time.Hour
			tick(day)
			if most := int(day/missedEvery) + 10; looks > most {
				t.Errorf("it was looked at %d times in a day, want %d at most", looks, most)
			}
			if lines := bytes.Count(log.Bytes(), []byte("\n")); lines > 30 {
				t.Errorf("the log has %d lines about it", lines)
			}
			c.unread, c.lost = nil, nil
			if tick(missedEvery + expireEvery); wakes == 0 {
				t.Error("it is not woken although it can be")
			}
		})
	}
}

// manyWaiting is a broker of calls that wait for people, all of which have expired. When the first is looked at, some
// others are taken off the list, and that is heard before the look is over.
type manyWaiting struct {
	answers
	calls   int
	shards  int
	looks   *atomic.Int32
	off     chan broker.ApprovalChange
	removed int
}

func (b manyWaiting) WatchApprovals(ctx context.Context, see func(broker.ApprovalChange)) error {
	for i := range b.calls {
		id := fmt.Sprint(i)
		see(broker.ApprovalChange{ID: id, Shard: i % max(b.shards, 1), Approval: &broker.Approval{ID: id, Agent: "a",
			Batch: toolyard.BatchID(id)}})
	}
	for {
		select {
		case c := <-b.off:
			see(c)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b manyWaiting) Asked(ctx context.Context, k toolyard.BatchKey, _ int) (e events.Waiting, at broker.ItemEnd,
	err error) {
	if b.looks.Add(1) == 1 {
		for i, off := 0, 0; off < b.removed; i++ {
			if id := fmt.Sprint(i); id != string(k.ID) {
				b.off <- broker.ApprovalChange{ID: id}
				off++
			}
		}
	}
	return e, at, ctx.Err()
}

func (manyWaiting) WakeIfParked(context.Context, toolyard.BatchKey) (bool, error) { return true, nil }

// TestManyCallsExpireAtOnce: dispatchers do not look at all of them before they hear which of them are off the list by
// then, and all others are woken in the same moment.
func TestManyCallsExpireAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := manyWaiting{calls: 20 * missedAtOnce, looks: new(atomic.Int32), off: make(chan broker.ApprovalChange),
			removed: missedAtOnce / 2}
		d := New(b, Config{ID: "d", Planner: planner(), Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.watchApprovals(ctx) }()
		time.Sleep(expireEvery + expireEvery/2)
		synctest.Wait()
		if looks, least := int(b.looks.Load()), b.calls-b.removed; looks < least || looks > least+b.removed/2 {
			t.Errorf("%d calls were looked at; %d are on the list", looks, least)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// awayAtOdd is a broker of calls in two shards, one of which is away.
type awayAtOdd struct {
	manyWaiting
	woken *atomic.Int32
}

func (awayAtOdd) Asked(ctx context.Context, k toolyard.BatchKey, _ int) (e events.Waiting, at broker.ItemEnd,
	err error) {
	if n, _ := strconv.Atoi(string(k.ID)); n%2 == 1 {
		<-ctx.Done()
		return e, at, ctx.Err()
	}
	return e, at, nil
}

func (b awayAtOdd) WakeIfParked(context.Context, toolyard.BatchKey) (bool, error) {
	b.woken.Add(1)
	return true, nil
}

// TestCallsThatExpireWhileAnotherShardIsAway: they are woken soon, however many there are in the shard that is away.
func TestCallsThatExpireWhileAnotherShardIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := awayAtOdd{manyWaiting{calls: 4 * missedAtOnce, shards: 2}, new(atomic.Int32)}
		d := New(b, Config{ID: "d", Planner: planner(), Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.watchApprovals(ctx) }()
		time.Sleep(30 * time.Second)
		if got := int(b.woken.Load()); got < b.calls/2 {
			t.Errorf("%d of %d calls of the shard that is there are woken", got, b.calls/2)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
