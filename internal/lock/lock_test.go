package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// smallStore is a broker on a store whose bucket of tickets holds 3,400 keys.
func smallStore(t *testing.T, s *natsd.Server) *natsbroker.Broker {
	t.Helper()
	return testenv.Open(t, testenv.Conn(t, s), broker.Settings{MaxStoreBytes: 64 << 20}, "/test")
}

// startLocks makes locks that watch and delete until the test is over.
func startLocks(t *testing.T, b *natsbroker.Broker, idle time.Duration) *Locks {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	d := New(ctx, b, slog.New(slog.DiscardHandler), idle)
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Watch(ctx) }) // it ends with ctx
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			d.Sweep(ctx)
			d.DeleteUnused(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		d.Wait()
	})
	return d
}

func batchOf(n int) ticket.Holder {
	return ticket.Holder{Agent: "a", Batch: toolyard.BatchID(fmt.Sprint(n))}
}

// joined makes the change by which another dispatcher's batch stands in line alone.
func joined(h ticket.Holder) func(ticket.Queue) (ticket.Queue, error) {
	return func(q ticket.Queue) (ticket.Queue, error) {
		next, _, err := q.Join(h, ticket.Exclusive)
		return next, err
	}
}

type answer struct {
	t   ticket.Ticket
	err error
}

// takes stands in line until the ticket is granted, also where there is no room at first, and returns its number.
func takes(t *testing.T, d *Locks, w toolyard.Workspace, h ticket.Holder) uint64 {
	t.Helper()
	for t.Context().Err() == nil {
		granted := make(chan answer, 1)
		d.Acquire(w, h, ticket.Exclusive, func(g Grant) { granted <- answer{g.Ticket, g.Err} })
		select {
		case a := <-granted:
			if a.err == nil {
				return a.t.N
			}
			if !errors.Is(a.err, broker.ErrFull) {
				t.Errorf("workspace %s: %v", w, a.err)
				return 0
			}
			time.Sleep(50 * time.Millisecond) // a batch asks again after a while
		case <-t.Context().Done():
		}
	}
	return 0
}

func (d *Locks) known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queues)
}

func keysOf(t *testing.T, s *natsd.Server) uint64 {
	t.Helper()
	js := testenv.JetStream(t, testenv.Conn(t, s))
	stream := testenv.Stream(t, js, "KV_ty_ticket")
	return stream.CachedInfo().State.Msgs
}

