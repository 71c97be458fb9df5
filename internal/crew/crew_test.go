package crew

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestACrewRunsOneThingAfterTheOther: everything runs, also what comes while all are busy; the goroutines that were
// needed run what comes next, most of them end when nothing comes, and when the crew has ended none is left: the bubble
// would not end.
func TestACrewRunsOneThingAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		var mu sync.Mutex
		ran, most := 0, 2*maxIdle
		for range 3 {
			var group sync.WaitGroup
			together := make(chan struct{})
			for range most {
				c.Run(&group, func() {
					<-together
					mu.Lock()
					defer mu.Unlock()
					ran++
				})
			}
			synctest.Wait()
			close(together)
			group.Wait()
			synctest.Wait()
			if idle := c.idle.Load(); idle != maxIdle {
				t.Errorf("%d wait, want %d", idle, maxIdle)
			}
		}
		if ran != 3*most {
			t.Errorf("%d ran, want %d", ran, 3*most)
		}
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if idle := c.idle.Load(); idle != keptIdle {
			t.Errorf("%d still wait, want %d", idle, keptIdle)
		}
		c.End()
	})
}
