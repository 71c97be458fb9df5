package must

import (
	"testing"
	"time"
	"unsafe"
)

// Step is a time as a process reads it after somebody has set the machine's clock, or has suspended the machine: the
// wall clock shows another time, and the monotonic one has gone on.
func Step(t testing.TB, now time.Time, by time.Duration) time.Time {
	t.Helper()
	out := now
	// With a monotonic reading, the upper bits of the first word are the seconds of the wall clock, above 30 bits of
	// nanoseconds.
	*(*uint64)(unsafe.Pointer(&out)) += uint64(by/time.Second) << 30
	if out.Sub(now) != 0 || out.Round(0).Sub(now.Round(0)) != by {
		t.Fatalf("%v is not %v by another clock", out, now)
	}
	return out
}
