package toolset

import (
	"testing"
	"time"
)

// TestWhatIsLostBetweenStreams: the list is read again behind every stream, at once or, where the server ends them all
// the time, once for several; never not at all.
func TestWhatIsLostBetweenStreams(t *testing.T) {
	t.Parallel()
	var l lost
	at := time.Now()
	for _, step := range []struct {
		what  string
		after time.Duration
		wait  time.Duration
		ok    bool
		read  bool // then the list is read again
	}{
		{"the second stream", time.Second, 0, true, true},
		{"one soon behind it", 10 * time.Second, lastingAfter - 10*time.Second, true, false},
		{"one while a reading is due", time.Second, 0, false, true},
		{"one behind that reading", time.Second, lastingAfter - time.Second, true, true},
		{"one after long", time.Hour, 0, true, true},
	} {
		at = at.Add(step.after)
		if wait, ok := l.follows(at); wait != step.wait || ok != step.ok {
			t.Errorf("%s: in %s (%t), want %s (%t)", step.what, wait, ok, step.wait, step.ok)
		}
		if step.read {
			l.read(at)
		}
	}
}
