package natsbroker_test

import (
	"testing"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestAWorkerOfAnotherPoolKeepsNothingFromTheArchive: what it writes beside a batch that has no call for its pool means
// nothing.
func TestAWorkerOfAnotherPoolKeepsNothingFromTheArchive(t *testing.T) {
	y, s := guardedArchiveYard(t)
	archivedShapes["of two groups"](y, y.submit("victim"))
	mallory := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "mallory"})
	forged(t, mallory, "ty.event.a=2eb.victim.mallory.99", events.Claimed{Worker: "mallory.1", Attempt: 1}, nil)
	y.acknowledge(1)
	a := y.archiver(y.b, always)
	for range 5 {
		r, err := y.round(a)
		if err != nil {
			t.Fatal(err)
		}
		if r.Batches == 1 {
			return
		}
	}
	t.Error("the batch is never archived")
}
