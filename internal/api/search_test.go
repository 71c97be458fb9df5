package api

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// TestDigestsAreRemembered: of a batch that is over for good, of one that runs for a time that grows with its calls,
// and of none that has another place in the list.
func TestDigestsAreRemembered(t *testing.T) {
	now := time.Now()
	b := client.BatchInfo{Agent: "a", ID: "b", Calls: 1_000, Cursor: 7}
	d := Digest{BatchInfo: b, Tools: []string{"t"}, Codes: []toolyard.Code{}}
	var ds digests
	knows := func(b client.BatchInfo, after time.Duration) bool { return ds.of(b, now.Add(after)).Tools != nil }
	if knows(b, 0) {
		t.Error("it knows what nobody has told")
	}
	ds.put(d, false, now)
	if !knows(b, time.Second-1) || knows(b, time.Second) {
		t.Error("a batch of 1,000 calls that runs is not remembered for a second")
	}
	ds.put(d, true, now)
	if !knows(b, 24*time.Hour) {
		t.Error("a batch that is over is not remembered")
	}
	if b.Cursor = 8; knows(b, 0) {
		t.Error("a batch with an id that was used before is taken for that one")
	}
}
