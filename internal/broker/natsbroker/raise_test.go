package natsbroker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// grower is a system of some shards that gets more. b is a broker whose map is as new as it has read itself.
type grower struct {
	t testing.TB
	s *natsd.Server
	b *natsbroker.Broker
}

func growing(t testing.TB, shards int) *grower {
	t.Helper()
	g := &grower{t: t, s: testenv.Server(t)}
	g.b = g.open(broker.Settings{Shards: shards, BatchAckWait: time.Minute}) // nothing is delivered again
	return g
}

func (g *grower) open(s broker.Settings) *natsbroker.Broker {
	g.t.Helper()
	return testenv.Open(g.t, testenv.Conn(g.t, g.s), s, "/test")
}

// attach is a process that begins now.
func (g *grower) attach() *natsbroker.Broker {
	g.t.Helper()
	b, err := natsbroker.Attach(g.t.Context(), testenv.Conn(g.t, g.s), "/later")
	must.OK(g.t, err)
	return b
}

// raise raises the number of shards; before each step it calls before.
func (g *grower) raise(ctx context.Context, shards int, before func(natsbroker.Raising)) error {
	g.t.Helper()
	_, now, err := natsbroker.Raise(ctx, testenv.Conn(g.t, g.s), broker.Settings{Shards: shards}, 0, before)
	if err == nil && now.ShardCount() != shards {
		g.t.Errorf("there are %d shards", now.ShardCount())
	}
	return err
}

func (g *grower) raised(shards int) {
	g.t.Helper()
	must.OK(g.t, g.raise(g.t.Context(), shards, g.renew))
}

// renew has b read the map, as a dispatcher that runs does.
func (g *grower) renew(natsbroker.Raising) {
	g.t.Helper()
	if _, _, err := g.b.Renew(g.t.Context()); err != nil {
		g.t.Error(err)
	}
}

// keyed is the batch that [submission] makes of an id.
func keyed(id toolyard.BatchID) toolyard.BatchKey {
	sub := submission(string(id))
	return sub.Key()
}

// moves returns the n-th of ids whose batches are in one shard where there are some, and in another one where there are
// more.
func moves(few, many, n int) toolyard.BatchID {
	for i := 0; ; i++ {
		id := toolyard.BatchID(fmt.Sprint("moves", i))
		k := keyed(id)
		if s := shard.OfBatch(k); s.Shard(few) != s.Shard(many) {
			if n--; n < 0 {
				return id
			}
		}
	}
}

// moving is a workspace whose queue is in another shard where there are more.
func moving(few, many int) toolyard.Workspace {
	for i := 0; ; i++ {
		w := toolyard.Workspace(fmt.Sprint("moves", i))
		if s := shard.OfWorkspace(w); s.Shard(few) != s.Shard(many) {
			return w
		}
	}
}

// stands is how many messages are under the id of a batch in each shard.
func (g *grower) stands(id toolyard.BatchID, shards int) (out []string) {
	g.t.Helper()
	js := testenv.JetStream(g.t, testenv.Conn(g.t, g.s))
	for n := range shards {
		stream, subject := "TY_BATCH", "ty.batch."+broker.KeyTokens(keyed(id))
		if n > 0 {
			stream, subject = fmt.Sprintf("TY%d_BATCH", n), fmt.Sprintf("ty%d%s", n, subject[2:])
		}
		s := testenv.Stream(g.t, js, stream)
		m, err := s.GetLastMsgForSubject(g.t.Context(), subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			out = append(out, "")
		case err != nil:
			g.t.Fatal(err)
		default:
			kind := strings.Split(m.Header.Get("ce-type"), ".")
			out = append(out, kind[len(kind)-2])
		}
	}
	return out
}

