package suspend

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asleep := time.Hour // before the process began
		c := NewClock(func() time.Duration { return asleep })
		is := func(what string, since time.Time, want time.Duration) {
			t.Helper()
			if got := c.Elapsed(since); got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		begin := time.Now()
		is("at once", begin, 0)
		time.Sleep(time.Second)
		is("awake", begin, time.Second)
		asleep += 10 * time.Minute
		is("suspended", begin, 10*time.Minute+time.Second)
		is("since then", time.Now(), 0)
		later := time.Now()
		time.Sleep(time.Second)
		asleep += 20 * time.Minute
		is("suspended twice", begin, 30*time.Minute+2*time.Second)
		is("suspended since", later, 20*time.Minute+time.Second)
		asleep += shortest / 2
		is("a read that took long", later, 20*time.Minute+time.Second)
		for range 2 * maxSeen {
			asleep += time.Minute
			c.Elapsed(later)
		}
		// The first two suspensions are no longer told apart: both count.
		is("suspended often", later, 30*time.Minute+time.Second+shortest/2+2*maxSeen*time.Minute)
		is("since then", time.Now(), 0)
		asleep += time.Minute
		awake := c.Now()
		is("since a time that knows of all", awake, 0)
		time.Sleep(time.Second)
		asleep += time.Minute
		is("and suspended once more", awake, time.Minute+time.Second)
		if len(c.seen) > maxSeen {
			t.Errorf("it knows %d suspensions", len(c.seen))
		}
	})
}

// TestMachine: this machine's clock goes on as the monotonic one does while nobody suspends it.
func TestMachine(t *testing.T) {
	begin := time.Now()
	if got, most := Machine.Elapsed(begin), time.Since(begin); got < 0 || got > most {
		t.Errorf("%v, and at most %v are over", got, most)
	}
}
