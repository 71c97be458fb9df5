package natsbroker_test

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
)

// TestForgottenBatchesAreArchived: of those that are not over, an archiver looks again at as many as it may. It finds
// the others too when they are over, though later.
func TestForgottenBatchesAreArchived(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		subs := []toolyard.Batch{y.submit("one"), y.submit("two")}
		var planned []uint64
		for _, sub := range subs {
			planned = append(planned, y.append(sub.Key(), batch.ChainBatch, 0, 0, events.Planned{Owner: "d",
				Deadline: time.Now().Add(time.Hour), SubmissionSeq: y.place(sub.Key()),
				Calls:  []events.PlannedCall{{ID: "0"}, {ID: "1"}, {ID: "2"}},
				Groups: []events.Group{{Calls: []int{0, 1, 2}}}}))
		}
		y.acknowledge(2)
		a := y.archiver(y.b, always)
		natsbroker.LeaveAsManyAsFit(a)
		if r, err := y.round(a); err != nil || r.Batches != 0 {
			y.Fatalf("of batches that are not over: %+v, %v", r, err)
		}
		for n, sub := range subs {
			y.append(sub.Key(), batch.ChainBatch, 0, planned[n], events.Settled{Results: results(0, 1, 2)})
			y.append(sub.Key(), batch.ChainReply, 0, 0, events.Reply{Results: results(0, 1, 2), Completed: true})
		}
		archived := 0
		for range 5 {
			time.Sleep(time.Hour)
			r, err := a.Round(y.Context())
			if err != nil {
				y.Fatal(err)
			}
			archived += r.Batches
		}
		if archived != len(subs) {
			y.Errorf("%d of %d batches were archived when they were over", archived, len(subs))
		}
	})
}
