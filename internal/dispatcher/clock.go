package dispatcher

import (
	"context"
	"sync/atomic"
	"time"
)

// The server stamps the log, and several dispatchers read the times in it. Whoever compares such a time with the clock
// of its own machine ends calls early, or has them wait, by as much as the two differ. So a dispatcher looks at the
// server's clock, and goes on from there with the monotonic one: times that outlive a process are all by that clock.
// See docs/protocol.md#clocks.

const (
	// clockEvery is how often the server's clock is looked at: a clock drifts by some milliseconds meanwhile.
	clockEvery = 30 * time.Second
	// clockWithin bounds a look at it. What is seen is uncertain by as much as the answer took.
	clockWithin = 2 * time.Second
	// clockJump is how far the machine's wall clock and its monotonic one may part before the server's clock is looked
	// at at once: the machine slept, or somebody set its clock.
	clockJump = time.Second
)

// serverClock knows the server's clock. The zero one takes it for the machine's.
type serverClock struct{ seen atomic.Pointer[sight] }

// sight is what the server's clock showed at a time of this machine's.
type sight struct{ own, server time.Time }

// sighted is what was seen of the server's clock between a question and its answer. A difference that the time between
// them explains is none.
func sighted(server, asked, answered time.Time) sight {
	late := answered.Round(0)
	early := late.Add(-answered.Sub(asked)) // the wall clock may have been set in between
	switch {
	case server.Before(early):
		late = late.Add(server.Sub(early))
	case server.After(late):
		late = server
	}
	return sight{answered, late}
}

// at is the server's time at a time of this machine's.
func (s *sight) at(own time.Time) time.Time { return s.server.Add(own.Sub(s.own)) }

// stale reports whether the server's clock is to be looked at again.
func (s *sight) stale(now time.Time) bool {
	since := now.Sub(s.own)
	apart := now.Round(0).Sub(s.own.Round(0)) - since
	return since >= clockEvery || apart.Abs() > clockJump
}

func (c *serverClock) at(own time.Time) time.Time {
	if s := c.seen.Load(); s != nil {
		return s.at(own)
	}
	return own.Round(0)
}

// now is the server's time.
func (c *serverClock) now() time.Time { return c.at(time.Now()) }

// lookAtClock looks at the server's clock if it is time. While there is no answer the last one counts.
func (d *Dispatcher) lookAtClock(ctx context.Context) {
	asked := time.Now()
	if s := d.clock.seen.Load(); s != nil && !s.stale(asked) {
		return
	}
	looking, cancel := context.WithTimeout(ctx, clockWithin)
	defer cancel()
	server, err := d.b.Clock(looking)
	if err != nil {
		if ctx.Err() == nil {
			d.log.Info("the server's clock cannot be looked at", "error", err)
		}
		return
	}
	s := sighted(server, asked, time.Now())
	d.clock.seen.Store(&s)
}
