package testenv

import (
	"testing"
	"time"
)

// How long [Until] asks, and how long it pauses between two looks.
const (
	untilWait  = time.Minute
	untilPause = 10 * time.Millisecond
)

// Until asks again and again until something holds, and ends the test if it does not within a minute. It is for what
// nobody tells of: what can be waited for is waited for.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(untilWait); !holds(); time.Sleep(untilPause) {
		if time.Now().After(end) {
			t.Fatalf("after %s it does not hold that %s", untilWait, what)
		}
	}
}

// Within is what comes from a channel next. It ends the test if nothing does within a minute.
func Within[T any](t testing.TB, what string, from <-chan T) (next T) {
	t.Helper()
	select {
	case next = <-from:
	case <-time.After(untilWait):
		t.Fatalf("after %s it has not happened that %s", untilWait, what)
	}
	return next
}
