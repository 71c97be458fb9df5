package dispatcher

import (
	"errors"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// TestARefusedRepeatIsMarked: the answer to a call message is lost, the call runs and its message goes, and the repeat
// is refused for want of room. The next repeat must say that the call may have run.
func TestARefusedRepeatIsMarked(t *testing.T) {
	replicated := broker.Settings{MaxStoreBytes: 256 << 20, BatchAckWait: 10 * time.Second,
		CallAckWait: 10 * time.Second}
	bubble.Run(t, replicated, func(e *bubble.Env) {
		y := &yard{Env: e, b: e.Broker("test")}
		y.still = y.beat("w")
		k := toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "b"}
		req := events.Requested{Agent: k.Agent, Batch: k.ID, Ticket: 7, QueuedAt: time.Now(),
			Calls: []events.RequestedCall{{Index: 0, ID: "c0", Tool: "read", Attempt: 1}}}
		calls := []batch.Queue{{Route: batch.Route{Pool: toolyard.DefaultPool, Class: toolyard.ReadOnly}, Request: req}}
		q := y.Broker("q")
		q.QueueAll(y.Context(), broker.LaneOf(k.Agent), nil)
		y.Server.LoseAnswers("q", 1)
		first := make(chan broker.Queued, 1)
		go func() { first <- q.QueueAll(y.Context(), broker.LaneOf(k.Agent), calls)[0] }()
		d := y.take(toolyard.ReadOnly) // it runs
		t.Logf("first: again %t fresh %t", d.Calls[0].Again, d.Fresh())
		if err := d.Done(); err != nil {
			y.Fatal(err)
		}
		y.Server.Fill("TY_CALL", true)
		y.Server.Drop("q") // it connects again at once
		if got := <-first; !errors.Is(got.Err, broker.ErrFull) {
			y.Fatalf("the repeat: %+v", got)
		}
		y.Logf("refused after %s", time.Since(req.QueuedAt))
		time.Sleep(500 * time.Millisecond) // as broker.RetryFull does
		y.Server.Fill("TY_CALL", false)
		if got := q.QueueAll(y.Context(), broker.LaneOf(k.Agent), calls)[0]; got.Err != nil {
			y.Fatal(got.Err)
		}
		d = y.take(toolyard.ReadOnly)
		if c := d.Calls[0]; !c.Again && d.Deliveries == 1 && d.Fresh() {
			y.Errorf("the call was handed to a second worker, which runs it without a claim")
		}
	})
}
