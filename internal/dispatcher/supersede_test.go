package dispatcher

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestWhatABatchSupersedes: a batch ends what waits of the batches that came before it. A dispatcher that plans it
// late, after it stood still or because the batch waited for its turn, ends nothing of a batch that came after it.
func TestWhatABatchSupersedes(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		y.settle()
		waits := func() toolyard.BatchKey {
			k := y.submitBatch(toolyard.Batch{Interactive: true, Calls: []toolyard.Call{{Tool: "read"}}})
			d := y.take(toolyard.ReadOnly)
			if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, 0,
				events.Waiting{Worker: "w"}); err != nil {
				y.Fatal(err)
			}
			must.OK(y.T, d.Done())
			y.Eventually("the call is listed", func() bool {
				list, err := y.b.Approvals(y.Context(), k.Agent)
				return err == nil && len(list) > 0 && list[0].Batch == k.ID
			})
			return k
		}
		before := waits()
		next := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}},
			Options: toolyard.Options{Supersede: true}})
		if got := y.codes(before); got != "approval_expired" {
			y.Errorf("what waited before it: %s", got)
		}
		time.Sleep(time.Second)
		if err := y.take(toolyard.ReadOnly).Done(); err != nil { // the call of the batch itself
			y.Fatal(err)
		}
		after := waits()
		s := y.fold(next)
		must.OK(y.T, New(y.Broker("d2"), Config{ID: "d2", Log: y.Log(), Planner: planner()}).supersede(y.Context(),
			&s))
		if c := y.fold(after).Calls[0]; c.Status != batch.Waiting {
			y.Errorf("the call of a batch that came after it is %s: %+v", c.Status, c.Decision)
		}
	})
}

// TestSupersedingWhatWasGivenUp: a batch whose log contradicts itself does not stop the session's next batch.
func TestSupersedingWhatWasGivenUp(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		y.settle()
		k := y.submitBatch(toolyard.Batch{Interactive: true, Calls: []toolyard.Call{{Tool: "read"}}})
		d := y.take(toolyard.ReadOnly)
		rec, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, 0, events.Waiting{Worker: "w"})
		must.OK(y.T, err)
		must.OK(y.T, d.Done())
		y.settle()
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, rec.Seq,
			events.Waiting{Worker: "w"}); err != nil { // it waits already
			y.Fatal(err)
		}
		next := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}},
			Options: toolyard.Options{Supersede: true}})
		y.work()
		if got := y.codes(next); got != "ok" {
			y.Errorf("the next batch: %s", got)
		}
	})
}
