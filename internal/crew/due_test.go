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

// TestEvery: something is done at each interval, in no goroutine that waits for it, and not after it was stopped;
// stopping waits for what is being done.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int32
		stop := Every(time.Minute, func() {
			time.Sleep(time.Second)
			done.Add(1)
		})
		time.Sleep(3*time.Minute + 30*time.Second)
		if done.Load() != 3 {
			t.Errorf("it was done %d times in three and a half minutes", done.Load())
		}
		time.Sleep(33*time.Second + 500*time.Millisecond) // a second was taken each time
		if stop(); done.Load() != 4 {
			t.Errorf("it was done %d times when stopping had returned", done.Load())
		}
		time.Sleep(time.Hour)
		if done.Load() != 4 {
			t.Error("it was done after it was stopped")
		}
	})
}
