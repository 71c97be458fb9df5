package natsbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

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
