package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

const fourShards = 4

// sharded is a broker of a system of four shards, and its server.
func sharded(t testing.TB) (*natsbroker.Broker, *natsd.Server) {
	t.Helper()
	s := testenv.Server(t)
	b := testenv.Open(t, testenv.Conn(t, s), broker.Settings{Shards: fourShards}, "/test")
	return b, s
}

// handIn submits batches, and returns them as they are delivered, by their ids.
func handIn(t testing.TB, b *natsbroker.Broker, n int) map[toolyard.BatchID]*broker.Submission {
	t.Helper()
	in, err := b.Submissions()
	must.OK(t, err)
	t.Cleanup(in.Stop)
	for i := range n {
		sub := submission(fmt.Sprint("b", i))
		sub.Session = "s"
		must.OK(t, b.Submit(t.Context(), sub))
	}
	out := map[toolyard.BatchID]*broker.Submission{}
	for len(out) < n {
		s, err := in.Next(t.Context())
		must.OK(t, err)
		out[s.Key.ID] = s
	}
	return out
}

// TestBatchesOfFourShards: batches are spread over the shards, each is delivered once, and is found, compared and
// folded by whoever knows its id.
func TestBatchesOfFourShards(t *testing.T) {
	b, s := sharded(t)
	subs := handIn(t, b, 40)
	counts := map[int]int{}
	for id, sub := range subs {
		counts[b.Settings().ShardOf(sub.Key)]++
		if err := b.Submit(t.Context(), func() toolyard.Batch {
			again := submission(string(id))
			again.Session = "s"
			return again
		}()); err != nil {
			t.Errorf("the same again: %v", err)
		}
		other := submission(string(id))
		other.Calls[0].Tool = "other"
		if err := b.Submit(t.Context(), other); !errors.Is(err, broker.ErrOtherContent) {
			t.Errorf("other content: %v", err)
		}
		if _, err := b.Append(t.Context(), sub.Key, batch.ChainBatch, "", 0, 0, planned(1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(counts) != fourShards {
		t.Errorf("the batches are in the shards %v", counts)
	}
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for n, name := range []string{"TY_BATCH", "TY1_BATCH", "TY2_BATCH", "TY3_BATCH"} {
		stream := testenv.Stream(t, js, name)
		if got := int(stream.CachedInfo().State.Msgs); got != counts[n] {
			t.Errorf("%s has %d messages, want %d", name, got, counts[n])
		}
	}
	reader, err := natsbroker.Attach(t.Context(), testenv.Conn(t, s), "/reader")
	must.OK(t, err)
	for id, sub := range subs {
		state, err := reader.Fold(t.Context(), sub.Key)
		if err != nil || state.Plan == nil || state.SubmissionSeq != sub.Seq {
			t.Errorf("batch %s: %v, plan %t, submission %d, want %d", id, err, state.Plan != nil, state.SubmissionSeq,
				sub.Seq)
		}
		if log, err := reader.Log(t.Context(), sub.Key); err != nil || len(log) != 2 {
			t.Errorf("the log of %s: %v, %v", id, log, err)
		}
		if err := sub.Done(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := reader.Find(t.Context(), toolyard.BatchKey{Agent: "nobody", ID: "x"}); !errors.Is(err,
		broker.ErrNoBatch) {
		t.Errorf("a batch that is not there: %v", err)
	}
}

// TestABatchInTheWrongShard: who publishes a submission where it does not belong is told where it does, and nothing
// runs.
func TestABatchInTheWrongShard(t *testing.T) {
	b, s := sharded(t)
	in, err := b.Submissions()
	must.OK(t, err)
	t.Cleanup(in.Stop)
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for i := 0; ; i++ {
		k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint("raw", i))}
		shard := b.Settings().ShardOf(k)
		if shard == 0 {
			continue
		}
		if _, err := js.Publish(t.Context(), "ty.batch.a."+string(k.ID), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if sub, err := in.Next(t.Context()); err == nil {
			t.Fatalf("it is taken: %v", sub.Key)
		}
		stream := testenv.Stream(t, js, "TY_REPLY")
		m, err := stream.GetLastMsgForSubject(t.Context(), "ty.reply.a."+string(k.ID))
		must.OK(t, err)
		if where := fmt.Sprintf("ty%d.batch.a.%s", shard, k.ID); !strings.Contains(string(m.Data), where) {
			t.Errorf("the refusal does not say %s: %s", where, m.Data)
		}
		if err := b.Find(t.Context(), k); !errors.Is(err, broker.ErrNoBatch) {
			t.Errorf("it is found: %v", err)
		}
		return
	}
}

// TestListsOfFourShards: the index and what is kept are in the order of time, each batch once, from any page on.
func TestListsOfFourShards(t *testing.T) {
	b, _ := sharded(t)
	subs := handIn(t, b, 30)
	begun := time.Now().Truncate(time.Millisecond)
	var want []toolyard.BatchID
	for i := range len(subs) {
		sub := subs[toolyard.BatchID(fmt.Sprint("b", i))]
		e := broker.Entry{ID: sub.Key.ID, Agent: sub.Key.Agent, Session: "s", Workspace: "default", Calls: 1,
			Status: toolyard.StatusRunning, Place: sub.Seq, Revision: 1,
			Submitted: begun.Add(time.Duration(i/2) * time.Second)} // two have one time
		must.OK(t, b.Index().Add(t.Context(), e))
		want = append(want, sub.Key.ID)
	}
	for _, limit := range []int{1, 4, 7, 100} {
		var got []broker.Entry
		seen := map[toolyard.BatchID]bool{}
		for f := (broker.Filter{Limit: limit}); ; {
			page, more, err := b.Index().Page(t.Context(), f)
			must.OK(t, err)
			got = append(got, page...)
			for _, e := range page {
				if f.After = e.Place; seen[e.ID] {
					t.Errorf("pages of %d: %s is there twice", limit, e.ID)
				}
				seen[e.ID] = true
			}
			if !more {
				break
			}
		}
		if len(got) != len(want) || !slices.IsSortedFunc(got, func(a, b broker.Entry) int {
			return b.Submitted.Compare(a.Submitted)
		}) {
			t.Errorf("pages of %d: %d of %d batches, sorted or not", limit, len(got), len(want))
		}
	}
	page, _, err := b.Index().Page(t.Context(), broker.Filter{})
	must.OK(t, err)
	for _, e := range page {
		e.Status = toolyard.StatusCompleted
		must.OK(t, b.Index().Change(t.Context(), e))
	}
	if over, _, err := b.Index().Page(t.Context(), broker.Filter{Status: toolyard.StatusCompleted}); err != nil ||
		len(over) != len(want) {
		t.Errorf("of %d batches that are over %d are listed so, %v", len(want), len(over), err)
	}
	var kept []broker.Kept
	places := map[uint64]bool{}
	for k, err := range b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
		must.OK(t, err)
		kept, places[k.Place] = append(kept, k), true
	}
	var ids []toolyard.BatchID
	for _, k := range kept {
		ids = append(ids, k.Key.ID)
	}
	if !slices.Equal(ids, want) || len(places) != len(want) {
		t.Errorf("kept are %v at %d places", ids, len(places))
	}
	slices.Reverse(kept)
	for most := 1; most <= len(kept)+1; most++ {
		newest, cut, err := b.Newest(t.Context(), "", time.Time{}, time.Time{}, most)
		if err != nil || cut != (most < len(kept)) || !slices.Equal(newest, kept[:min(most, len(kept))]) {
			t.Errorf("the newest %d are %v, cut %t, %v; kept are %v", most, newest, cut, err, kept)
		}
	}
}

// TestInterruptsOfFourShards: an interrupt is about the batches of its session that were submitted before it, in
// whichever shard they are.
func TestInterruptsOfFourShards(t *testing.T) {
	b, _ := sharded(t)
	subs := handIn(t, b, 12)
	agent := submission("b0").Agent
	if _, err := b.Interrupt(t.Context(), agent, "s", "enough"); err != nil {
		t.Fatal(err)
	}
	session, err := b.Session(t.Context(), agent, "s")
	must.OK(t, err)
	for id, sub := range subs {
		if session.InterruptOf(sub.Seq, b.Settings().ShardOf(sub.Key)) == nil {
			t.Errorf("batch %s is not interrupted", id)
		}
	}
	for i := range 12 {
		sub := submission(fmt.Sprint("later", i))
		must.OK(t, b.Submit(t.Context(), sub))
		o, err := b.Origin(t.Context(), sub.Key())
		must.OK(t, err)
		if session.InterruptOf(o.Seq, b.Settings().ShardOf(sub.Key())) != nil {
			t.Errorf("batch %s, which came later, is interrupted", sub.ID)
		}
	}
}

// TestQueuesOfFourShards: calls come to the lanes of all shards, those that are withdrawn do not, and workspaces and
// approvals of all shards are listed and watched.
func TestQueuesOfFourShards(t *testing.T) {
	b, _ := sharded(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	watched, approvals := map[toolyard.Workspace]bool{}, map[string]bool{}
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
			mu.Lock()
			defer mu.Unlock()
			watched[q.Workspace] = err == nil
		})
	})
	watching.Go(func() {
		_ = b.WatchApprovals(ctx, func(c broker.ApprovalChange) {
			mu.Lock()
			defer mu.Unlock()
			approvals[c.ID] = true
		})
	})
	const n = 16
	route := batch.Route{Class: toolyard.ReadOnly, Pool: "default"}
	var queued, withdrawn []uint64
	for i := range n {
		k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint(i))}
		w := toolyard.Workspace(fmt.Sprint("w", i))
		if _, err := b.ChangeTickets(ctx, broker.TicketQueue{Workspace: w},
			func(q ticket.Queue) (ticket.Queue, error) {
				next, _, err := q.Join(ticket.Holder{Agent: "a", Batch: k.ID}, ticket.Exclusive)
				return next, err
			}); err != nil {
			t.Fatal(err)
		}
		must.OK(t, b.PutApproval(ctx, broker.Approval{Agent: "a", Batch: k.ID, AskedAt: time.Now()}))
		out := b.QueueAll(ctx, i%broker.Lanes, []batch.Queue{{Route: route, Request: events.Requested{
			Agent: k.Agent, Batch: k.ID, Calls: []events.RequestedCall{{Index: 0}}, QueuedAt: time.Now()}}})
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		if queued = append(queued, out[0].Seq); i%4 == 0 {
			never, err := b.Withdraw(ctx, route, i%broker.Lanes, []uint64{out[0].Seq})
			if err != nil || !slices.Equal(never, []uint64{out[0].Seq}) {
				t.Errorf("withdrawn: %v, %v", never, err)
			}
			withdrawn = append(withdrawn, out[0].Seq)
		}
	}
	if waiting, err := b.CountApprovals(ctx, ""); err != nil || waiting != n {
		t.Errorf("%d calls of all shards are counted (%v), want %d", waiting, err, n)
	}
	slices.Sort(queued)
	if len(slices.Compact(queued)) != n {
		t.Errorf("messages of different shards have one number: %v", queued)
	}
	if got, _ := b.Lanes(); got != broker.Lanes {
		t.Errorf("%d lanes, want as many as one shard has", got)
	}
	var taking sync.WaitGroup
	taken, enough := map[toolyard.BatchID]int{}, make(chan struct{})
	for lane := range broker.Lanes {
		l, err := b.Lane(ctx, route, lane, nil)
		must.OK(t, err)
		context.AfterFunc(ctx, l.Stop)
		taking.Go(func() {
			for ctx.Err() == nil {
				for d, err := range l.Take(ctx, 4) {
					if err != nil {
						break
					}
					mu.Lock()
					if taken[d.Batch]++; len(taken) == n-len(withdrawn) {
						close(enough)
					}
					mu.Unlock()
					if err := d.Done(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(time.Minute):
		t.Errorf("%d of %d calls came", len(taken), n-len(withdrawn))
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		seen := len(watched) == n && len(approvals) == n
		mu.Unlock()
		if seen {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("watched were %d queues and %d approvals of %d", len(watched), len(approvals), n)
		}
	}
	if all, err := b.AllTickets(ctx, 100); err != nil || len(all) != n {
		t.Errorf("%d queues, %v", len(all), err)
	}
	if all, err := b.Approvals(ctx, ""); err != nil || len(all) != n {
		t.Errorf("%d approvals, %v", len(all), err)
	}
	cancel()
	taking.Wait()
	watching.Wait()
	for id, times := range taken {
		if times != 1 {
			t.Errorf("call of %s came %d times", id, times)
		}
	}
}

// TestArchiveOfFourShards: what is over is archived in the shard where it is, and found there.
func TestArchiveOfFourShards(t *testing.T) {
	b, _ := sharded(t)
	subs := handIn(t, b, 12)
	for _, sub := range subs {
		must.OK(t, sub.TurnAway(t.Context(), events.Refused{Title: "no room", Status: 503}))
	}
	a, err := b.Archiver(t.Context(), time.Nanosecond, nil)
	must.OK(t, err)
	r, err := a.Round(t.Context())
	if err != nil || r.Batches != len(subs) || r.Objects < 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, id := range slices.Sorted(maps.Keys(subs)) {
		state, err := b.Look(t.Context(), subs[id].Key)
		if err != nil || state.Refused == nil {
			t.Errorf("batch %s: refused %t, %v", id, state.Refused != nil, err)
		}
		if p, err := b.Prove(t.Context(), subs[id].Key); err != nil || p.Messages == 0 || len(p.Strange) > 0 {
			t.Errorf("the proof of %s: %+v, %v", id, p, err)
		}
	}
}

// TestAFullArchiveStopsNoOtherShard: where the archive of one shard takes no more, the batches of all others are
// archived.
func TestAFullArchiveStopsNoOtherShard(t *testing.T) {
	b, server := sharded(t)
	subs, elsewhere := handIn(t, b, 12), 0
	for _, sub := range subs {
		must.OK(t, sub.TurnAway(t.Context(), events.Refused{Title: "no room", Status: 503}))
		n, err := b.ShardOf(t.Context(), sub.Key)
		must.OK(t, err)
		if n > 0 {
			elsewhere++
		}
	}
	a, err := b.Archiver(t.Context(), time.Nanosecond, nil)
	must.OK(t, err)
	js := testenv.JetStream(t, testenv.Conn(t, server))
	stream := testenv.Stream(t, js, "TY_ARCHIVE")
	tiny := stream.CachedInfo().Config
	tiny.MaxBytes = 1
	if _, err := js.UpdateStream(t.Context(), tiny); err != nil {
		t.Fatal(err)
	}
	r, err := a.Round(t.Context())
	if !errors.Is(err, broker.ErrFull) || !strings.Contains(err.Error(), "shard 0") {
		t.Errorf("the full archive: %v", err)
	}
	if r.Batches != elsewhere || elsewhere == 0 || elsewhere == len(subs) {
		t.Errorf("%d batches are archived, and %d of %d are in other shards", r.Batches, elsewhere, len(subs))
	}
}

// TestShardsAreChosenOnce: the number is part of a system's settings, and one of one shard is as it was before there
// were any.
func TestShardsAreChosenOnce(t *testing.T) {
	_, s := sharded(t)
	for _, shards := range []int{1, 2, 8} {
		if _, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), broker.Settings{Shards: shards},
			"/other"); err == nil {
			t.Errorf("a dispatcher with %d shards joins", shards)
		}
	}
	if _, _, err := natsbroker.Change(t.Context(), testenv.Conn(t, s), broker.Settings{Shards: 8}); err == nil {
		t.Error("the number is changed")
	}
	b, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), broker.Settings{}, "/other")
	if err != nil || b.Settings().ShardCount() != fourShards {
		t.Fatalf("a dispatcher that says nothing: %v", err)
	}
	js := testenv.JetStream(t, testenv.Conn(t, s))
	stream := testenv.Stream(t, js, "TY_BATCH")
	if got := stream.CachedInfo().Config.Metadata["toolyard.min_reader"]; got != "11" {
		t.Errorf("who joins must have wire version %s", got)
	}
	single := testenv.Server(t)
	testenv.Broker(t, single, "/test")
	js = testenv.JetStream(t, testenv.Conn(t, single))
	var names []string
	all := js.StreamNames(t.Context())
	for name := range all.Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"KV_ty_approval", "KV_ty_index", "KV_ty_session", "KV_ty_ticket", "KV_ty_worker", "OBJ_ty_blob",
		"TY_BATCH", "TY_CALL", "TY_DEAD", "TY_EVENT", "TY_REPLY"}; !slices.Equal(names, want) {
		t.Errorf("a system of one shard has %v", names)
	}
	stream = testenv.Stream(t, js, "TY_BATCH")
	if m := stream.CachedInfo().Config.Metadata; m["toolyard.min_reader"] != "1" {
		t.Errorf("the metadata of one shard: %v", m)
	}
}

