package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live  uint64
		floor uint64
		want  int
	}{
		{0, 48 * mib, 1200}, {1 * mib, 48 * mib, 1200}, {4 * mib, 48 * mib, 1100}, {8 * mib, 48 * mib, 500},
		{16 * mib, 48 * mib, 200}, {40 * mib, 48 * mib, 160}, {48 * mib, 48 * mib, 133},
		{32 * mib, 16 * mib, 200}, {64 * mib, 48 * mib, 100}, {128 * mib, 48 * mib, 50}, {1 << 40, 48 * mib, 50},
	} {
		if got := percentFor(c.live, 200, c.floor); got != c.want {
			t.Errorf("percentFor(%d MiB in use, 200, %d MiB) = %d, want %d", c.live/mib, c.floor/mib, got, c.want)
		}
	}
}

func TestFloorAfter(t *testing.T) {
	const idle, busy = Floor, BusyFloor
	for _, c := range []struct {
		floor uint64
		since time.Duration
		want  uint64
	}{
		{idle, 0, busy}, {idle, busyWithin - 1, busy}, {idle, busyWithin, idle}, {busy, busyWithin, busy},
		{busy, idleAfter, busy}, {busy, idleAfter + 1, idle}, {idle, idleAfter + 1, idle},
	} {
		if got := floorAfter(c.floor, idle, busy, c.since); got != c.want {
			t.Errorf("floorAfter(%d, %s) = %d, want %d", c.floor, c.since, got, c.want)
		}
	}
	if got := floorAfter(idle, idle, 0, 0); got != idle {
		t.Errorf("without a floor for busy times it is %d", got)
	}
}

// TestASmallHeapGrowsToTheFloor: with little in use the collector runs when the heap has the floor's size, and with
// much when it has grown by half.
func TestASmallHeapGrowsToTheFloor(t *testing.T) {
	percent := debug.SetGCPercent(100)
	t.Cleanup(func() { Grow(percent, 0, 0) })
	const floor = 64 << 20
	Grow(200, floor, floor)
	settle(t, func(goal uint64) bool { return goal >= floor*3/4 && goal <= floor*5/4 })
	kept := make([]byte, 2*floor)
	settle(t, func(goal uint64) bool { return goal >= 5*floor/2 && goal <= 4*floor })
	runtime.KeepAlive(kept)
}

// settle collects garbage until the goal of the next collection is as it should be.
func settle(t *testing.T, right func(goal uint64) bool) {
	t.Helper()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	for range 1_000 {
		runtime.GC()
		if metrics.Read(goal); right(goal[0].Value.Uint64()) {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("the next collection is at %d bytes", goal[0].Value.Uint64())
}
