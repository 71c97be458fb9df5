package dispatcher

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// deafOwner is a broker whose live copies are all lost.
type deafOwner struct{ *natsbroker.Broker }

func (b deafOwner) FollowEvents(k toolyard.BatchKey, room int) (broker.Feed, error) {
	f, err := b.Broker.FollowEvents(k, room)
	return unheard{f}, err
}

// TestALostCopyAmongManyCalls: what no copy tells of is read from the log soon, however many calls are in flight beside
// it.
func TestALostCopyAmongManyCalls(t *testing.T) {
	const inFlight = 5 * maxReads
	inYard(t, func(y *yard) {
		cfg := Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}
		budgets(t, "batch *=calls:1000")(&cfg) // each call goes in a message of its own
		y.Start(New(deafOwner{y.Broker("d")}, cfg))
		y.settle()
		calls := make([]toolyard.Call, inFlight+1)
		for i := range calls {
			calls[i].Tool = "read"
		}
		k := y.submitBatch(toolyard.Batch{Calls: calls, Options: toolyard.Options{MaxConcurrency: inFlight}})
		js, err := jetstream.New(y.Conn("test"))
		must.OK(t, err)
		stream, err := js.Stream(y.Context(), "TY_CALL")
		must.OK(t, err)
		queued := func(want uint64) func() bool {
			return func() bool {
				info, err := stream.Info(y.Context())
				return err == nil && info.State.Msgs == want
			}
		}
		y.Eventually("all calls but one are in flight", queued(inFlight))
		p := y.fold(k).Plan.Calls[inFlight-1]
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, inFlight-1, 0,
			events.Finish(events.End{Result: toolyard.Result{Index: inFlight - 1, CallID: p.ID, Tool: p.Tool,
				Worker: "w", Attempts: 1}})); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		y.Eventually("the last call is in flight", queued(inFlight+1))
		if took, most := time.Since(began), 10*broker.Heartbeat(y.b.Settings().BatchAckWait); took > most {
			t.Errorf("its owner learned of a result after %s", took)
		}
	})
}
