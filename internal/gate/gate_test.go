package gate

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneAtATime: who waits for a gate is durably blocked, so that time passes, and gets it when it is given back.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		inside, most := 0, 0
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				g.Lock()
				defer g.Unlock()
				inside++
				most = max(most, inside)
				time.Sleep(time.Second)
				inside--
			})
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); most != 1 || took != 10*time.Second {
			t.Errorf("%d were inside at a time, and it took %s; want 1 and 10s", most, took)
		}
	})
}
