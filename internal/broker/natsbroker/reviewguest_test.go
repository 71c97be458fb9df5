package natsbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// TestReviewAnAgentSubmitsBehindItsOwnFence: an agent with an account of its own died between the fence in the former
// shard and the submission, or has not heard that the fence is stored. It submits again, under the same id.
func TestReviewAnAgentSubmitsBehindItsOwnFence(t *testing.T) {
	testenv.OneShard(t)
	s, platform := testenv.Guarded(t), access.Principal{Role: access.Dispatcher}
	d := testenv.BrokerAs(t, s, platform, "/d")
	defer answers(t, d)()
	who := access.Principal{Role: access.Agent, Name: "eve"}
	agent := testenv.BrokerAs(t, s, who, "/agent")
	raisedGuarded(t, s, func(natsbroker.Raising) {
		if _, _, err := d.Renew(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := agent.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	var moved []toolyard.Batch // they were in shard 0, and are in shard 1
	for i := 0; len(moved) < 2; i++ {
		sub := toolyard.Batch{Agent: "eve", Calls: []toolyard.Call{{Tool: "x"}}}
		sub.Normalize(toolyard.BatchID(fmt.Sprint("b", i)))
		if slot := shard.OfBatch(sub.Key()); slot.Shard(1) != slot.Shard(2) {
			moved = append(moved, sub)
		}
	}
	eve := testenv.ConnAs(t, s, who)
	for _, sub := range moved { // what fenceOff has stored
		forged(t, eve, "ty.batch."+broker.KeyTokens(sub.Key()), events.Moved{},
			nats.Header{"Nats-Expected-Last-Subject-Sequence": {"0"}})
	}
	began := time.Now()
	if err := d.Submit(t.Context(), moved[0]); err != nil {
		t.Errorf("from the platform's account, after %s: %v", time.Since(began), err)
	}
	began = time.Now()
	if err := agent.Submit(t.Context(), moved[1]); err != nil {
		t.Errorf("from the agent's account, after %s: %v", time.Since(began).Round(time.Second), err)
	}
}

// TestReviewNobodyWaitsForAnothersMap: while NATS is gone, a submission fails after its own limit, whoever else waits
// for the map of shards.
func TestReviewNobodyWaitsForAnothersMap(t *testing.T) {
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
		answered, began := make(chan error, 1), time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(e.Context(), time.Second)
			defer cancel()
			answered <- b.Submit(ctx, submission("b"))
		}()
		select {
		case err := <-answered:
			e.Logf("after %s: %v", time.Since(began), err)
		case <-time.After(10 * broker.SubmitWait):
			e.Errorf("a submission with a limit of a second has no error after %s", time.Since(began))
		}
		e.Server.Heal("client")
		stop()
		<-looked
	})
}
