package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// slots are the places of one class: how many calls of it run at a time. They are given in the order in which they were
// asked for.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{}
	// room is closed and replaced whenever a place may have become free, for those who only want to know.
	room chan struct{}
}

func newSlots(n int) *slots { return &slots{free: n, room: make(chan struct{})} }

// take waits for a place, for so long at most.
func (s *slots) take(wait time.Duration) bool {
	s.mu.Lock()
	if s.free > 0 && len(s.waiting) == 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	s.waiting = append(s.waiting, mine)
	s.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-mine:
		return true
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, mine)
	if i < 0 { // it was given in this very moment
		return true
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return false
}

// give gives a place back: to whoever has waited longest.
func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
		return
	}
	s.free++
	close(s.room)
	s.room = make(chan struct{})
}

// awaitRoom waits until a place is free and nobody waits for it, without taking it.
func (s *slots) awaitRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		free, room := s.free > 0 && len(s.waiting) == 0, s.room
		s.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// linesPerLane is how many messages of one lane a worker takes at a time: the more, the faster one agent's calls are
// taken, and the more of them may stand before another lane's when all slots are taken.
const linesPerLane = 8

// lines opens the lines to one lane.
func (w *Worker) lines(ctx context.Context, class toolyard.Class, number int) ([]*broker.Work, error) {
	lane, err := w.b.Lane(ctx, batch.Route{Pool: w.cfg.Pool, Class: class}, number)
	if err != nil {
		return nil, err
	}
	n := min(linesPerLane, w.cfg.Slots[class])
	if !class.Safe() {
		n = 1 // one exclusive call holds the workspace
	}
	var lines []*broker.Work
	for range n {
		line, err := lane.Work()
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// serve takes messages of one line while there is room, and runs each in a slot, until the line is stopped and all of
// them are done. A message that finds every slot taken by other lanes waits for the next one.
func (w *Worker) serve(taking, calls context.Context, line *broker.Work, slots *slots) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		if slots.awaitRoom(taking) != nil {
			return nil
		}
		d, err := line.Next(calls)
		if errors.Is(err, broker.ErrStopped) && taking.Err() == nil {
			return errors.New("taking calls has ended, which it does when the connection to NATS is closed")
		}
		if errors.Is(err, broker.ErrStopped) {
			return nil
		}
		if bad, ok := errors.AsType[*broker.BadWorkError](err); ok {
			w.log.Error("a message on the work queue cannot be run", "error", err)
			if !bad.Again {
				w.refuse(calls, bad)
			}
			continue
		}
		if err != nil {
			return err
		}
		if !slots.take(broker.Lease(w.b.Settings().CallAckWait) / 2) {
			w.giveBack(w.log, d) // before its lease is over; another worker may have room
			continue
		}
		running.Go(func() {
			defer slots.give()
			w.take(calls, d)
		})
	}
}

// refuse answers a call whose message cannot be read, so that its batch goes on. When the call has an event already, its
// owner knows more than this worker.
func (w *Worker) refuse(ctx context.Context, bad *broker.BadWorkError) {
	if bad.Key.ID == "" {
		return // its subject names no call: nobody waits for it
	}
	res := toolyard.Result{
		Index: bad.Index, IsError: true, Code: toolyard.InternalError, Class: toolyard.Unsafe, Worker: w.cfg.ID, Detail: bad.Err.Error(),
		Error: "Internal error: the worker could not read this call. It did not run.",
		Phases: []toolyard.Fact{
			{Phase: toolyard.PhaseSchedule, Outcome: toolyard.OutcomeFailed, Code: toolyard.InternalError},
			{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
		},
	}
	storing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := w.b.Append(storing, bad.Key, batch.ChainCall, w.cfg.Pool, bad.Index, 0, events.Finished{Result: res})
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Error("a call that cannot be read was not answered", "batch", bad.Key, "call", bad.Index, "error", err)
	}
}
