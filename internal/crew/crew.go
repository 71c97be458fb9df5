package worker

import (
	"sync"
	"sync/atomic"
)

// maxIdle is how many goroutines of a worker wait for something to run.
const maxIdle = 8

// crew is goroutines that run one thing after the other: their stacks have grown once, and need not grow for each call.
// No code of a tool runs in them.
type crew struct {
	work chan func()
	idle atomic.Int32
	over chan struct{} // closed when nothing follows
}

func newCrew() *crew { return &crew{work: make(chan func()), over: make(chan struct{})} }

// run runs something in a goroutine, which the group waits for.
func (c *crew) run(group *sync.WaitGroup, what func()) {
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

func (c *crew) serve(do func()) {
	for {
		do()
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		select {
		case do = <-c.work:
			c.idle.Add(-1)
		case <-c.over:
			return
		}
	}
}

// end ends the goroutines that wait. Those that run something end behind it.
func (c *crew) end() { close(c.over) }
