package worker

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// TestBegun: what a worker remembers of attempts whose end it has not stored is dropped when no stream keeps them any
// more, and no sooner.
func TestBegun(t *testing.T) {
	s := broker.Settings{Lifetime: time.Hour, Slack: time.Minute}
	var b begun
	start := time.Now()
	key := func(n int) attemptKey { return attemptKey{attempt: n} }
	for n := range 3 * leastBegun {
		b.note(key(n), start.Add(time.Duration(n)*time.Second), s)
	}
	if len(b.at) != 3*leastBegun {
		t.Errorf("%d of %d attempts are remembered within the lifetime", len(b.at), 3*leastBegun)
	}
	late := start.Add(3*leastBegun*time.Second + s.Lifetime + 2*s.Slack)
	for n := range 3 * leastBegun {
		b.note(key(-1-n), late, s)
	}
	if _, has := b.at[key(0)]; has || len(b.at) > 4*leastBegun {
		t.Errorf("%d attempts are remembered, the first one: %t", len(b.at), has)
	}
}
