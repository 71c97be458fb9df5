package breaker

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func allow(t *testing.T, b *Breakers, dep string) func(Outcome) {
	t.Helper()
	done, _, err := b.Allow(dep)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func refused(t *testing.T, b *Breakers, dep string, want time.Duration) {
	t.Helper()
	done, retry, err := b.Allow(dep)
	if !errors.Is(err, ErrOpen) || done != nil || retry != want {
		t.Fatalf("retry after %v, %v; want a refusal for %v", retry, err, want)
	}
}

func trip(t *testing.T, b *Breakers, dep string) {
	t.Helper()
	for range DefaultTripAfter {
		allow(t, b, dep)(Failed)
	}
}

func TestTripsAfterInfrastructureFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		for range 20 { // neither the model's mistakes nor failures with answers between them count
			allow(t, b, "db")(Unrelated)
			allow(t, b, "db")(Failed)
			allow(t, b, "db")(Failed)
			allow(t, b, "db")(Answered)
		}
		for range DefaultTripAfter - 1 {
			allow(t, b, "db")(Failed)
		}
		last := allow(t, b, "db")
		last(Failed)
		last(Answered) // a second report does nothing
		refused(t, b, "db", DefaultOpenFor)
		allow(t, b, "other")(Answered)
		if open := b.OpenUntil(); len(open) != 1 || !open["db"].Equal(time.Now().Add(DefaultOpenFor)) {
			t.Errorf("snapshot: %v", open)
		}
		time.Sleep(10 * time.Second)
		refused(t, b, "db", DefaultOpenFor-10*time.Second)
	})
}

func TestHalfOpenLetsOneProbeThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		trip(t, b, "db")
		time.Sleep(DefaultOpenFor + time.Millisecond)
		probe := allow(t, b, "db")
		refused(t, b, "db", DefaultProbeRetryAfter)
		probe(Unrelated) // it said nothing: another may try
		allow(t, b, "db")(Failed)
		refused(t, b, "db", DefaultOpenFor)
		time.Sleep(DefaultOpenFor + time.Millisecond)
		allow(t, b, "db")(Answered)
		allow(t, b, "db")
		allow(t, b, "db")
		if open := b.OpenUntil(); len(open) != 0 {
			t.Errorf("snapshot: %v", open)
		}
	})
}

func TestImposedByAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := New(Options{}), New(Options{})
		trip(t, theirs, "db")
		time.Sleep(3 * time.Second)
		for dep, until := range theirs.OpenUntil() {
			ours.Impose(dep, until)
		}
		refused(t, ours, "db", DefaultOpenFor-3*time.Second)
		if open := ours.OpenUntil(); len(open) != 0 {
			t.Errorf("an imposed state is echoed: %v", open)
		}
		time.Sleep(DefaultOpenFor)
		probe := allow(t, ours, "db")
		refused(t, ours, "db", DefaultProbeRetryAfter)
		probe(Unrelated)
		allow(t, ours, "db")(Failed) // one failed probe is enough: it is our own trip now
		refused(t, ours, "db", DefaultOpenFor)
		if open := ours.OpenUntil(); len(open) != 1 {
			t.Errorf("snapshot: %v", open)
		}
		time.Sleep(DefaultOpenFor + time.Millisecond)
		allow(t, ours, "db")(Answered)
		allow(t, ours, "db")
		allow(t, ours, "db")

		ours.Impose("web", time.Now().Add(1_000*time.Hour)) // a wrong clock
		refused(t, ours, "web", DefaultOpenFor)
		ours.Impose("past", time.Now().Add(-time.Second))
		allow(t, ours, "past")
		time.Sleep(DefaultOpenFor)
		allow(t, ours, "web")(Answered)
		allow(t, ours, "web")
		allow(t, ours, "web")
	})
}

func TestDependenciesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{MaxDependencies: 3})
		trip(t, b, "down")
		for i := range 10 {
			allow(t, b, fmt.Sprint(i))(Answered)
		}
		if len(b.deps) != 3 {
			t.Errorf("%d dependencies", len(b.deps))
		}
		refused(t, b, "down", DefaultOpenFor) // the one that matters was kept
		trip(t, b, "x")
		trip(t, b, "y")
		refused(t, b, "down", DefaultOpenFor) // used later than x
	})
}

// TestManyThatAreDownStopNoOther: an agent that asks many dead hosts must not stop calls to others.
func TestManyThatAreDownStopNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{MaxDependencies: 3})
		for _, dep := range []string{"x", "y", "z"} {
			trip(t, b, dep)
		}
		allow(t, b, "alive")(Answered)
		if len(b.deps) != 3 {
			t.Errorf("%d dependencies", len(b.deps))
		}
		allow(t, b, "x")(Failed) // forgotten: it was used least recently
		refused(t, b, "z", DefaultOpenFor)
	})
}

// TestASnapshotIsBounded: a heartbeat carries it.
func TestASnapshotIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		for i := range 2 * MaxSnapshot {
			trip(t, b, fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		open := b.OpenUntil()
		if _, last := open[fmt.Sprint(2*MaxSnapshot-1)]; len(open) != MaxSnapshot || !last {
			t.Errorf("%d of them, the last one among them: %t; want the last %d", len(open), last, MaxSnapshot)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	b := New(Options{OpenFor: time.Millisecond, MaxDependencies: 4})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				dep := fmt.Sprint((i + j) % 6)
				if done, _, err := b.Allow(dep); err == nil {
					done([]Outcome{Answered, Failed, Failed, Unrelated}[j%4])
				}
				b.Impose(dep, time.Now().Add(time.Millisecond))
				b.OpenUntil()
			}
		})
	}
	wg.Wait()
}
