// Package suspend has a clock that goes on while the machine is suspended. Go's monotonic clock stands still then, at
// least on Linux, and the wall clock may be set.
package suspend

import (
	"sync"
	"time"
)

const (
	// shortest is the shortest suspension that is noticed: the two clocks are read one after the other, and what reads
	// them may wait in between.
	shortest = time.Second
	// maxSeen is how many suspensions a clock knows apart. It takes earlier ones for one.
	maxSeen = 64
)

// Clock is a clock that goes on while the machine is suspended.
type Clock struct {
	asleep func() time.Duration
	mu     sync.Mutex
	seen   []seen
}

// seen is for how long the machine had been suspended, in all, when somebody noticed it.
type seen struct {
	at     time.Time
	asleep time.Duration
}

// Machine is the clock of this machine.
var Machine = NewClock(asleep)

// NewClock makes a clock from a function that returns for how long the machine has been suspended since it was started.
func NewClock(asleep func() time.Duration) *Clock {
	return &Clock{asleep: asleep, seen: []seen{{time.Now(), asleep()}}}
}

// Now is the time, which is behind every suspension until then.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.look()
	return now
}

// Elapsed is for how long a time is over. A suspension that ended before it counts too, unless somebody has asked in
// between, or the time is from [Clock.Now].
func (c *Clock) Elapsed(since time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, total := c.look()
	before := c.seen[0].asleep
	for _, s := range c.seen {
		if !s.at.After(since) {
			before = s.asleep
		}
	}
	return now.Sub(since) + total - before
}

// look returns the time, and for how long the machine has been suspended. c.mu is held.
func (c *Clock) look() (now time.Time, total time.Duration) {
	now, total = time.Now(), c.asleep()
	if last := c.seen[len(c.seen)-1].asleep; total-last < shortest {
		return now, last
	}
	if len(c.seen) == maxSeen {
		c.seen = append(c.seen[:1], c.seen[2:]...)
	}
	c.seen = append(c.seen, seen{now, total})
	return now, total
}
