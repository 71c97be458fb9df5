package worker

import (
	"context"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/failpoint"
)

const (
	// togetherFor is how long calls of a message run one after the other. A tool that takes longer holds up no other
	// call: those that have not begun then begin beside it, and the ends that are there are stored.
	togetherFor = 500 * time.Microsecond
	// maxUnstored is how many calls of a worker may have given their slots back before their ends are stored.
	maxUnstored = 256
)

// together is calls of one message that begin together. They run one after the other in one goroutine, and their ends
// are stored together, in one event: calls that take microseconds, as most reads do, then cost one append and no change
// of goroutines. Ends wait for no timer, but for calls of the message that run at this moment, and for togetherFor at
// most.
type together struct {
	w             *Worker
	m             *message
	at            laneKey
	taking, calls context.Context
	running       *sync.WaitGroup // of the worker
	begun         *sync.WaitGroup // of the message
	ended         chan<- struct{} // gets one value for each call that is over

	mu   sync.Mutex
	rest []queuedCall // that have not begun
	ends []heldEnd    // that are not stored
}

// heldEnd is the end of a call that is not stored yet.
type heldEnd struct {
	queuedCall
	*endedCall
	// early says that the call has given its slot back.
	early bool
}

// run runs the calls. It returns when none of them needs this goroutine any more; what runs beside it is counted in
// begun.
func (t *together) run() {
	if len(t.rest) > 1 {
		stop := crew.OnceDue(togetherFor, t.split, func() {})
		defer stop()
	}
	for {
		c, ok := t.next()
		if !ok {
			break
		}
		t.runNext(c)
	}
	t.store(t.takeEnds())
}

func (t *together) next() (c queuedCall, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rest) == 0 {
		return c, false
	}
	c, t.rest = t.rest[0], t.rest[1:]
	return c, true
}

func (t *together) takeEnds() []heldEnd {
	t.mu.Lock()
	defer t.mu.Unlock()
	ends := t.ends
	t.ends = nil
	return ends
}

// split has the calls that have not begun run beside the one that takes long, and stores the ends that are there.
func (t *together) split() {
	t.mu.Lock()
	rest := t.rest
	t.rest = nil
	t.mu.Unlock()
	for _, c := range rest {
		t.w.crew.Run(t.begun, func() {
			t.runNext(c)
			t.store(t.takeEnds())
		})
	}
	t.store(t.takeEnds())
}

// runNext runs a call in the slot for which it stands in line. A call that gets none in time is given back. Of tools
// with a cap only so many wait, and more are given back at once.
func (t *together) runNext(c queuedCall) {
	w, m := t.w, t.m
	if c.waiter == nil {
		m.giveBack(t.calls, min(returnPause<<min(m.d.Deliveries, 8), longestReturn), c.Index)
		t.ended <- struct{}{}
		return
	}
	waiting, stop := t.taking, func() {}
	if !c.waiter.hasSlot() {
		t.storeLate() // who waits for a slot holds none
		waiting, stop = w.untilAborted(t.taking, callKey{m.d.Key(), c.Index})
	}
	has := w.slots.await(waiting, c.waiter, time.Until(m.d.Received.Add(m.late())))
	stop()
	if c.waiter.cap > 0 {
		w.slots.removeBeside(t.at)
	}
	switch {
	case has:
	case w.aborted(m.d.Key(), c.Index): // it ends without a slot: nothing of it begins
		w.runTaken(t.calls, m, c.RequestedCall)
		t.ended <- struct{}{}
		return
	default:
		m.giveBack(t.calls, returnPause, c.Index)
		t.ended <- struct{}{}
		return
	}
	failpoint.Hit(failpoint.CallTaken)
	end := heldEnd{queuedCall: c, endedCall: w.runCall(t.calls, m, c.RequestedCall)}
	if end.store == nil || end.left != nil {
		t.store([]heldEnd{end})
		return
	}
	// Its tool has returned, so another call may have the slot; but what is not stored must not become more and more.
	if end.early = w.unstored.Add(1) <= maxUnstored; end.early {
		w.slots.release(c.waiter)
	} else {
		w.unstored.Add(-1)
	}
	t.mu.Lock()
	t.ends = append(t.ends, end)
	t.mu.Unlock()
}

// storeLate stores the ends whose calls still hold their slots, if there are any.
func (t *together) storeLate() {
	t.mu.Lock()
	late := false
	for _, e := range t.ends {
		late = late || !e.early
	}
	t.mu.Unlock()
	if late {
		t.store(t.takeEnds())
	}
}

// store stores ends, and lets their calls go. The first of them stores all that are ready.
func (t *together) store(ends []heldEnd) {
	in := &storage{calls: t.calls}
	defer in.end()
	for _, e := range ends {
		settled, pause := e.close(in)
		t.m.over(t.calls, e.Index, settled, pause)
		switch {
		case e.early:
			t.w.unstored.Add(-1)
		case e.left == nil:
			t.w.slots.release(e.waiter)
		default:
			t.keepSlot(e)
		}
		t.ended <- struct{}{}
	}
}

// keepSlot has a tool that does not return keep its slot until it does, or the worker ends.
func (t *together) keepSlot(e heldEnd) {
	t.running.Go(func() {
		defer t.w.slots.release(e.waiter)
		select {
		case <-e.left:
		case <-t.calls.Done():
		}
	})
}