// TestTenThousandWorkspaces pass through a bucket that holds a third of them, by two dispatchers, and leave nothing
// behind: no key, and nothing in a dispatcher's memory. With the race detector, which takes ten times as long, they
// are fewer.
func TestTenThousandWorkspaces(t *testing.T) {
	s := testenv.Server(t)
	const idle = 50 * time.Millisecond
	both := []*Locks{startLocks(t, smallStore(t, s), idle), startLocks(t, smallStore(t, s), idle)}
	const atOnce = 50
	var wg sync.WaitGroup
	for n := range atOnce {
		wg.Go(func() {
			d, last := both[n%len(both)], uint64(0)
			for i := n; i < manyWorkspaces; i += atOnce {
				w, h := toolyard.Workspace(fmt.Sprintf("workspace-%d", i)), batchOf(i)
				own := takes(t, d, w, h)
				if own <= last {
					t.Errorf("workspace %s: number %d, after %d", w, own, last)
				}
				last = own
				if err := d.Release(t.Context(), w, h); err != nil {
					t.Errorf("leave workspace %s: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	testenv.Until(t, "no key is left", func() bool { return keysOf(t, s) == 0 })
	for _, d := range both {
		testenv.Until(t, "the dispatchers know of no workspace", func() bool { return d.known() == 0 })
	}
}

// fillBucket fills the bucket of tickets to the last byte, with queues in which nobody stands. They are long, to be
// few.
func fillBucket(t *testing.T, s *natsd.Server) {
	t.Helper()
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for n, size := 0, 8<<10; size > 0; n++ {
		value := `{"last":7,"queue":[]}` + strings.Repeat(" ", size)
		if _, err := js.Publish(t.Context(), fmt.Sprintf("$KV.ty_ticket.filler-%d", n), []byte(value)); err != nil {
			size /= 2
		}
	}
}

// TestAFullBucketHeals: keys fill the bucket to the last byte, that nobody uses any more. A dispatcher that comes
// makes room.
func TestAFullBucketHeals(t *testing.T) {
	s := testenv.Server(t)
	b := smallStore(t, s)
	fillBucket(t, s)
	_, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "new"}, joined(batchOf(0)))
	if !errors.Is(err, broker.ErrFull) {
		t.Fatalf("before there is a dispatcher: %v, want ErrFull", err)
	}
	d := startLocks(t, b, 50*time.Millisecond)
	if own := takes(t, d, "new", batchOf(0)); own == 0 {
		t.Error("nobody gets in")
	}
	testenv.Until(t, "no key is left that nobody uses", func() bool { return keysOf(t, s) <= 1 && d.known() <= 1 })
}

// TestALeaverNeedsNoRoom: changes that are stored as one do not fit into a full bucket; those of them that leave are
// stored.
func TestALeaverNeedsNoRoom(t *testing.T) {
	s := testenv.Server(t)
	b := smallStore(t, s)
	d := New(t.Context(), b, slog.New(slog.DiscardHandler), time.Hour)
	defer d.Wait()
	takes(t, d, "w", batchOf(0))
	fillBucket(t, s)
	var joined, left error
	d.mu.Lock() // both are in the first change that is stored
	l := d.queueOf("w")
	own := &waiter{tell: func(Grant) {}}
	long := batchOf(1)
	long.Batch = toolyard.BatchID(fmt.Sprintf("%0100d", 1))
	l.pending = []change{
		{holder: batchOf(0), done: func(err error) { left = err }},
		{holder: long, mode: ticket.Shared, waiter: own, done: func(err error) { joined = err }},
	}
	l.busy = true
	d.mu.Unlock()
	d.flush("w", l)
	if left != nil {
		t.Errorf("leaving: %v", left)
	}
	if !errors.Is(joined, broker.ErrFull) {
		t.Errorf("joining: %v, want ErrFull", joined)
	}
	if q, err := b.Tickets(t.Context(), "w"); err != nil || len(q.Tickets) != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// TestAnOlderQueueGrantsNothing: a batch has held the workspace, left it, and stands in line for it again. What a
// watch that is behind tells of the time before counts no more.
func TestAnOlderQueueGrantsNothing(t *testing.T) {
	s := testenv.Server(t)
	b := smallStore(t, s)
	d := New(t.Context(), b, slog.New(slog.DiscardHandler), time.Hour)
	defer d.Wait()
	const w = "w"
	takes(t, d, w, batchOf(0))
	older, err := b.Tickets(t.Context(), w)
	must.OK(t, err)
	must.OK(t, d.Release(t.Context(), w, batchOf(0)))
	d.discard(d.queueOf(w).stored) // nobody was there for long
	if _, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: w}, joined(batchOf(1))); err != nil {
		t.Fatal(err)
	}
	granted := make(chan answer, 1)
	own := &waiter{tell: func(g Grant) { granted <- answer{g.Ticket, g.Err} }}
	d.mu.Lock()
	d.queueOf(w).waiting[batchOf(0)] = own
	d.mu.Unlock()
	d.observe(older) // before the joining is stored
	stored := make(chan error, 1)
	d.enqueue(w, change{holder: batchOf(0), mode: ticket.Exclusive, waiter: own,
		done: func(err error) { stored <- err }})
	must.OK(t, <-stored)
	d.observe(older)
	d.Wait()
	select {
	case a := <-granted:
		t.Errorf("ticket %d is granted beside another's: %v", a.t.N, a.err)
	default:
	}
}

// TestATicketThatNobodyWaitsBehind was left behind by a batch that is gone: it goes too, and the key with it.
func TestATicketThatNobodyWaitsBehind(t *testing.T) {
	s := testenv.Server(t)
	b := smallStore(t, s)
	if _, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "w"}, joined(batchOf(0))); err != nil {
		t.Fatal(err)
	}
	d := startLocks(t, b, 10*time.Millisecond)
	testenv.Until(t, "the key is deleted", func() bool { return keysOf(t, s) == 0 && d.known() == 0 })
}

// TestWhoWaitsKnowsForWhom: a grant names the batches that stood before, so many at most, where somebody wants to know.
func TestWhoWaitsKnowsForWhom(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/dispatcher/test")
	d := New(t.Context(), b, slog.New(slog.DiscardHandler), time.Hour)
	d.TellBehind = true
	defer d.Wait()
	watching := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { watching <- d.Watch(ctx) }()
	for n := range MaxBehind + 2 {
		if _, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "w"},
			func(q ticket.Queue) (ticket.Queue, error) {
				q, _, err := q.Join(batchOf(n), ticket.Shared)
				return q, err
			}); err != nil {
			t.Fatal(err)
		}
	}
	told, untold := batchOf(100), batchOf(101)
	grants := make(chan Grant, 2)
	for _, h := range []ticket.Holder{told, untold} {
		d.mu.Lock()
		d.TellBehind = h == told
		d.mu.Unlock()
		joined := make(chan error, 1)
		own := &waiter{tell: func(g Grant) { grants <- g }, mode: ticket.Exclusive}
		d.mu.Lock()
		d.queueOf("w").waiting[h.Key()] = own
		d.mu.Unlock()
		d.enqueue("w", change{holder: h, mode: ticket.Exclusive, waiter: own, done: func(err error) { joined <- err }})
		must.OK(t, <-joined)
	}
	for n := range MaxBehind + 2 {
		must.OK(t, d.Release(t.Context(), "w", batchOf(n)))
	}
	if g := <-grants; g.Err != nil || len(g.Behind) != MaxBehind || g.Behind[0].ID != "0" {
		t.Errorf("granted as %+v", g)
	}
	must.OK(t, d.Release(t.Context(), "w", told))
	if g := <-grants; g.Err != nil || g.Behind != nil {
		t.Errorf("where nobody wants to know a ticket is granted as %+v", g)
	}
	stop()
	if err := <-watching; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// unreadLogs has batches whose logs cannot be read.
