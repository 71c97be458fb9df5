// Package heap sets how far the heap grows between two garbage collections.
//
// Go collects when the heap has grown by a share of what is in use. A dispatcher at work has a few megabytes in use and
// makes some more of garbage in a hundredth of a second: it would collect thirty times a second. One with nothing to do
// keeps room that it does not need. So the heap grows by what is allocated within some seconds: by little while there
// is little to do, and to [Busy] while there is much. See docs/adr/0078-the-heap-grows-by-what-is-allocated.md.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Busy is the size in bytes to which the heap of a process at work may grow, however little of it is in use.
const Busy = 48 << 20

// MaxGrowth is by how many bytes a heap grows at most between two collections that is larger than [Busy], and
// leastPercent by which part of what is in use it may grow at least, in percent.
const (
	MaxGrowth    = 64 << 20
	leastPercent = 50
)

// The heap grows by firstGrowth bytes until the first collection. It never grows by less than minGrowth, or by
// leastShare of what is in use, in percent, if that is more.
const (
	firstGrowth = 16 << 20
	minGrowth   = 2 << 20
	leastShare  = 3
)

// A collection looks at all that is in use, in about a millisecond for each MiB. So collections are far enough apart if
// for each MiB there are perMiB: they take about a twentieth of one processor then. A second is far enough for any
// process of at most 50 MiB. They are too far apart if it is seldom times as long.
const (
	often  = time.Second
	perMiB = 20 * time.Millisecond
	seldom = 3
)

// quiet is after what time without a collection there is one, and what the heap does not need is given back. It is
// longer where so much is in use that collections are further apart at work.
const quiet = 10 * time.Second

// A growth that would change the percentage by less than a part in slack stays: setting it stops all goroutines for a
// moment.
const slack = 8

var heap struct {
	sync.Mutex
	percent int // 0: as Fix has set it
	growth  uint64
	last    time.Time // when the last collection was
	set     int
	// quiet calls giveBack when there was no collection for so long.
	quiet *time.Timer
	// watched says that collections call collected.
	watched bool
}

// Adapt has the heap grow by what is allocated within some seconds, and never by more than percent of what is in use
// once it is larger than [Busy]. A memory limit of the runtime comes first. A later Adapt or Fix replaces it.
func Adapt(percent int) {
	heap.Lock()
	defer heap.Unlock()
	heap.percent, heap.set, heap.growth, heap.last = percent, percent, firstGrowth, time.Now()
	debug.SetGCPercent(percent)
	if heap.quiet == nil {
		heap.quiet = time.AfterFunc(quiet, giveBack)
	}
	heap.quiet.Reset(quiet)
	if !heap.watched {
		heap.watched = true
		watch()
	}
	adjust(inUse())
}

// Fix has the heap grow by percent of what is in use, however much that is.
func Fix(percent int) {
	heap.Lock()
	defer heap.Unlock()
	if heap.percent = 0; heap.quiet != nil {
		heap.quiet.Stop()
	}
	debug.SetGCPercent(percent)
}

// passed is garbage at once, so that its cleanup runs behind each collection. The pointer keeps it apart from others.
type passed struct{ _ *int }

// watch has collected run behind each collection.
func watch() {
	runtime.AddCleanup(&passed{}, func(struct{}) {
		collected()
		watch()
	}, struct{}{})
}

func collected() {
	heap.Lock()
	defer heap.Unlock()
	if heap.percent == 0 {
		return
	}
	now, u := time.Now(), inUse()
	heap.growth = growthAfter(heap.growth, u.live, now.Sub(heap.last))
	heap.last = now
	adjust(u)
	if heap.growth > leastGrowth(u.live) {
		heap.quiet.Reset(quietAfter(u.live))
	}
}

// giveBack collects, and gives back what the heap does not need when it grows by the least.
func giveBack() {
	heap.Lock()
	adapts := heap.percent > 0
	heap.growth, heap.last = 0, time.Time{} // the least; the collection below is no sign of work
	heap.Unlock()
	if adapts {
		debug.FreeOSMemory() // collects
	}
}

// adjust sets the percentage for the growth and what is in use now.
func adjust(u use) {
	heap.growth = min(max(heap.growth, leastGrowth(u.live)), mostGrowth(u.live, heap.percent))
	if p := percentFor(heap.growth, u); p > heap.set+heap.set/slack || p < heap.set-heap.set/slack {
		heap.set = p
		debug.SetGCPercent(p)
	}
}

// use is what the last collection has found, in bytes.
type use struct {
	live  uint64 // the objects in use
	roots uint64 // stacks and global variables, which Go counts for the growth
}

func inUse() use {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	return use{live: s[0].Value.Uint64(), roots: s[1].Value.Uint64() + s[2].Value.Uint64()}
}

// growthAfter is by how many bytes the heap grows behind a collection, if the one before was so long ago and it has
// grown by growth since.
func growthAfter(growth, live uint64, since time.Duration) uint64 {
	switch enough := enough(live); {
	case since < enough:
		return 2 * growth
	case since > seldom*enough:
		return growth / 2
	}
	return growth
}

// enough is how far apart collections are to be at least, when so much is in use.
func enough(live uint64) time.Duration { return max(often, time.Duration(live>>20)*perMiB) }

// quietAfter is after what time without a collection a process is quiet.
func quietAfter(live uint64) time.Duration { return max(quiet, seldom*enough(live)) }

// leastGrowth is by how many bytes the heap grows at least.
func leastGrowth(live uint64) uint64 { return max(minGrowth, live*leastShare/100) }

// mostGrowth is by how many bytes the heap may grow, when so much is in use: to Busy, or by percent if that is more. By
// percent it grows by no more than MaxGrowth, but by leastPercent.
func mostGrowth(live uint64, percent int) uint64 {
	most := min(live*uint64(percent)/100, max(MaxGrowth, live*leastPercent/100))
	if live < Busy {
		most = max(most, Busy-live)
	}
	return max(most, leastGrowth(live))
}

// percentFor is the percentage with which a heap grows by so many bytes. At 100 percent Go collects no heap below
// smallest. That size grows with the percentage.
func percentFor(growth uint64, u use) int {
	return max(1, int(min(growth*100/max(u.live+u.roots, 1), (u.live+growth)*100/smallest)))
}

const smallest = 4 << 20
