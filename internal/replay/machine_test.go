package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestWhatTheMachineDoesIsConsistent lets the state machine run batches with random failures, and replays their logs: a
// replay must find no contradiction.
func TestWhatTheMachineDoesIsConsistent(t *testing.T) {
	seen := map[events.Type]int{}
	for seed := range uint64(400) {
		log := runMachine(t, rand.New(rand.NewPCG(seed, 1)))
		r := play(log)
		if !r.Consistent || !r.state.Completed {
			t.Fatalf("seed %d: status %s, %v\n%s", seed, r.Batch.Status, r.Contradiction, r.Text())
		}
		for _, e := range log {
			seen[e.Body.EventType()]++
		}
	}
	for _, want := range []events.Type{events.BatchAdopted, events.BatchCanceled, events.CallsSettled,
		events.CallClaimed, events.CallAttemptFailed, events.CallReturned} {
		if seen[want] < 20 {
			t.Errorf("%s was seen %d times, too seldom to have tested anything", want, seen[want])
		}
	}
}

// random is a batch under way: its log, its owner, and the queued work.
type random struct {
	t      *testing.T
	r      *rand.Rand
	log    logged
	m      *batch.Machine
	ms     float64
	ticket uint64
	inputs []batch.Input
	work   []events.Requested
	done   bool
}

func runMachine(t *testing.T, r *rand.Rand) logged {
	x := &random{t: t, r: r}
	var sizes []int
	for range 1 + r.IntN(5) {
		sizes = append(sizes, 1+r.IntN(3))
	}
	p := planned(sizes...)
	p.Deadline = noon.Add(time.Duration(1+r.IntN(60)) * time.Second)
	p.Partition = []toolyard.Strategy{toolyard.Consecutive, toolyard.OrderedHalt}[r.IntN(2)]
	for i := range p.Calls {
		p.Calls[i].AbortsSiblings = true
		p.Calls[i].Judgement.Idempotent = r.IntN(2) == 0
		p.Calls[i].Claim = p.Calls[i].Claim || !p.Calls[i].Judgement.Idempotent
		if r.IntN(6) == 0 {
			p.Results = append(p.Results, notRun(i, toolyard.UnknownTool))
		}
	}
	x.store(batch.ChainSubmission, 0, submitted(len(p.Calls)))
	x.store(batch.ChainBatch, 0, p)
	x.own()
	for n := 0; !x.done; n++ {
		if n > 5000 {
			t.Fatalf("the batch does not end; its log has %d events", len(x.log))
		}
		x.ms += r.Float64() * 500
		x.happen()
		x.step()
	}
	return x.log
}

func (x *random) store(c batch.Chain, index int, body events.Body) batch.Stored {
	x.log.add(x.ms, c, index, "/x", body)
	x.ms += 0.1
	return batch.Stored{Record: x.log[len(x.log)-1].Record}
}

// own makes the machine of an owner from the log alone.
func (x *random) own() {
	var s batch.State
	for _, e := range x.log {
		must.OK(x.t, s.Apply(e.Record))
	}
	x.inputs = nil
	x.m = batch.New(batch.Config{WorkerWait: 30 * time.Second, MaxAttempts: 3, OpenIdle: time.Minute}, s)
}

// happen makes one event happen outside the machine.
func (x *random) happen() {
	s := x.m.State()
	switch k := x.r.IntN(40); {
	case k == 0:
		x.store(batch.ChainBatch, 0, events.Adopted{Owner: fmt.Sprint("d", s.Takeovers+2), Takeover: s.Takeovers + 1})
		x.own()
	case k == 1:
		c := events.Canceled{By: "someone"}
		if x.r.IntN(3) > 0 {
			c.Calls = []int{x.r.IntN(len(s.Calls))}
		}
		x.inputs = append(x.inputs, x.store(batch.ChainControl, 0, c))
	case k == 2:
		for i, c := range s.Calls {
			if c.Status == batch.Claimed {
				x.inputs = append(x.inputs, batch.Observed{Dropped: map[int]uint64{i: c.Seq}})
			}
		}
	case k < 30 && len(x.work) > 0:
		n := x.r.IntN(len(x.work))
		req := x.work[n]
		x.work = append(x.work[:n], x.work[n+1:]...)
		x.run(req)
	}
}

// run is a worker that takes a message. What may be a duplicate, and what needs a claim, it claims call by call. Of the
// others it ends some, and the rest later. Calls that somebody else has ended meanwhile it leaves alone.
func (x *random) run(req events.Requested) {
	s := x.m.State()
	worker := fmt.Sprint("w", x.r.IntN(3))
	store := func(body events.Body, more bool) {
		x.inputs = append(x.inputs, x.store(batch.ChainItem, req.Item, body))
		if more {
			x.work = append(x.work, req)
		}
	}
	var calls []int
	for _, call := range req.Calls {
		c := s.Calls[call.Index]
		claims := call.Claim || call.Again || call.Attempt > 1 || req.Expected > 0
		switch mine := c.Status == batch.Claimed && c.Attempt == call.Attempt; {
		case c.Status == batch.Finished, c.Seq > req.Expected && !(claims && mine):
			continue
		case claims && !mine:
			store(events.Claimed{Call: call.Index, Worker: worker, Attempt: call.Attempt}, true)
			return
		}
		calls = append(calls, call.Index)
	}
	if len(calls) == 0 {
		return
	}
	x.r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	some := calls[:1+x.r.IntN(len(calls))]
	first, attempt := s.Calls[some[0]], req.Calls[0].Attempt
	switch k := x.r.IntN(12); {
	case k == 0 && attempt < 3:
		store(events.AttemptFailed{Call: some[0], Worker: worker, Attempt: attempt,
			Code: toolyard.DependencyUnavailable, RetryAfterMS: 100}, true)
	case k == 1 && first.Status == batch.Pending:
		store(events.Returned{Worker: worker, Calls: some}, true)
	case k == 2: // it dies
	default:
		var ends []events.End
		for _, i := range some {
			if k == 3 {
				ends = append(ends, events.End{Result: result(i, "broken", toolyard.ExecutionFailed)})
			} else {
				ends = append(ends, events.End{Result: result(i, "fine", "")})
			}
		}
		store(events.Finish(ends...), true)
	}
}

// step steps the machine and performs its effects.
func (x *random) step() {
	for first := true; first || len(x.inputs) > 0; first = false {
		in := x.inputs
		x.inputs = nil
		effects, err := x.m.Step(noon.Add(time.Duration(x.ms*float64(time.Millisecond))), in...)
		must.OK(x.t, err)
		for _, e := range effects {
			switch e := e.(type) {
			case batch.Append:
				x.inputs = append(x.inputs, x.store(e.Chain, e.Index, e.Body))
			case batch.TakeTicket:
				x.ticket++
				x.inputs = append(x.inputs, batch.Granted{Group: e.Group, Ticket: x.ticket})
			case batch.Queue:
				x.work = append(x.work, e.Request)
			case batch.Complete:
				x.done = true
			}
		}
	}
}
