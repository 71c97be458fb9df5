package worker

import (
	"context"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// soon is how long a result may take that waits for no other call.
const soon = 20 * time.Millisecond

// TestFastCallsMakeOneEvent: calls that take no time end in one event, also with fewer slots than calls.
func TestFastCallsMakeOneEvent(t *testing.T) {
	for _, slots := range []int{8, 1} {
		inYard(t, slots, func(y *yard) {
			q := y.item(8, 8)
			y.Eventually("all have results", func() bool { return len(q.results()) == 8 })
			if n := len(q.events()); n != 1 {
				y.Errorf("with %d slots eight results take %d events", slots, n)
			}
		})
	}
}

// TestASlowCallHoldsUpNoOther: calls that stand behind a slow one of their item begin beside it, and those that ended
// before it have their results.
func TestASlowCallHoldsUpNoOther(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		y.run = func(context.Context, string) error {
			if y.ran.Load() == 3 {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		began := time.Now()
		q := y.item(6, 6)
		y.Eventually("all others have results", func() bool { return len(q.results()) == 5 })
		if took := time.Since(began); took > soon {
			y.Errorf("it took %s", took)
		}
		y.Eventually("all have results", func() bool { return len(q.results()) == 6 })
	})
}

// TestSlowCallsRunTogether: calls that take long run at a time, as many as may.
func TestSlowCallsRunTogether(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		y.run = func(context.Context, string) error { time.Sleep(10 * time.Second); return nil }
		began := time.Now()
		q := y.item(6, 6)
		y.Eventually("all have results", func() bool { return len(q.results()) == 6 })
		if took := time.Since(began); took > 11*time.Second {
			y.Errorf("it took %s", took)
		}
	})
}

// TestUnstoredEndsAreBounded: when too many calls have given their slots back and are not stored, a call keeps its slot
// until it is, and the next one waits for that.
func TestUnstoredEndsAreBounded(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		y.w.unstored.Store(maxUnstored)
		q := y.item(3, 3)
		y.Eventually("all have results", func() bool { return len(q.results()) == 3 })
		if n := len(q.events()); n != 3 {
			y.Errorf("three results take %d events", n)
		}
		if n := y.w.unstored.Load(); n != maxUnstored {
			y.Errorf("%d are counted as not stored", n-maxUnstored)
		}
	})
	inYard(t, 2, func(y *yard) {
		q := y.item(6, 6)
		y.Eventually("all have results", func() bool { return len(q.results()) == 6 })
		y.Eventually("none is counted", func() bool { return y.w.unstored.Load() == 0 })
	})
}

// TestAWorkerThatCanStoreNothingEndsSoon: however many results a worker holds that cannot be stored, it ends a moment
// after its drain grace.
func TestAWorkerThatCanStoreNothingEndsSoon(t *testing.T) {
	for _, n := range []int{1, 8, 64} {
		inYard(t, 64, func(y *yard) {
			y.run = func(context.Context, string) error { y.Server.Fill("TY_EVENT", true); return nil }
			y.item(n, n)
			y.Eventually("all have run", func() bool { return int(y.ran.Load()) == n })
			time.Sleep(time.Second)
			began := time.Now()
			y.part.End()
			if took := time.Since(began); took > time.Second+2*goodbyeTimeout+time.Second {
				y.Errorf("with %d results it took %s", n, took)
			}
			y.Server.Fill("TY_EVENT", false)
		})
	}
}

// TestAnAbortedCallThatWaitsForASlot ends at once, and has not begun.
func TestAnAbortedCallThatWaitsForASlot(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		gate := make(chan struct{})
		y.run = func(context.Context, string) error { <-gate; return nil }
		q := y.item(3, 3)
		y.Eventually("the first runs", func() bool { return y.ran.Load() == 1 })
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		y.abort(q, 2)
		y.Eventually("it has its result", func() bool { return len(q.results()) == 1 })
		if took := time.Since(began); took > 500*time.Millisecond {
			y.Errorf("it took %s", took)
		}
		if r := q.results()[2]; r.Code != toolyard.Canceled || r.Attempts != 0 {
			y.Errorf("%+v", r)
		}
		close(gate)
	})
}
