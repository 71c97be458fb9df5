package worker

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestACrewRunsOneThingAfterTheOther: everything runs, also what comes while all are busy, and when the crew has ended
// no goroutine is left: the bubble would not end.
func TestACrewRunsOneThingAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew()
		var mu sync.Mutex
		ran, most := 0, 2*maxIdle
		for range 3 {
			var group sync.WaitGroup
			together := make(chan struct{})
			for range most {
				c.run(&group, func() {
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
		c.end()
	})
}
