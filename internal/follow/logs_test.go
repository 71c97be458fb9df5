package follow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
)

// TestLogsAreBounded: of the logs that people look at, those that were used last are kept: so many, so many bytes, and
// for so long.
func TestLogsAreBounded(t *testing.T) {
	key := func(n int) toolyard.BatchKey {
		return toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprintf("b%d", n))}
	}
	synctest.Test(t, func(t *testing.T) {
		l := NewLogs(nil)
		use := func(n, size int) {
			t.Helper()
			time.Sleep(time.Millisecond)
			log := l.find(key(n))
			log.size = size
			l.keep(key(n), log)
			sum := 0
			for _, log := range l.kept {
				sum += log.bytes
			}
			if sum != l.bytes || l.bytes > maxLogsBytes || len(l.kept) > MaxLogs {
				t.Fatalf("after log %d: %d logs of %d bytes, counted as %d", n, len(l.kept), sum, l.bytes)
			}
		}
		kept := func(n int) bool { return l.kept[key(n)] != nil }
		for n := range MaxLogs {
			use(n, 10)
		}
		use(0, 20) // it grows
		use(MaxLogs, 10)
		if !kept(0) || kept(1) || !kept(2) {
			t.Error("the log that was used longest ago is not the one that went")
		}
		use(2, maxLogsBytes-100)
		if !kept(0) || !kept(2) || kept(3) {
			t.Error("a long log drove out more or less than it had to")
		}
		use(3, maxLogsBytes+1)
		if len(l.kept) != 0 {
			t.Errorf("a log that is too long is kept, or others beside it: %d", len(l.kept))
		}
		use(4, 10)
		time.Sleep(logAge)
		use(5, 10)
		if kept(4) || !kept(5) {
			t.Error("an old log is kept")
		}
	})
}
