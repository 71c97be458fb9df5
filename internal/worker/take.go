package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/version"
)

// maxBesideLane is how many calls of tools with a cap wait in a worker beside each lane, so that what stands behind
// them in the lane is taken. More are given back, for a while that grows up to longestReturn.
const (
	maxBesideLane = 32
	longestReturn = 5 * time.Second
)

// callsPerRequest is how many messages a worker asks a lane for at a time, if it has slots for them. With more, one
// agent's calls are taken faster, and more of them may wait before another lane's when all slots are taken.
const callsPerRequest = 8

// serve takes messages of one lane while slots are free, and runs each in a slot. It returns when the lane is
// stopped and all of them are done.
func (w *Worker) serve(taking, calls context.Context, lane broker.Lane, at laneKey) error {
	var running sync.WaitGroup
	defer running.Wait()
	most := callsPerRequest
	if !at.class.Safe() {
		most = 1 // one exclusive call holds the workspace
	}
	last := time.Now()
	size := 1 // of the messages that came last, in calls that run at a time
	for {
		free, err := w.slots.awaitFree(taking, at.class)
		if err != nil {
			return nil
		}
		for d, err := range lane.Take(calls, max(1, min(free, most)/size)) {
			bad, isBad := errors.AsType[*broker.BadWorkError](err)
			newer, isNewer := errors.AsType[*events.NewerError](err)
			switch {
			case errors.Is(err, broker.ErrStopped) && taking.Err() == nil:
				return errors.New("taking calls has ended, which it does when the connection to NATS is closed")
			case errors.Is(err, broker.ErrStopped):
				return nil
			case isNewer:
				w.logNewer(newer)
			case isBad:
				w.log.Error("a message on the work queue cannot be run", "error", err)
				if !bad.Again {
					w.answerUnreadable(calls, bad)
				}
			case err != nil:
				return err
			default:
				w.countStall(d, at, last)
				size = max(1, (3*size+d.Width+3)/4)
				w.startMessage(taking, calls, d, at, &running)
			}
			last = time.Now()
		}
	}
}

// startMessage begins to run the calls of a message: as many at a time as it says. Those that are first stand in line
// for a slot when it returns, so that no more messages are taken than there is room for.
func (w *Worker) startMessage(taking, calls context.Context, d *broker.Delivery, at laneKey, running *sync.WaitGroup) {
	m := w.newMessage(d)
	m.width = max(1, min(d.Width, len(d.Calls)))
	if m.mayRepeat() {
		m.width = 1
	}
	first := w.enqueueNext(m, at)
	w.crew.Run(running, func() {
		stop := m.keep(calls)
		w.runMessage(taking, calls, m, first, at, running)
		stop()
		w.removeMessage(m)
	})
}

// queuedCall is a call that stands in line for a slot.
type queuedCall struct {
	events.RequestedCall
	waiter *waiter // nil when too many calls of tools with a cap wait beside the lane
}

// enqueueNext has calls of a message stand in line for slots, while fewer of its calls are under way than may be.
func (w *Worker) enqueueNext(m *message, at laneKey) (out []queuedCall) {
	for m.under < m.width {
		call, ok := m.next()
		if !ok {
			break
		}
		c := w.newWaiter(m.d, &call, at.class)
		if c.cap > 0 && !w.slots.addBeside(at) {
			c = nil
		} else {
			w.slots.enqueue(c)
		}
		m.under++
		out = append(out, queuedCall{call, c})
	}
	return out
}

// runMessage runs the calls of a message. It returns when none of them needs this worker any more. What could not begin
// within half a lease is given back, because another worker may have room.
func (w *Worker) runMessage(taking, calls context.Context, m *message, ready []queuedCall, at laneKey,
	running *sync.WaitGroup) {
	var begun sync.WaitGroup
	defer begun.Wait()
	all := func(events.RequestedCall) bool { return true }
	ended := make(chan struct{}, len(m.d.Calls))
	late := time.NewTimer(time.Until(m.d.Received.Add(m.late())))
	defer late.Stop()
	for {
		t := &together{w: w, m: m, at: at, taking: taking, calls: calls, running: running, begun: &begun,
			ended: ended, rest: ready}
		if m.begun() { // this goroutine has nothing else to do
			t.run()
			return
		}
		if len(ready) > 0 {
			w.crew.Run(&begun, t.run)
		}
		select {
		case <-ended:
			m.under--
			for more := true; more; { // those that ended together make room for others that begin together
				select {
				case <-ended:
					m.under--
				default:
					more = false
				}
			}
		case <-m.news:
			aborted := func(c events.RequestedCall) bool { return w.aborted(m.d.Key(), c.Index) }
			for _, call := range m.takeRest(aborted) {
				begun.Go(func() { w.runTaken(calls, m, call) })
			}
		case <-late.C:
			m.giveBack(calls, returnPause, indices(m.takeRest(all))...)
		case <-taking.Done():
			m.giveBack(calls, returnPause, indices(m.takeRest(all))...)
		}
		ready = w.enqueueNext(m, at)
	}
}

