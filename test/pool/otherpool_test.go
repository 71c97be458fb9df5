package pool

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAWorkerOfAnotherPoolTakesNoBatchFromItsOwner: what a worker of a pool writes beside a batch that has no call for
// its pool changes nothing.
func TestAWorkerOfAnotherPoolTakesNoBatchFromItsOwner(t *testing.T) {
	s := testenv.Guarded(t)
	b, js := attackedPool(t, s)
	stream := testenv.Stream(t, js, "TY_EVENT")
	last := func() string {
		m, err := stream.GetLastMsgForSubject(t.Context(), "ty.event.ann.att._.batch")
		if err != nil {
			return ""
		}
		return m.Header.Get("ce-type")
	}
	testenv.Until(t, "the batch is planned", func() bool { return last() != "" })
	mallory := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "other"})
	data := must.JSON(t, events.Claimed{Worker: "other.1", Attempt: 1})
	m := nats.NewMsg("ty.event.ann.att.other.7")
	m.Data = data
	for name, value := range map[string]string{"ce-specversion": "1.0", "ce-id": "forged",
		"ce-source": "/workers/other.1",
		"ce-type":   string(events.CallClaimed), "ce-subject": "ann/att/7"} {
		m.Header.Set(name, value)
	}
	if _, err := mallory.RequestMsg(m, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	// The owner ends the batch: an owner that thought itself lost would have left that to the next one.
	must.OK(t, b.Cancel(t.Context(), toolyard.BatchKey{Agent: "ann", ID: "att"}, "it is over"))
	testenv.Until(t, "the batch is over", func() bool {
		s, err := b.Look(t.Context(), toolyard.BatchKey{Agent: "ann", ID: "att"})
		if err == nil && s.Takeovers > 0 {
			t.Fatalf("the batch has had %d other owners", s.Takeovers)
		}
		return err == nil && s.Completed
	})
}