type unreadLogs struct{ Broker }

func (unreadLogs) CatchUp(context.Context, *batch.State, batch.Chain, int) error {
	return errors.New("damaged")
}

func (unreadLogs) Fold(context.Context, toolyard.BatchKey) (batch.State, error) {
	return batch.State{}, errors.New("damaged")
}

func (unreadLogs) Tickets(context.Context, toolyard.Workspace) (broker.TicketQueue, error) {
	return broker.TicketQueue{}, errors.New("damaged")
}

// TestAQueueThatStaysUnreadableIsLoggedOnce: a batch waits in a queue that is read again each second. The log says once
// that it cannot be read.
func TestAQueueThatStaysUnreadableIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	d := New(t.Context(), unreadLogs{}, slog.New(slog.NewTextHandler(&log, nil)), time.Second)
	d.queueOf("w").waiting[batchOf(0)] = &waiter{tell: func(Grant) {}}
	for range 10 {
		d.Reread(t.Context())
	}
	if lines := strings.Count(log.String(), "cannot be read"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
}

// TestAHolderThatStaysUnreadableIsLoggedOnce: tickets of batches that cannot be read are looked at again and again. The
// log says so once, and again when there is another one.
func TestAHolderThatStaysUnreadableIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := New(t.Context(), unreadLogs{}, slog.New(slog.NewTextHandler(&log, nil)), time.Second)
		q := broker.TicketQueue{Workspace: "w"}
		for n := range 2 {
			var err error
			if q.Queue, err = joined(batchOf(n))(q.Queue); err != nil {
				t.Fatal(err)
			}
			q.Revision++
			d.observe(q)
			for range 10 {
				time.Sleep(time.Minute) // of the bubble
				d.Sweep(t.Context())
			}
			if lines := strings.Count(log.String(), "cannot be read"); lines != n+1 {
				t.Errorf("%d lines about %d tickets:\n%s", lines, n+1, log.String())
			}
		}
	})
}
