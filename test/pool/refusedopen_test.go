package pool

import (
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestAnAppendToARefusedBatchWithoutAReply: a batch is refused for want of room, and its input is closed. The disk has
// no room for the reply yet. Who appends hears of the refusal, and not that the batch was closed.
func TestAnAppendToARefusedBatchWithoutAReply(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/dispatcher/a")
	c, err := client.Connect(t.Context(), testenv.Conn(t, s), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := c.Open(t.Context(), toolyard.Batch{ID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	k := open.Key()
	full := events.Refused{Type: "about:blank", Title: "Service Unavailable", Status: 503, Detail: "the disk is full"}
	if _, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, 0, full); err != nil {
		t.Fatal(err)
	}
	closed := events.Closed{By: "dispatcher", Reason: "the batch was refused"}
	if _, err := b.Input(t.Context(), k, 0, closed); err != nil {
		t.Fatal(err)
	}
	err = open.Append(t.Context(), toolyard.Call{Tool: "read"})
	r, ok := errors.AsType[*client.RefusedError](err)
	if !ok || r.Detail != full.Detail || !errors.Is(err, client.ErrFull) {
		t.Errorf("the append says %v", err)
	}
}