// TestBatchesWhileShardsAreAdded: a system gets more shards while it is used. What was submitted before is found, and
// its id runs nothing again; what is new is spread over all shards, and is delivered to who takes submissions since
// before.
func TestBatchesWhileShardsAreAdded(t *testing.T) {
	for _, c := range [][2]int{{1, 4}, {2, 3}} {
		t.Run(fmt.Sprintf("%d to %d", c[0], c[1]), func(t *testing.T) {
			g := growing(t, c[0])
			stale := g.attach()
			in, err := g.b.Submissions()
			must.OK(t, err)
			t.Cleanup(in.Stop)
			taken := map[toolyard.BatchID]int{}
			take := func(n int) {
				t.Helper()
				for range n {
					sub, err := in.Next(t.Context())
					must.OK(t, err)
					taken[sub.Key.ID]++
					if _, err := g.b.Append(t.Context(), sub.Key, batch.ChainBatch, "", 0, 0, planned(1)); err != nil {
						t.Fatal(err)
					}
					must.OK(t, sub.Done(t.Context()))
				}
			}
			const n = 12
			submit := func(b *natsbroker.Broker, id toolyard.BatchID) {
				t.Helper()
				if err := b.Submit(t.Context(), submission(string(id))); err != nil {
					t.Fatalf("%s: %v", id, err)
				}
			}
			for i := range n {
				submit(g.b, moves(c[0], c[1], i))
			}
			take(n)
			g.raised(c[1])
			later := g.attach()
			for i := range n { // what was there before, to all three
				for _, b := range []*natsbroker.Broker{g.b, stale, later} {
					submit(b, moves(c[0], c[1], i))
				}
			}
			for i := range n {
				id := moves(c[0], c[1], n+i)
				b := []*natsbroker.Broker{g.b, stale, later}[i%3]
				submit(b, id)
				for _, again := range []*natsbroker.Broker{g.b, stale, later} {
					submit(again, id)
				}
				stands := g.stands(id, c[1])
				if k := slices.DeleteFunc(stands, func(s string) bool { return s != "submitted" }); len(k) != 1 {
					t.Errorf("batch %s of broker %d: %v", id, i%3, g.stands(id, c[1]))
				}
			}
			take(n)
			for id, times := range taken {
				if times != 1 {
					t.Errorf("batch %s was taken %d times", id, times)
				}
			}
			if len(taken) != 2*n {
				t.Errorf("%d batches were taken, want %d", len(taken), 2*n)
			}
			for name, b := range map[string]*natsbroker.Broker{"renewed": g.b, "stale": stale, "later": later} {
				for i := range 2 * n {
					other := submission(string(moves(c[0], c[1], i)))
					if st, err := b.Fold(t.Context(), other.Key()); err != nil || st.Plan == nil {
						t.Errorf("%s: batch %s: plan %t, %v", name, other.ID, st.Plan != nil, err)
					}
					other.Calls[0].Tool = "other"
					if err := b.Submit(t.Context(), other); !errors.Is(err, broker.ErrOtherContent) {
						t.Errorf("%s: other content of %s: %v", name, other.ID, err)
					}
				}
				none := toolyard.BatchKey{Agent: "a", ID: "none"}
				if err := b.Find(t.Context(), none); !errors.Is(err, broker.ErrNoBatch) {
					t.Errorf("%s: a batch that is not there: %v", name, err)
				}
			}
			var kept []toolyard.BatchID
			for k, err := range later.Kept(t.Context(), "", time.Time{}, time.Time{}) {
				must.OK(t, err)
				kept = append(kept, k.Key.ID)
			}
			if len(kept) != 2*n {
				t.Errorf("%d batches are kept: %v", len(kept), kept)
			}
		})
	}
}

// TestIDsAreFencedOnce: of many who submit one id, with maps of different ages, and with two contents, one content
// wins.
func TestIDsAreFencedOnce(t *testing.T) {
	g := growing(t, 1)
	var all []*natsbroker.Broker
	for range 3 {
		all = append(all, g.attach())
	}
	g.raised(3)
	all = append(all, g.b, g.attach())
	for i := range 10 {
		id := moves(1, 3, i)
		var submitting sync.WaitGroup
		errs := make([]error, len(all))
		for j, b := range all {
			submitting.Go(func() {
				sub := submission(string(id))
				if j%2 == 1 {
					sub.Calls[0].Tool = "other"
				}
				errs[j] = b.Submit(t.Context(), sub)
			})
		}
		submitting.Wait()
		for j, err := range errs {
			if err != nil && !errors.Is(err, broker.ErrOtherContent) || (err == nil) != (errs[j%2] == nil) {
				t.Errorf("batch %s: %d has %v of %v", id, j, err, errs)
			}
		}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("batch %s: both or none: %v", id, errs)
		}
	}
}

// setOpened changes when the last epoch was opened.
func (g *grower) setOpened(at time.Time) {
	g.t.Helper()
	g.setOpenedBefore(0, at)
}

