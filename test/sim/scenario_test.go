package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
)

// scenario is what a history is about: who is there, and what is asked of them.
type scenario struct {
	dispatchers int
	workers     []workerSpec
	agents      []agentSpec
	people      bool
	workspaces  []toolyard.Workspace
}

type workerSpec struct {
	classes []toolyard.Class
	slots   int
	lacks   string
}

// agentSpec is one agent, and whether it comes over HTTP.
type agentSpec struct {
	name    toolyard.Agent
	http    bool
	batches []*batchSpec
}

// batchSpec is one batch, and what its agent does with it.
type batchSpec struct {
	batch toolyard.Batch
	// submit is when it is handed in, twice whether over another connection too, cancel when it is canceled (0: never),
	// and canceled which calls (none: all).
	submit, cancel time.Duration
	twice          bool
	canceled       []int
	// open says that the calls from first on are appended later, one every pause, and then the batch is closed, or left
	// open.
	open   bool
	first  int
	pause  time.Duration
	closes bool
}

// draws are what scenarios are drawn with.
type draws struct{ *rand.Rand }

func (d draws) one(in int) bool { return d.IntN(in) == 0 }

func (d draws) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.Int64N(int64(b-a)+1))
}

func pick[T any](d draws, from []T) T { return from[d.IntN(len(from))] }

func (w *world) drawScenario() *scenario {
	d := draws{w.random("scenario")}
	sc := &scenario{dispatchers: 1 + d.IntN(2), people: d.one(3)}
	for i := range 1 + d.IntN(2) {
		sc.workspaces = append(sc.workspaces, toolyard.Workspace(fmt.Sprint("ws", i+1)))
	}
	for i := range 2 + d.IntN(2) {
		s := workerSpec{classes: toolyard.Classes, slots: 1 + d.IntN(2)}
		if i > 0 && d.one(4) {
			s.classes = toolyard.Classes[:1+d.IntN(2)]
		}
		sc.workers = append(sc.workers, s)
	}
	for a := range 1 + d.IntN(3) {
		agent := agentSpec{name: toolyard.Agent(fmt.Sprint("a", a+1)), http: d.one(4)}
		for n := range 1 + d.IntN(2) {
			agent.batches = append(agent.batches, d.batch(sc, agent.name, n))
		}
		sc.agents = append(sc.agents, agent)
	}
	for i := range sc.workers { // nobody asks for calls that there are none of: each request is a step
		sc.workers[i].classes = slices.DeleteFunc(slices.Clone(sc.workers[i].classes), func(c toolyard.Class) bool {
			return c == toolyard.Unsafe && !sc.unsafe()
		})
	}
	return sc
}

// unsafe reports whether there are unsafe calls.
func (sc *scenario) unsafe() bool {
	for _, a := range sc.agents {
		for _, b := range a.batches {
			if slices.ContainsFunc(b.batch.Calls, func(c toolyard.Call) bool {
				k, ok := kindOf(c.Tool)
				return ok && k.class == toolyard.Unsafe
			}) {
				return true
			}
		}
	}
	return false
}

func (d draws) batch(sc *scenario, agent toolyard.Agent, n int) *batchSpec {
	b := &batchSpec{submit: d.between(0, 3*time.Second), twice: d.one(6)}
	b.batch = toolyard.Batch{
		ID: toolyard.BatchID(fmt.Sprint("b", n+1)), Agent: agent, Session: "s", Workspace: pick(d, sc.workspaces),
		Interactive: sc.people,
		Options: toolyard.Options{
			Partition: toolyard.Consecutive, OnError: pick(d,
				[]toolyard.OnError{toolyard.CancelGroup, toolyard.Continue}),
			MaxConcurrency: 1 + d.IntN(4), TimeoutMS: (10 * time.Minute).Milliseconds(),
		},
	}
	if d.one(8) {
		b.batch.Options.TimeoutMS = d.between(500*time.Millisecond, 8*time.Second).Milliseconds()
	}
	if d.one(2) {
		b.batch.Options.Partition = pick(d, toolyard.Strategies)
	}
	failing := pick(d, []int{3, 6, 20})
	for i := range 1 + d.IntN(3) + d.IntN(4) {
		c := d.call(failing, sc.people)
		c.ID = fmt.Sprint("c", i)
		b.batch.Calls = append(b.batch.Calls, c)
	}
	b.first = len(b.batch.Calls)
	if d.one(4) {
		b.open, b.closes = true, !d.one(4)
		b.first, b.pause = d.IntN(len(b.batch.Calls)+1), d.between(time.Millisecond, 1200*time.Millisecond)
	}
	if d.one(5) {
		b.cancel = b.submit + d.between(time.Millisecond, 5*time.Second)
		for i := range b.batch.Calls {
			if d.one(2) {
				b.canceled = append(b.canceled, i)
			}
		}
	}
	return b
}

// codes are what tools fail with.
var codes = []toolyard.Code{toolyard.ExecutionFailed, toolyard.DependencyUnavailable, toolyard.SandboxViolation,
	toolyard.InvalidArguments}

func (d draws) call(failing int, people bool) toolyard.Call {
	drawn := slices.Clone(kinds)
	if people {
		for i := range drawn {
			if drawn[i].asks {
				drawn[i].weight = 3
			}
		}
	}
	total := 0
	for _, k := range drawn {
		total += k.weight
	}
	if d.one(total + 1) {
		return toolyard.Call{Tool: absent, Input: json.RawMessage("{}")}
	}
	var k kind
	for n := d.IntN(total); ; {
		k, drawn = drawn[0], drawn[1:]
		if n -= k.weight; n < 0 {
			break
		}
	}
	in := input{WorkMS: d.between(time.Millisecond, 60*time.Millisecond).Milliseconds(), Ignores: d.one(12)}
	switch d.IntN(10) {
	case 0, 1:
		in.WorkMS = d.between(60*time.Millisecond, 800*time.Millisecond).Milliseconds()
	case 2:
		in.WorkMS = d.between(time.Second, 6*time.Second).Milliseconds()
	}
	if !k.class.Safe() {
		in.Commits = 1 + d.IntN(3)
	}
	if d.one(failing) {
		in.Code = pick(d, codes)
		if d.one(4) {
			in.Passes = 1 + d.IntN(3)
		}
	}
	return toolyard.Call{Tool: k.name, Input: raw(in)}
}

// raw is a value as JSON.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the harness's own values
	}
	return b
}
