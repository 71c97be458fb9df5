package natsbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// answers has a dispatcher answer guests until the returned function is called.
func answers(t *testing.T, b *natsbroker.Broker) (end func()) {
	t.Helper()
	return answersWith(t, b, func() []broker.Worker { return nil }, nil)
}

// answersWith is the same for a dispatcher that knows workers, and background calls.
func answersWith(t *testing.T, b *natsbroker.Broker, workers func() []broker.Worker,
	background func(context.Context, toolyard.Pool, broker.BackgroundAsk) (broker.BackgroundAnswer, error),
) (end func()) {
	t.Helper()
	a, err := b.AnswerGuests(testenv.Log(t), workers, func(string, []byte) error { return nil }, background,
		func(toolyard.BatchKey) bool { return false })
	must.OK(t, err)
	return func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// raisedGuarded raises a guarded system to two shards; before each step it calls before.
func raisedGuarded(t *testing.T, s *natsd.Server, before func(natsbroker.Raising)) {
	t.Helper()
	if _, _, err := natsbroker.Raise(t.Context(), testenv.ConnAs(t, s, access.Principal{Role: access.Operator}),
		broker.Settings{Shards: 2}, 0, before); err != nil {
		t.Fatal(err)
	}
}

// TestGuestsGoByTheServersClock: an agent or worker with an account of its own is told the server's time with the map
// of shards, by which it is known for how long a former shard counts. Its own clock may show another one.
func TestGuestsGoByTheServersClock(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Guarded(t)
	d := testenv.BrokerAs(t, s, access.Principal{Role: access.Dispatcher}, "/d")
	defer answers(t, d)()
	for _, who := range []access.Principal{{Role: access.Worker, Name: "p"}, {Role: access.Agent, Name: "ann"}} {
		g := testenv.BrokerAs(t, s, who, "/guest")
		if g.ServerTime().IsZero() {
			t.Errorf("%s takes its own clock for the server's", who)
		}
		now, err := d.Clock(t.Context())
		must.OK(t, err)
		_, _, err = g.Renew(t.Context())
		must.OK(t, err)
		if got := g.ServerTime(); got.Before(now) {
			t.Errorf("%s has read the map again, and the server's clock showed %v; want %v or later", who, got, now)
		}
	}
}

// TestLanesOfANewShard: a worker with an account of its own reads before one of two dispatchers that there is a
// new shard, and the other dispatcher, which has not read that yet, makes the worker's lanes.
func TestLanesOfANewShard(t *testing.T) {
	testenv.OneShard(t)
	s, platform := testenv.Guarded(t), access.Principal{Role: access.Dispatcher}
	slow, fast := testenv.BrokerAs(t, s, platform, "/slow"), testenv.BrokerAs(t, s, platform, "/fast")
	end := answers(t, fast)
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	raisedGuarded(t, s, func(r natsbroker.Raising) {
		if r.Map.Next != 0 { // it is announced: these two read the map, and the slow one does later
			for _, b := range []*natsbroker.Broker{fast, w} {
				if _, _, err := b.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	end()
	defer answers(t, slow)()
	n, _ := w.Lanes()
	if n <= broker.Lanes {
		t.Fatalf("the worker knows %d lanes", n)
	}
	route := batch.Route{Pool: "p", Class: toolyard.ReadOnly}
	for i := range n {
		l, err := w.Lane(t.Context(), route, i, nil)
		must.OK(t, err)
		defer l.Stop()
	}
	js := testenv.JetStream(t, testenv.ConnAs(t, s, platform))
	for _, name := range []string{"call_READ_ONLY_p_0", "call_READ_ONLY_p_1"} {
		if _, err := js.Consumer(t.Context(), "TY_CALL", name); err != nil {
			t.Errorf("shard 0: consumer %s: %v", name, err)
		}
		if _, err := js.Consumer(t.Context(), "TY1_CALL", name); err != nil {
			t.Errorf("shard 1: the worker has opened the lane, and there is no consumer %s: %v", name, err)
		}
	}
}

// TestAnAgentSubmitsBehindItsOwnFence: an agent with an account of its own died between the fence in the former
// shard and the submission, or has not heard that the fence is stored. It submits again, under the same id.
func TestAnAgentSubmitsBehindItsOwnFence(t *testing.T) {
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
	for _, sub := range moved {
		if stored, err := d.Submitted(t.Context(), sub.Key()); err != nil || !stored {
			t.Errorf("batch %s is stored: %v, %v", sub.Key(), stored, err)
		}
	}
}
