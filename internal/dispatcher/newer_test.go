package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestLeftBatchesAreCounted while they come again, and the log says why once a minute.
func TestLeftBatchesAreCounted(t *testing.T) {
	var l left
	now := time.Now()
	key := func(a string, n int) toolyard.BatchKey {
		return toolyard.BatchKey{Agent: toolyard.Agent(a), ID: toolyard.BatchID(fmt.Sprint(n))}
	}
	for n := range 3 {
		l.note(key("a", n), now)
		l.note(key("a", n), now) // delivered again
	}
	if all, agents := l.note(key("b", 0), now); all != 4 || agents != 1 {
		t.Errorf("%d are left, %d of b", all, agents)
	}
	if !l.recently(key("b", 0), now.Add(lookAgain/2)) || l.recently(key("b", 0), now.Add(lookAgain)) || l.recently(key("c", 0), now) {
		t.Error("a batch is not looked at again, or at once")
	}
	l.forget(key("b", 0))
	if all, agents := l.note(key("a", 0), now.Add(leftFor+time.Second)); all != 1 || agents != 1 {
		t.Errorf("%d are left, %d of a, when the others have not come again for long", all, agents)
	}
	if !l.tell("x", now) || l.tell("x", now.Add(time.Second)) || !l.tell("y", now) || !l.tell("x", now.Add(tellNewerEvery)) {
		t.Error("the log says it too often, or not at all")
	}
	for n := range 10 * maxTold {
		l.tell(fmt.Sprint(n), now)
	}
	if len(l.told) > maxTold {
		t.Errorf("%d reasons are remembered", len(l.told))
	}
}
