package gate

import (
	"context"
	"errors"
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

// TestLockWithin: who waits for a gate waits no longer than its context, whoever has the gate, and leaves it to others.
func TestLockWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		if err := g.LockWithin(t.Context()); err != nil {
			t.Fatal(err)
		}
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
		defer cancel()
		began := time.Now()
		if err := g.LockWithin(ctx); err != late || time.Since(began) != time.Second {
			t.Errorf("after %s: %v; want %v after a second", time.Since(began), err, late)
		}
		g.Unlock()
		if err := g.LockWithin(ctx); err != late {
			t.Errorf("with a context that is over: %v", err)
		}
		if err := g.LockWithin(t.Context()); err != nil {
			t.Error(err)
		}
		g.Unlock()
		if err := g.LockWithin(t.Context()); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
}
