package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard/internal/pipeline"
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

// TestOnceDue: what is due later begins when the time has passed, not before and not when it was stopped; stopping
// waits until what has begun has ended.
func TestOnceDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		work := func() {
			begun.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) // it takes a while to end
			ended.Add(1)
		}
		stop := onceDue(time.Minute, work, cancel)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if begun.Load() != 0 {
			t.Error("it has begun before it is due")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if stop(); begun.Load() != 1 || ended.Load() != 1 {
			t.Errorf("it has begun %d times and ended %d times", begun.Load(), ended.Load())
		}
		stop = onceDue(time.Minute, work, cancel)
		stop()
		time.Sleep(2 * time.Minute)
		if begun.Load() != 1 {
			t.Error("it has begun although it was stopped")
		}
	})
}

// TestDecidesAtOnce: a path is looked up in a file system, which may hang, so its call keeps a goroutine for that.
func TestDecidesAtOnce(t *testing.T) {
	in := &pipeline.PermissionInput{}
	if !(Permission{}).DecidesAtOnce(in) {
		t.Error("a call without a path waits for nothing")
	}
	if in.Declaration.Specifier.Path = "path"; (Permission{}).DecidesAtOnce(in) {
		t.Error("a call with a path may wait for its file system")
	}
}
