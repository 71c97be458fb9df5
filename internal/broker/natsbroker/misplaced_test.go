package natsbroker_test

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
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