// setOpenedBefore changes when an epoch was opened that has so many later ones.
func (g *grower) setOpenedBefore(later int, at time.Time) {
	g.t.Helper()
	js := testenv.JetStream(g.t, testenv.Conn(g.t, g.s))
	kv, err := js.KeyValue(g.t.Context(), "ty_shards")
	must.OK(g.t, err)
	e, err := kv.Get(g.t.Context(), "map")
	must.OK(g.t, err)
	var m shard.Map
	must.OK(g.t, json.Unmarshal(e.Value(), &m))
	m.Epochs[len(m.Epochs)-1-later].Opened = at
	value := must.JSON(g.t, m)
	if _, err := kv.Put(g.t.Context(), "map", value); err != nil {
		g.t.Fatal(err)
	}
}

// TestABatchIsLookedForWhileItIsSubmitted: the one who looks finds nothing in the former shard, and then counts the
// fence that is stored there meanwhile. That is no batch.
func TestABatchIsLookedForWhileItIsSubmitted(t *testing.T) {
	settings := broker.Settings{MaxStoreBytes: 256 << 20}.WithDefaults()
	bubble.Run(t, settings, func(e *bubble.Env) {
		e.Broker("makes the streams")
		_, _, err := natsbroker.Raise(e.Context(), e.Conn("raises"), broker.Settings{Shards: 2}, 0,
			func(natsbroker.Raising) {})
		must.OK(e.T, err)
		looks, submits := e.Broker("looks"), e.Broker("submits")
		sub, submitted := submission(string(moves(1, 2, 0))), false
		looks.AfterLastSubmission(func(string) {
			if !submitted {
				submitted = true
				must.OK(e.T, submits.Submit(e.Context(), sub))
			}
		})
		for range 2 {
			if n, err := looks.ShardOf(e.Context(), sub.Key()); err != nil || n != 1 {
				e.Errorf("the batch in shard 1 is looked for in shard %d, %v", n, err)
			}
		}
	})
}