// stalledAfter is how long a call may lie in the queue beside a worker that has room and asks for calls.
const stalledAfter = time.Second

// countStall counts a message that was in the queue although this worker was asking for it all the time. asked is
// when the lane was asked last without an answer.
//
// It sees a lost request when the next one brings the message. It cannot tell that from an outage of NATS, and it
// does not see a message that never comes. It does not see calls that wait for a slot: a slot that is never
// released looks like a long call. The time when a message was stored is the server's: where its clock and this
// machine's differ by more than a second, the count is wrong. So nothing is decided by it.
func (w *Worker) countStall(d *broker.Delivery, at laneKey, asked time.Time) {
	room, ok := w.slots.freeSince(at.class)
	if !ok || d.Deliveries > 1 { // it was given back, or to a worker that fell silent
		return
	}
	if waited := stalled(d.Received, d.Stored, asked, room); waited > stalledAfter {
		w.log.Warn("a call lay in the queue beside this worker, which had room and had asked for calls",
			"batch", d.Key(), "call", d.Calls[0].Index, "class", at.class, "lane", at.lane,
			"waited", waited, "stalls", w.stalls.Add(1))
	}
}

// stalled returns how long a message was in the queue while the lane was asked and a slot was free.
func stalled(received, stored, asked, room time.Time) time.Duration {
	return min(received.Sub(stored), received.Sub(asked), received.Sub(room))
}

// maxNewerTypes is how many types of messages of newer versions a worker tells apart.
const maxNewerTypes = 100

// logNewer logs, once for each type, that calls are left to workers of a newer version. They have been given back.
func (w *Worker) logNewer(e *events.NewerError) {
	w.mu.Lock()
	what := fmt.Sprintf("%s of wire version %d", e.Type, e.Needs())
	told := w.newer[what] || len(w.newer) >= maxNewerTypes
	if !told {
		w.newer[what] = true
	}
	w.mu.Unlock()
	if !told {
		w.log.Warn("calls that a newer version has queued are left to a worker of that version; start one",
			"type", e.Type, "wire_version", e.Needs(), "own_wire_version", version.Wire)
	}
}

// newWaiter makes a call's waiter: for its tool, if that has a cap, or for its toolset.
func (w *Worker) newWaiter(d *broker.Delivery, call *events.RequestedCall, class toolyard.Class) *waiter {
	c := &waiter{class: class, agent: d.Agent}
	_, e, ok := w.tools.Lookup(call.Tool)
	if !ok {
		return c
	}
	if set := w.tools.setOf(e); set != nil {
		c.tool, c.cap, c.ofToolset = "toolset "+set.Name(), set.Slots(), true
	} else if e.MaxInFlight > 0 {
		// A call of run_code waits for others, which need the slots of the classes.
		c.tool, c.cap, c.ofToolset = e.Name, e.MaxInFlight, e.Name == toolyard.RunCodeTool
	}
	return c
}

// answerUnreadable answers a call whose message cannot be read, so that its batch goes on. A call that has an event
// already is left to its owner, who knows more.
func (w *Worker) answerUnreadable(ctx context.Context, bad *broker.BadWorkError) {
	if bad.Key.ID == "" {
		return // its subject names no call: nobody waits for it
	}
	res := outcome.Ended(toolyard.Result{
		Index: bad.Index, Code: toolyard.InternalError, Class: toolyard.Unsafe, Worker: w.cfg.ID,
		Detail: bad.Err.Error(),
		Error:  "Internal error: the worker could not read this call. It did not run.",
	}, toolyard.PhaseSchedule, "")
	storing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := w.b.Append(storing, bad.Key, batch.ChainItem, w.cfg.Pool, bad.Index, 0,
		events.Finish(events.End{Result: res}))
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Error("a call that cannot be read was not answered", "batch", bad.Key, "call", bad.Index, "error", err)
	}
}
