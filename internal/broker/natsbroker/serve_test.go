package natsbroker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// serving is a process of its own that serves some shards.
func (g *grower) serving(source string, only ...int) *natsbroker.Broker {
	g.t.Helper()
	b, err := natsbroker.Attach(g.t.Context(), testenv.Conn(g.t, g.s), source)
	if err == nil {
		b, err = b.Serve(only)
	}
	must.OK(g.t, err)
	return b
}

// takes starts to take submissions, until the test ends.
func (g *grower) takes(b *natsbroker.Broker) broker.Submissions {
	g.t.Helper()
	in, err := b.Submissions()
	must.OK(g.t, err)
	g.t.Cleanup(in.Stop)
	return in
}

// TestBatchesOfSomeShards: two dispatchers have two shards each, and each gets all batches of those and no other.
func TestBatchesOfSomeShards(t *testing.T) {
	g := growing(t, fourShards)
	low, high := g.serving("/dispatcher/low", 0, 1), g.serving("/dispatcher/high", 2, 3)
	ins := map[string]broker.Submissions{"low": g.takes(low), "high": g.takes(high)}
	want := map[string][]toolyard.BatchID{}
	for i := range 40 {
		sub := submission(fmt.Sprint("b", i))
		must.OK(t, g.b.Submit(t.Context(), sub))
		of := "low"
		if g.b.Settings().ShardOf(sub.Key()) >= 2 {
			of = "high"
		}
		want[of] = append(want[of], sub.ID)
	}
	for name, in := range ins {
		var got []toolyard.BatchID
		for range want[name] {
			sub, err := in.Next(t.Context())
			must.OK(t, err)
			got = append(got, sub.Key.ID)
		}
		slices.Sort(got)
		if slices.Sort(want[name]); !slices.Equal(got, want[name]) {
			t.Errorf("%s takes %v, want %v", name, got, want[name])
		}
	}
	all, err := g.b.Dispatchers(t.Context())
	must.OK(t, err)
	var says []string
	for _, d := range all {
		says = append(says, fmt.Sprint(d.ID, " ", d.Only, " of ", d.Shards))
	}
	if want := []string{"high 2-3 of 4", "low 0-1 of 4"}; !slices.Equal(says, want) {
		t.Errorf("the dispatchers say %q, want %q", says, want)
	}
}

// TestCallsOfSomeShards: a worker of some shards has their lanes, and takes what is queued for batches in them.
func TestCallsOfSomeShards(t *testing.T) {
	g := growing(t, fourShards)
	b := g.serving("/worker/some", 1, 3)
	route := batch.Route{Class: toolyard.ReadOnly, Pool: "default"}
	n, _ := b.Lanes()
	if all, _ := g.b.Lanes(); n != all/2 {
		t.Fatalf("%d of %d lanes", n, all)
	}
	var want []toolyard.BatchID
	for i := range 40 {
		k := keyed(toolyard.BatchID(fmt.Sprint("b", i)))
		out := g.b.QueueAll(t.Context(), i, []batch.Queue{{Route: route, Request: events.Requested{
			Agent: k.Agent, Batch: k.ID, Calls: []events.RequestedCall{{Index: 0}}, QueuedAt: time.Now()}}})
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		if g.b.Settings().ShardOf(k)%2 == 1 {
			want = append(want, k.ID)
		}
	}
	came := make(chan toolyard.BatchID)
	for number := range n {
		l, err := b.Lane(t.Context(), route, number, nil)
		must.OK(t, err)
		t.Cleanup(l.Stop)
		go func() {
			for d, err := range l.Take(t.Context(), 40) {
				if err != nil {
					return
				}
				came <- d.Batch
			}
		}()
	}
	var got []toolyard.BatchID
	for range want {
		select {
		case id := <-came:
			got = append(got, id)
		case <-time.After(time.Minute):
			t.Fatalf("only %v of %v came", got, want)
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("calls of %v come, want %v", got, want)
	}
	select {
	case id := <-came:
		t.Errorf("another call comes, of %s", id)
	default:
	}
}

// TestAQuestionThatNobodyCanAnswer: a message without a reply subject on the subject of the roll call is ignored. It
// does not end a dispatcher.
func TestAQuestionThatNobodyCanAnswer(t *testing.T) {
	g := growing(t, fourShards)
	in := g.takes(g.serving("/dispatcher/d"))
	asks := testenv.Conn(t, g.s)
	must.OK(t, errors.Join(asks.Publish("ty.roll", nil), asks.Flush()))
	testenv.Until(t, "the dispatcher answers the next question", func() bool { // on a busy machine it may be late
		all, err := g.b.Dispatchers(t.Context())
		must.OK(t, err)
		return len(all) == 1
	})
	sub := submission("b")
	must.OK(t, g.b.Submit(t.Context(), sub))
	if got, err := in.Next(t.Context()); err != nil || got.Key != sub.Key() {
		t.Errorf("it takes %+v, %v", got, err)
	}
}

// TestShardsThatThereAreNot: who names one does not start.
func TestShardsThatThereAreNot(t *testing.T) {
	g := growing(t, 2)
	if _, err := g.b.Serve(shard.Set{1, 2}); err == nil || !strings.Contains(err.Error(), "no shard 2") {
		t.Errorf("%v", err)
	}
}

// TestARaiseNeedsSomebody: a process that serves some shards does not get the new ones, and holds up no raise. But each
// new shard needs a dispatcher, and a worker of each pool that has one.
func TestARaiseNeedsSomebody(t *testing.T) {
	g := growing(t, 2)
	g.takes(g.serving("/dispatcher/some", 0, 1))
	some := g.serving("/worker/some", 0, 1)
	beat := func(b *natsbroker.Broker, id string) {
		t.Helper()
		if err := b.Beat(t.Context(), broker.Worker{ID: id, Pool: "default"}); err != nil {
			t.Error(err)
		}
	}
	var waits []string
	all := g.attach()
	taking, working := false, false
	_, _, err := natsbroker.Raise(t.Context(), testenv.Conn(t, g.s), broker.Settings{Shards: 3}, 0,
		func(r natsbroker.Raising) {
			waits = append(waits, r.Waits)
			renew := func(b *natsbroker.Broker) {
				if _, _, err := b.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			}
			beat(some, "some")
			renew(some)
			switch {
			case strings.Contains(r.Waits, "no dispatcher takes batches of shard 2") && !taking:
				renew(g.b)
				g.takes(g.b)
				taking = true
			case strings.Contains(r.Waits, "no worker of pool default takes calls of shard 2"):
				renew(all)
				working = taking
			}
			if working {
				beat(all, "all")
			}
		})
	must.OK(t, err)
	if said := strings.Join(waits, "\n"); !taking || !working || strings.Contains(said, "new shards yet: some") {
		t.Errorf("it has waited for:\n%s", said)
	}
	served, err := g.b.Served(t.Context())
	must.OK(t, err)
	for n, want := range []int{2, 2, 1} {
		if s := served[n]; s.Dispatchers != want || s.Workers["default"] != want {
			t.Errorf("shard %d has %d dispatchers and the workers %v, want %d of each", n, s.Dispatchers, s.Workers, want)
		}
	}
	if n, _ := some.Lanes(); n != 2*broker.ShardLanes(2) {
		t.Errorf("who serves two shards has %d lanes", n)
	}
}
