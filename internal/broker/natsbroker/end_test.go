package natsbroker_test

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestABatchThatCannotGoOnKeepsItsEchoes: every call is answered, with what its provider wants back.
func TestABatchThatCannotGoOnKeepsItsEchoes(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	sub := submission("b")
	sub.Calls = []toolyard.Call{{ID: "1", Tool: "t", Input: json.RawMessage(`{}`), Echo: toolyard.Echo(`{"n":1}`)},
		{ID: "2", Tool: "t", Input: json.RawMessage(`{}`)}}
	must.OK(t, b.Submit(t.Context(), sub))
	must.OK(t, b.EndReplies(t.Context(), sub.Key(), &sub, "a test"))
	records, err := b.Replies(t.Context(), sub.Key(), 0)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d replies, %v", len(records), err)
	}
	replies := records[0].Body.(events.Reply).Results
	if len(replies) != 2 || string(replies[0].Echo) != `{"n":1}` || replies[1].Echo != nil ||
		replies[0].Code != toolyard.InternalError {
		t.Errorf("%+v", replies)
	}
}
