package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// TestAnAgentKeepsNoDeadWorkerAlive: what an agent writes about its own batch is no sign of life of a worker.
func TestAnAgentKeepsNoDeadWorkerAlive(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		still := y.beat("dying")
		evil := y.submitBatch(toolyard.Batch{Agent: "eve", Open: true, Calls: []toolyard.Call{}})
		k := y.submit("write")
		y.claim(y.take(toolyard.WriteExclusive), "dying")
		still()
		eve := y.Conn("eve")
		ttl := y.b.Settings().WorkerTTL
		for n := range 100 { // a grant of agents: *.event.<own>.*._.control
			m := nats.NewMsg("ty.event." + broker.KeyTokens(evil) + "._.control")
			m.Data = []byte("{}")
			m.Header.Set("ce-id", fmt.Sprint("forged", n))
			m.Header.Set("ce-source", "/worker/dying")
			if err := eve.PublishMsg(m); err != nil {
				y.Fatal(err)
			}
			time.Sleep(ttl / 4)
		}
		if r := y.settled(k); r == nil {
			y.Errorf("25 worker TTLs after its worker has died a call of another agent is not settled")
		} else if r.Code != toolyard.OutcomeUnknown {
			y.Errorf("%+v", r)
		}
	})
}
