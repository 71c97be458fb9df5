package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
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
		events.CallClaimed, events.CallAttemptFailed} {
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
		if err := s.Apply(e.Record); err != nil {
			x.t.Fatal(err)
		}
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

// run is a worker that takes a call: it claims it, or ends it, unless another process was faster.
func (x *random) run(req events.Requested) {
	call := req.Calls[0]
	c := x.m.State().Calls[call.Index]
	worker := fmt.Sprint("w", x.r.IntN(3))
	if call.Claim && c.Status != batch.Claimed {
		if c.Seq == call.Expected && c.Status != batch.Finished {
			x.inputs = append(x.inputs, x.store(batch.ChainCall, call.Index,
				events.Claimed{Worker: worker, Attempt: call.Attempt}))
			x.work = append(x.work, req)
		}
		return
	}
	if call.Claim && c.Attempt != call.Attempt || !call.Claim && c.Seq != call.Expected || c.Status == batch.Finished {
		return
	}
	body := events.Body(events.Finished{Result: result(call.Index, "fine", "")})
	switch k := x.r.IntN(10); {
	case k == 0 && call.Attempt < 3:
		body = events.AttemptFailed{Worker: worker, Attempt: call.Attempt, Code: toolyard.DependencyUnavailable,
			RetryAfterMS: 100}
	case k == 1:
		body = events.Finished{Result: result(call.Index, "broken", toolyard.ExecutionFailed)}
	case k == 2:
		return // it dies
	}
	x.inputs = append(x.inputs, x.store(batch.ChainCall, call.Index, body))
}

// step steps the machine and performs its effects.
func (x *random) step() {
	for first := true; first || len(x.inputs) > 0; first = false {
		in := x.inputs
		x.inputs = nil
		effects, err := x.m.Step(noon.Add(time.Duration(x.ms*float64(time.Millisecond))), in...)
		if err != nil {
			x.t.Fatal(err)
		}
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
