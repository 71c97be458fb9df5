package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

const mib = 1 << 20

// TestGrowthAfter: a heap that is collected often grows by more, and one that is collected seldom by less. How far
// apart collections are to be depends on what is in use, since they look at all of it.
func TestGrowthAfter(t *testing.T) {
	for _, c := range []struct {
		growth, live uint64
		since        time.Duration
		want         uint64
	}{
		{4 * mib, 8 * mib, time.Millisecond, 8 * mib},
		{4 * mib, 8 * mib, often - 1, 8 * mib},
		{4 * mib, 8 * mib, often, 4 * mib},
		{4 * mib, 8 * mib, 3 * often, 4 * mib},
		{4 * mib, 8 * mib, 3*often + 1, 2 * mib},
		{4 * mib, 1000 * mib, 20*time.Second - 1, 8 * mib},
		{4 * mib, 1000 * mib, 60 * time.Second, 4 * mib},
		{4 * mib, 1000 * mib, 61 * time.Second, 2 * mib},
	} {
		if got := growthAfter(c.growth, c.live, c.since); got != c.want {
			t.Errorf("growthAfter(%d MiB, %d MiB in use, %s) = %d, want %d", c.growth/mib, c.live/mib, c.since, got,
				c.want)
		}
	}
}

// TestMostGrowth: a small heap may grow to Busy, a larger one by percent, and a large one by MaxGrowth or by half.
func TestMostGrowth(t *testing.T) {
	for _, c := range []struct{ live, want uint64 }{
		{0, 48 * mib}, {8 * mib, 40 * mib}, {16 * mib, 32 * mib}, {24 * mib, 48 * mib}, {40 * mib, 64 * mib},
		{100 * mib, 64 * mib}, {1000 * mib, 500 * mib},
	} {
		if got := mostGrowth(c.live, 200); got != c.want {
			t.Errorf("mostGrowth(%d MiB in use, 200) = %d, want %d MiB", c.live/mib, got, c.want/mib)
		}
	}
	if got := mostGrowth(Busy, 1); got != minGrowth {
		t.Errorf("by one percent it grows by %d", got)
	}
}

// TestALargeHeapIsNotQuietBetweenCollections: where much is in use collections are far apart at work, and the least
// that the heap grows by is not so little that many follow each other when the work begins.
func TestALargeHeapIsNotQuietBetweenCollections(t *testing.T) {
	for _, c := range []struct {
		live  uint64
		quiet time.Duration
		least uint64
	}{
		{0, quiet, minGrowth}, {50 * mib, quiet, minGrowth}, {1000 * mib, time.Minute, 30 * mib},
		{4000 * mib, 4 * time.Minute, 120 * mib},
	} {
		if got := quietAfter(c.live); got != c.quiet || got < seldom*enough(c.live) {
			t.Errorf("with %d MiB in use it is quiet after %s, want %s", c.live/mib, got, c.quiet)
		}
		if got := leastGrowth(c.live); got != c.least {
			t.Errorf("with %d MiB in use it grows by %d bytes at least, want %d", c.live/mib, got, c.least)
		}
	}
}

func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		growth uint64
		use    use
		want   int
	}{
		{8 * mib, use{live: 7 * mib, roots: mib}, 100},
		{mib, use{live: 99 * mib, roots: mib}, 1},
		{mib, use{live: 900 * mib}, 1},
		{47 * mib, use{live: mib}, 1200}, // 48 MiB, which is 12 times the least
		{mib, use{}, 25},                 // 1 MiB
	} {
		if got := percentFor(c.growth, c.use); got != c.want {
			t.Errorf("percentFor(%d MiB, %+v) = %d, want %d", c.growth/mib, c.use, got, c.want)
		}
	}
}

// TestTheHeapFollowsTheWork: the goal of the next collection grows while much is allocated, and comes down to little
// more than what is in use when nothing is. Fix ends that.
func TestTheHeapFollowsTheWork(t *testing.T) {
	percent := debug.SetGCPercent(100)
	t.Cleanup(func() { Fix(percent) })
	Adapt(200)
	var garbage []byte
	settle(t, "at work", func(goal, live uint64) bool { return goal-live > 30*mib }, func() {
		for range 64 {
			garbage = make([]byte, mib)
		}
		runtime.KeepAlive(garbage)
	})
	giveBack()
	settle(t, "at rest", func(goal, live uint64) bool { return goal-live < 5*mib }, func() {})
	Fix(100)
	runtime.GC()
	if p := debug.SetGCPercent(100); p != 100 {
		t.Errorf("the percentage is %d behind Fix(100)", p)
	}
}

// settle does something until the goal of the next collection is right.
func settle(t *testing.T, when string, right func(goal, live uint64) bool, work func()) {
	t.Helper()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	for range 1_000 {
		work()
		if metrics.Read(s); right(s[0].Value.Uint64(), s[1].Value.Uint64()) {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%s, the next collection is at %d bytes, with %d in use", when, s[0].Value.Uint64(), s[1].Value.Uint64())
}