// TestALateSubmissionInAFormerShard: soon after a raise it is taken there. Later its sender is told where to submit.
func TestALateSubmissionInAFormerShard(t *testing.T) {
	g := growing(t, 1)
	g.raised(2)
	in, err := g.b.Submissions()
	must.OK(t, err)
	t.Cleanup(in.Stop)
	js := testenv.JetStream(t, testenv.Conn(t, g.s))
	publish := func(id toolyard.BatchID) toolyard.BatchKey {
		t.Helper()
		k := keyed(id)
		if _, err := js.Publish(t.Context(), "ty.batch."+broker.KeyTokens(k), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		return k
	}
	soon := publish(moves(1, 2, 0))
	sub, err := in.Next(t.Context())
	if err != nil || sub.Key != soon || sub.Shard != 0 {
		t.Fatalf("soon: %+v, %v", sub, err)
	}
	g.setOpened(time.Now().Add(-shard.Grace - time.Minute))
	g.renew(natsbroker.Raising{})
	late := publish(moves(1, 2, 1))
	if sub, err := in.Next(t.Context()); err == nil {
		t.Fatalf("late: %v is taken", sub.Key)
	} else if !strings.Contains(err.Error(), "ty1.batch.") {
		t.Errorf("late: %v", err)
	}
	if _, err := g.b.Replies(t.Context(), late, 0); err != nil {
		t.Error(err)
	}
	// When nothing can stand in the former shard any more, nobody fences it.
	s := g.b.Settings()
	g.setOpened(time.Now().Add(-shard.Grace - s.Lifetime - 2*s.Slack - time.Minute))
	g.renew(natsbroker.Raising{})
	id := moves(1, 2, 2)
	must.OK(t, g.b.Submit(t.Context(), submission(string(id))))
	if got := g.stands(id, 2); !slices.Equal(got, []string{"", "submitted"}) {
		t.Errorf("long after the raise: %q", got)
	}
}

// TestTicketsWhileShardsAreAdded: the lock of a workspace goes to its new shard when the former tickets have left.
// Nobody overtakes, and numbers only grow.
func TestTicketsWhileShardsAreAdded(t *testing.T) {
	g := growing(t, 1)
	stale := g.attach()
	w := moving(1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var mu sync.Mutex
	var watched broker.TicketQueue
	watching.Go(func() {
		_ = g.b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && q.Workspace == w && q.Newer(watched) {
				watched = q
			}
		})
	})
	defer watching.Wait()
	defer cancel()
	holder := func(n int) ticket.Holder {
		return ticket.Holder{Agent: "a", Batch: toolyard.BatchID(fmt.Sprint(n)), Group: 0}
	}
	known := broker.TicketQueue{Workspace: w}
	join := func(b *natsbroker.Broker, n int) ticket.Ticket {
		t.Helper()
		q, err := b.ChangeTickets(ctx, known, func(q ticket.Queue) (next ticket.Queue, err error) {
			next, _, err = q.Join(holder(n), ticket.Exclusive)
			return next, err
		})
		must.OK(t, err)
		known = q
		found, ok := q.Find(holder(n), ticket.Exclusive)
		if !ok {
			t.Fatalf("%d has no ticket in %+v", n, q)
		}
		return found
	}
	leave := func(b *natsbroker.Broker, n int) {
		t.Helper()
		if _, err := b.ChangeTickets(ctx, known, func(q ticket.Queue) (ticket.Queue, error) {
			return q.Leave(holder(n)), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	granted := func(n int, want bool) {
		t.Helper()
		for name, b := range map[string]*natsbroker.Broker{"renewed": g.b, "stale": stale, "later": g.attach()} {
			q, err := b.Tickets(ctx, w)
			must.OK(t, err)
			if _, ok := q.Granted(holder(n), ticket.Exclusive); ok != want && (name != "stale" || ok) {
				t.Errorf("%s: %d is granted %t: %+v", name, n, ok, q.Tickets)
			}
		}
	}
	first, second := join(g.b, 1), join(g.b, 2)
	g.raised(3)
	third, fourth := join(g.b, 3), join(stale, 4)
	for i, pair := range [][2]ticket.Ticket{{first, second}, {second, third}, {third, fourth}} {
		if pair[0].N >= pair[1].N {
			t.Errorf("ticket %d has number %d, and the next one %d", i+1, pair[0].N, pair[1].N)
		}
	}
	granted(1, true)
	granted(3, false)
	if again := join(g.attach(), 1); again.N != first.N {
		t.Errorf("who has a ticket in the former queue gets another one: %v, had %v", again, first)
	}
	leave(g.b, 1)
	granted(2, true)
	granted(3, false)
	leave(stale, 2)
	granted(3, true)
	granted(4, false)
	leave(g.attach(), 3)
	granted(4, true)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		_, ok := watched.Granted(holder(4), ticket.Exclusive)
		mu.Unlock()
		if ok {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the watch has %+v", watched)
		}
	}
	leave(g.b, 4)
	if err := g.b.DeleteTickets(ctx, known); err == nil {
		t.Error("a key is deleted while its workspace has a former queue")
	}
	// When nothing can stand in the former shard any more, the key may go, and what is left there goes with it.
	s := g.b.Settings()
	g.setOpened(time.Now().Add(-shard.Grace - s.Lifetime - 2*s.Slack - time.Minute))
	g.renew(natsbroker.Raising{})
	q, err := g.b.Tickets(ctx, w)
	if err != nil || q.Former != 0 || !q.Includes(known) {
		t.Fatalf("long after the raise: %+v, %v", q, err)
	}
	fifth := join(g.b, 5)
	if fifth.N <= fourth.N {
		t.Errorf("the ticket after %d is %d", fourth.N, fifth.N)
	}
	leave(g.b, 5)
	for known = (broker.TicketQueue{Workspace: w}); !known.MayGo(known.Revision) || known.Revision == 0; {
		if known, err = g.b.ChangeTickets(ctx, known, func(q ticket.Queue) (ticket.Queue, error) {
			return q, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	must.OK(t, g.b.DeleteTickets(ctx, known))
	js := testenv.JetStream(t, testenv.Conn(t, g.s))
	for _, name := range []string{"KV_ty_ticket", "KV_ty1_ticket", "KV_ty2_ticket"} {
		if s, err := js.Stream(ctx, name); err != nil || s.CachedInfo().State.Msgs != 0 {
			t.Errorf("%s still has keys: %v", name, err)
		}
	}
	if sixth := join(g.b, 6); sixth.N <= fifth.N {
		t.Errorf("behind a deleted key the ticket after %d is %d", fifth.N, sixth.N)
	}
}

// TestTicketsOfTwoFormerShards: when the older of two former queues leaves the path, a later reading is not older.
func TestTicketsOfTwoFormerShards(t *testing.T) {
	g := growing(t, 1)
	w := moving(1, 2)
	for i := 0; shard.OfWorkspace(w).Shard(2) != 1 || shard.OfWorkspace(w).Shard(3) != 2; i++ {
		w = toolyard.Workspace(fmt.Sprint("moves", i))
	}
	join := func(n int) broker.TicketQueue {
		t.Helper()
		q, err := g.b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: w},
			func(q ticket.Queue) (next ticket.Queue, err error) {
				h := ticket.Holder{Agent: "a", Batch: toolyard.BatchID(fmt.Sprint(n))}
				next, _, err = q.Join(h, ticket.Exclusive)
				return next, err
			})
		must.OK(t, err)
		return q
	}
	join(1)
	g.raised(2)
	join(2)
	g.raised(3)
	both := join(3)
	s := g.b.Settings()
	long := time.Now().Add(-shard.Grace - s.Lifetime - 2*s.Slack - time.Minute)
	reading := func() broker.TicketQueue {
		t.Helper()
		g.renew(natsbroker.Raising{})
		q, err := g.b.Tickets(t.Context(), w)
		must.OK(t, err)
		return q
	}
	g.setOpenedBefore(1, long)
	one := reading()
	if len(both.Tickets) != 3 || len(one.Tickets) != 2 {
		t.Fatalf("the path had %+v and has %+v", both, one)
	}
	later := join(4)
	g.setOpened(long)
	none, last := reading(), join(5)
	if !one.Includes(both) || !none.Includes(later) {
		t.Errorf("a reading with fewer former queues is older: %+v, %+v, %+v, %+v", both, one, later, none)
	}
	for _, was := range []broker.TicketQueue{both, one} {
		if !later.Newer(was) || was.Includes(later) || !last.Newer(was) {
			t.Errorf("%+v and %+v are not newer than %+v", later, last, was)
		}
	}
}

// TestQueuesWhileShardsAreAdded: calls that were queued before a raise are taken behind it, from whichever lane, and
// are withdrawn by the numbers that they had.
func TestQueuesWhileShardsAreAdded(t *testing.T) {
	g := growing(t, 1)
	route := batch.Route{Class: toolyard.ReadOnly, Pool: "default"}
	queue := func(lane int, id toolyard.BatchID) uint64 {
		t.Helper()
		k := keyed(id)
		out := g.b.QueueAll(t.Context(), lane, []batch.Queue{{Route: route, Request: events.Requested{
			Agent: k.Agent, Batch: k.ID, Calls: []events.RequestedCall{{Index: 0}}, QueuedAt: time.Now()}}})
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		return out[0].Seq
	}
	var numbers []uint64
	for i := range broker.Lanes {
		id := moves(1, 4, i)
		must.OK(t, g.b.Submit(t.Context(), submission(string(id))))
		numbers = append(numbers, queue(i, id))
	}
	_, more := g.b.Lanes()
	g.raised(4)
	select {
	case <-more:
	default:
		t.Error("who has opened the lanes is not told that there are more")
	}
	for i := range broker.Lanes {
		id := moves(1, 4, broker.Lanes+i)
		must.OK(t, g.b.Submit(t.Context(), submission(string(id))))
		numbers = append(numbers, queue(i, id))
	}
	never, err := g.b.Withdraw(t.Context(), route, 0, numbers[:1])
	if err != nil || !slices.Equal(never, numbers[:1]) {
		t.Errorf("withdrawn: %v, %v", never, err)
	}
	if err := g.b.Unqueue(t.Context(), numbers[len(numbers)-1]); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var taking sync.WaitGroup
	defer taking.Wait()
	defer cancel()
	n, _ := g.b.Lanes()
	got := make(chan toolyard.BatchID)
	for lane := range n {
		l, err := g.b.Lane(ctx, route, lane, nil)
		must.OK(t, err)
		context.AfterFunc(ctx, l.Stop)
		taking.Go(func() {
			for ctx.Err() == nil {
				for d, err := range l.Take(ctx, 4) {
					if err != nil {
						break
					}
					if err := d.Done(); err != nil {
						t.Error(err)
					}
					select {
					case got <- d.Batch:
					case <-ctx.Done():
					}
				}
			}
		})
	}
	seen := map[toolyard.BatchID]bool{}
	for len(seen) < len(numbers)-2 {
		select {
		case id := <-got:
			if seen[id] {
				t.Errorf("%s comes twice", id)
			}
			seen[id] = true
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d calls came", len(seen), len(numbers)-2)
		}
	}
}