// TestNobodyWaitsForAnothersMap: while NATS is gone, a submission and a look at the settings fail within their own
// limits, whoever else waits for the map of shards.
func TestNobodyWaitsForAnothersMap(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		b := e.Broker("client")
		time.Sleep(time.Minute) // of virtual time: the map is old
		e.Server.Cut("client")
		patient, stop := context.WithCancel(e.Context())
		looked := make(chan error, 1)
		go func() {
			sub := submission("other")
			_, err := b.Planned(patient, sub.Key()) // as an owner, who waits until NATS is back
			looked <- err
		}()
		time.Sleep(time.Second)
		for name, do := range map[string]func(context.Context) error{
			"a submission": func(ctx context.Context) error { return b.Submit(ctx, submission("b")) },
			"a look": func(ctx context.Context) error {
				_, _, err := b.Renew(ctx)
				return err
			},
		} {
			answered, began := make(chan error, 1), time.Now()
			go func() {
				ctx, cancel := context.WithTimeout(e.Context(), time.Second)
				defer cancel()
				answered <- do(ctx)
			}()
			select {
			case err := <-answered:
				if took := time.Since(began); err == nil || took > 2*time.Second {
					e.Errorf("%s with a limit of a second: after %s %v", name, took, err)
				}
			case <-time.After(10 * broker.SubmitWait):
				e.Errorf("%s with a limit of a second has no error after %s", name, time.Since(began))
			}
		}
		e.Server.Heal("client")
		stop()
		<-looked
	})
}
