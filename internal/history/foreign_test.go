package history

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAClaimOfAnotherPool: what a worker of another pool writes beside a batch means nothing, whichever call it names.
func TestAClaimOfAnotherPool(t *testing.T) {
	for _, body := range []events.Body{events.Claimed{Call: 1_000, Worker: "mallory.1", Attempt: 1},
		events.AttemptFailed{Call: -1, Attempt: 1}} {
		k := toolyard.BatchKey{Agent: "a", ID: "b"}
		sub := toolyard.Batch{Agent: k.Agent, ID: k.ID, Calls: []toolyard.Call{{Tool: "x"}}}
		sub.Normalize("")
		l := New(k, 1, time.Now())
		l.Add(batch.Record{Chain: batch.ChainSubmission, Seq: 1, Body: events.Submitted{Batch: sub}})
		l.Add(batch.Record{Chain: batch.ChainBatch, Seq: 2, Body: events.Planned{Owner: "d",
			Calls: []events.PlannedCall{{ID: "0", Pool: "p"}}, Groups: []events.Group{{Calls: []int{0}}}}})
		l.Add(batch.Record{Chain: batch.ChainItem, Pool: "mallory", Index: 0, Seq: 3, Body: body})
		if b, _ := l.Rows(); b.Problem != nil {
			t.Errorf("%T: %s", body, *b.Problem)
		}
	}
}
