package natsbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// TestAReadWithoutAnAnswerEndsNoDispatcher: a batch is woken after the system got more shards, and nothing that a
// dispatcher sends arrives, so that it cannot find out whether the wake is where it belongs. It goes on, and gets the
// wake when it can.
func TestAReadWithoutAnAnswerEndsNoDispatcher(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		b := e.Broker("client")
		if _, _, err := natsbroker.Raise(e.Context(), e.Conn("operator"), broker.Settings{Shards: 2}, 0,
			func(natsbroker.Raising) {}); err != nil {
			e.Fatal(err)
		}
		if _, _, err := b.Renew(e.Context()); err != nil {
			e.Fatal(err)
		}
		k := keyed(moves(1, 2, 0))
		in, err := e.Broker("dispatcher").Submissions()
		if err != nil {
			e.Fatal(err)
		}
		defer in.Stop()
		time.Sleep(100 * time.Millisecond) // of virtual time: it asks for messages
		e.Server.Mute("dispatcher")
		if err := b.Wake(e.Context(), k, 1); err != nil {
			e.Fatal(err)
		}
		time.AfterFunc(2*time.Minute, func() { e.Server.Heal("dispatcher") })
		if s, err := in.Next(e.Context()); err != nil || s.Parked != 1 {
			e.Errorf("the wake is delivered as %v, %v", s, err)
		}
	})
}

// TestWakesWhoseBatchesCannotBeFound: a system got more shards, and one of the former ones is away. Wakes in a new
// shard come of batches that may be in the one that is away, to a dispatcher that has not seen them. It takes a
// submission behind them all the same, and the wakes when the shard is back.
func TestWakesWhoseBatchesCannotBeFound(t *testing.T) {
	bubble.Run(t, broker.Settings{Shards: 2, Replicas: 3}, func(e *bubble.Env) {
		client, before, late := e.Broker("client"), e.Broker("before"), e.Broker("late")
		if _, _, err := natsbroker.Raise(e.Context(), e.Conn("operator"), broker.Settings{Shards: 3, Replicas: 3}, 0,
			func(natsbroker.Raising) {}); err != nil {
			e.Fatal(err)
		}
		for _, b := range []*natsbroker.Broker{client, before, late} {
			if _, _, err := b.Renew(e.Context()); err != nil {
				e.Fatal(err)
			}
		}
		// from returns a batch that was submitted to the last shard, and would have been to a former one before.
		n := 0
		from := func(former int) toolyard.BatchKey {
			e.Helper()
			for ; ; n++ {
				sub := submission(fmt.Sprint("from", n))
				if s := shard.OfBatch(sub.Key()); s.Shard(2) != former || s.Shard(3) != 2 {
					continue
				}
				n++
				err := client.Submit(e.Context(), sub)
				if err == nil {
					_, err = client.Planned(e.Context(), sub.Key()) // it remembers where the batch is
				}
				if err != nil {
					e.Fatal(err)
				}
				return sub.Key()
			}
		}
		parked := map[toolyard.BatchKey]bool{}
		in, err := before.Submissions()
		if err != nil {
			e.Fatal(err)
		}
		for range 5 {
			parked[from(0)] = true
			sub, err := in.Next(e.Context())
			if err == nil {
				err = sub.Done(e.Context())
			}
			if err != nil {
				e.Fatal(err)
			}
		}
		in.Stop()
		e.Server.LoseLeader("TY_BATCH")
		for k := range parked {
			if err := client.Wake(e.Context(), k, 1); err != nil {
				e.Fatal(err)
			}
		}
		next, began := from(1), time.Now()
		in, err = late.Submissions()
		if err != nil {
			e.Fatal(err)
		}
		defer in.Stop()
		defer time.AfterFunc(2*time.Minute, in.Stop).Stop()
		sub, err := in.Next(e.Context())
		if err != nil || sub.Key != next {
			e.Fatalf("delivered is %+v, %v; want %s", sub, err, next)
		}
		if took := time.Since(began); took > 5*time.Second {
			e.Errorf("the submission is delivered after %s", took)
		}
		e.Server.ElectLeader("TY_BATCH")
		for len(parked) > 0 {
			sub, err := in.Next(e.Context())
			if err != nil {
				e.Fatal(err)
			}
			if sub.Parked == 1 {
				delete(parked, sub.Key)
			}
		}
		if took := time.Since(began); took > time.Minute {
			e.Errorf("all wakes are delivered after %s", took)
		}
	})
}
