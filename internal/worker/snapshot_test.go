package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
)

// TestASecondAttemptWithoutSnapshots: a call of a batch that is to be kept undoable, whose first attempt ran elsewhere,
// ends on a worker that keeps no snapshots. The worker does not.
func TestASecondAttemptWithoutSnapshots(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		_, e, ok := y.w.tools.Lookup("put")
		if !ok {
			y.Fatal("the worker has no such tool")
		}
		judgement, _ := registry.Judge(e.Declaration, json.RawMessage(`{}`), nil)
		req := events.Requested{Agent: toolyard.DefaultAgent, Batch: toolyard.BatchID(broker.NewID()),
			Session: toolyard.DefaultSession, Workspace: toolyard.DefaultWorkspace, QueuedAt: time.Now(),
			MaxAttempts: 3, RemainingMS: time.Hour.Milliseconds(), Width: 1, Ticket: 7, Snapshot: true,
			Calls: []events.RequestedCall{{ID: "c", Tool: "put", Input: json.RawMessage(`{}`), Declaration: e.Hash,
				Judgement: judgement, Claim: true, Attempt: 2}}}
		sent := y.b.QueueAll(y.Context(), 0, []batch.Queue{{
			Route: batch.Route{Pool: toolyard.DefaultPool, Class: judgement.Class}, Request: req}})
		if sent[0].Err != nil {
			y.Fatal(sent[0].Err)
		}
		q := queued{y, toolyard.BatchKey{Agent: req.Agent, ID: req.Batch}, sent[0].Seq}
		if r := q.result(); r.Code != toolyard.SetupRequired {
			y.Errorf("%+v", r)
		}
	})
}
