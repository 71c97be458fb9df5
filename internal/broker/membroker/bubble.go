package membroker

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// bubbles is held by the bubble that runs.
var bubbles sync.Mutex

// Bubble runs a test in a bubble, as synctest.Test does, one at a time, with nothing in the pool of timers of nats.go:
// a timer that was made in another bubble, or outside of any, must not be used. So no other test of the process may
// use nats.go at the same time: a test that calls Bubble is not parallel to such tests.
func Bubble(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	bubbles.Lock()
	defer bubbles.Unlock()
	emptyPools()
	defer emptyPools()
	synctest.Test(t, run)
}

// BubbleOfMany is [Bubble] for a process in which nothing but such bubbles uses nats.go: it empties the pools before,
// and leaves what is in them behind to the next one, which saves half of the collections.
func BubbleOfMany(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	bubbles.Lock()
	defer bubbles.Unlock()
	emptyPools()
	synctest.Test(t, run)
}

// emptyPools empties every sync.Pool of the process: what was there survives one collection.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
