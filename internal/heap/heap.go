// Package heap sets how far the heap grows between two garbage collections.
//
// Go collects when the heap has grown by a share of what is in use. A dispatcher or a worker has a few megabytes in use
// and makes some more of garbage in a hundredth of a second: it would collect thirty times a second. So a small heap
// grows to a floor first, and to a higher one while there is much to do. A large one is collected seldom anyway, so it
// grows by no more than [MaxGrowth], or by [leastPercent].
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// The floors of a long-running command: how large its heap grows, in bytes, before its garbage is collected, however
// little of it is in use. It has BusyFloor while collections follow each other within busyWithin, and Floor again when
// they are further apart than idleAfter. An idle process collects every two minutes.
const (
	Floor      = 16 << 20
	BusyFloor  = 48 << 20
	busyWithin = time.Second
	idleAfter  = 10 * time.Second
)

// MaxGrowth is by how many bytes a heap grows at most between two collections, and leastPercent by which part of what
// is in use it grows at least.
const (
	MaxGrowth    = 64 << 20
	leastPercent = 50
)

// smallest is the heap size below which Go does not collect with 100 percent. It grows with the percentage.
const smallest = 4 << 20

// Grow has the heap grow by percent of what is in use between two collections, and at least to floor bytes: to busy
// bytes while collections are frequent. With floor 0 it grows by percent, however much that is. A memory limit of the
// runtime comes first. A later call replaces an earlier one.
func Grow(percent int, floor, busy uint64) {
	grown.Lock()
	defer grown.Unlock()
	began := grown.idle > 0
	grown.percent, grown.idle, grown.busy, grown.floor, grown.set = percent, floor, busy, floor, percent
	grown.last = time.Now()
	debug.SetGCPercent(percent)
	if !began && floor > 0 {
		afterCollection()
	}
}

var grown struct {
	sync.Mutex
	percent, set int
	idle, busy   uint64
	floor        uint64    // the one of the two that counts now
	last         time.Time // when the last collection was
}

// passed is garbage at once, so that its cleanup runs behind each collection. The pointer keeps it apart from others.
type passed struct{ _ *int }

func afterCollection() {
	runtime.AddCleanup(&passed{}, func(struct{}) {
		adjust()
		afterCollection()
	}, struct{}{})
}

// adjust sets the percentage for what is in use now.
func adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	grown.Lock()
	defer grown.Unlock()
	now := time.Now()
	grown.floor = floorAfter(grown.floor, grown.idle, grown.busy, now.Sub(grown.last))
	grown.last = now
	// Setting it stops all goroutines for a moment: not for a small change.
	if p := percentFor(live[0].Value.Uint64(), grown.percent, grown.floor); p > grown.set*9/8 || p < grown.set*7/8 {
		grown.set = p
		debug.SetGCPercent(p)
	}
}

// floorAfter is the floor after a collection, when the one before was so long ago.
func floorAfter(floor, idle, busy uint64, since time.Duration) uint64 {
	switch {
	case since < busyWithin:
		return max(idle, busy)
	case since > idleAfter:
		return idle
	}
	return floor
}

// percentFor is the percentage with which a heap, of which so many bytes are in use, grows to the floor, or by percent
// if that is more. By percent it grows by no more than MaxGrowth, but by leastPercent.
func percentFor(live uint64, percent int, floor uint64) int {
	live = max(live, 1)
	percent = min(percent, max(leastPercent, int(MaxGrowth*100/live)))
	if live >= floor {
		return percent
	}
	most := floor * 100 / smallest
	return max(percent, int(min((floor-live)*100/live, most)))
}
