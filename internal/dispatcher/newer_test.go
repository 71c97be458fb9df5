package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestLeftBatchesAreCounted while they come again, and the log says why once a minute.
func TestLeftBatchesAreCounted(t *testing.T) {
	var l newerBatches
	now := time.Now()
	key := func(a string, n int) toolyard.BatchKey {
		return toolyard.BatchKey{Agent: toolyard.Agent(a), ID: toolyard.BatchID(fmt.Sprint(n))}
	}
	for n := range 3 {
		l.add(key("a", n), now)
		l.add(key("a", n), now) // delivered again
	}
	if all, agents := l.add(key("b", 0), now); all != 4 || agents != 1 {
		t.Errorf("%d are left, %d of b", all, agents)
	}
	if !l.seenRecently(key("b", 0), now.Add(retryNewerAfter/2)) || l.seenRecently(key("b", 0),
		now.Add(retryNewerAfter)) || l.seenRecently(key("c", 0), now) {
		t.Error("a batch is not looked at again, or at once")
	}
	l.remove(key("b", 0))
	if all, agents := l.add(key("a", 0), now.Add(newerKeptFor+time.Second)); all != 1 || agents != 1 {
		t.Errorf("%d are left, %d of a, when the others have not come again for long", all, agents)
	}
	if !l.shouldLog("x", now) || l.shouldLog("x", now.Add(time.Second)) || !l.shouldLog("y", now) ||
		!l.shouldLog("x", now.Add(logNewerEvery)) {
		t.Error("the log says it too often, or not at all")
	}
	for n := range 10 * maxNewerReasons {
		l.shouldLog(fmt.Sprint(n), now)
	}
	if len(l.told) > maxNewerReasons {
		t.Errorf("%d reasons are remembered", len(l.told))
	}
}
