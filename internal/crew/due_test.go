package crew

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
		stop := OnceDue(time.Minute, work, cancel)
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
		stop = OnceDue(time.Minute, work, cancel)
		stop()
		time.Sleep(2 * time.Minute)
		if begun.Load() != 1 {
			t.Error("it has begun although it was stopped")
		}
	})
}
