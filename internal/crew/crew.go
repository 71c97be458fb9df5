// Package crew has goroutines that run one thing after the other. A new goroutine has a small stack, which is copied
// several times while it grows for a batch or a call; one that has run something before has a stack that fits.
package crew

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxIdle is how many goroutines of a crew wait for something to run, in times with much to do.
	maxIdle = 256
	// keptIdle is how many of them wait without end, and idleFor how long the others do.
	keptIdle = 8
	idleFor  = time.Second
)

// Crew is goroutines that run one thing after the other. No foreign code runs in them: it may end its goroutine, or
// lock its thread.
type Crew struct {
	work chan func()
	idle atomic.Int32
	over chan struct{} // closed when nothing follows
}

// New makes a crew. It has no goroutines yet.
func New() *Crew { return &Crew{work: make(chan func()), over: make(chan struct{})} }

// Run runs something in a goroutine, which the group waits for.
func (c *Crew) Run(group *sync.WaitGroup, what func()) {
	group.Add(1)
	do := func() {
		defer group.Done()
		what()
	}
	select {
	case c.work <- do: // there is one that waits
	default:
		go c.serve(do)
	}
}

func (c *Crew) serve(do func()) {
	var late *time.Timer
	for {
		do()
		idle := c.idle.Add(1)
		if idle > maxIdle {
			c.idle.Add(-1)
			return
		}
		var expires <-chan time.Time
		if idle > keptIdle {
			if late == nil {
				late = time.NewTimer(idleFor)
				defer late.Stop()
			} else {
				late.Reset(idleFor)
			}
			expires = late.C
		}
		select {
		case do = <-c.work:
			c.idle.Add(-1)
		case <-expires:
			c.idle.Add(-1)
			return
		case <-c.over:
			return
		}
	}
}

// End ends the goroutines that wait. Those that run something end behind it.
func (c *Crew) End() { close(c.over) }
