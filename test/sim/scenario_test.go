package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
)

// scenario is what a history is about: who is there, and what is asked of them.
type scenario struct {
	focus       focus
	dispatchers int
	// shards is how many sets of streams the system has, and raised how many it gets; 0: it keeps them.
	shards, raised int
	// lead is how long before the new ones are used the agents begin.
	lead    time.Duration
	workers []workerSpec
	agents  []agentSpec
	people  bool
	// peopleHTTP says that one of them comes over HTTP.
	peopleHTTP bool
	workspaces []toolyard.Workspace
	// approvalWait is how long people have to decide.
	approvalWait time.Duration
	// queueWait is how long a call waits for a worker; 0: queueWait.
	queueWait time.Duration
	// archiveAfter is how long batches are over before they are archived; 0: they are not.
	archiveAfter time.Duration
	// rates bound calls of some tools, which wait for their turns for as long as it takes.
	rates []admission.NamedRate
	// budgets are wider than anything uses, but that of an agent if narrow is how many calls it is.
	budgets admission.Budgets
	narrow  int64
	// impatient says that calls wait for the turns of rates for a moment only.
	impatient bool
	// backgroundCalls is how many background calls a session may have at a time, where calls start batches; 0: none do.
	backgroundCalls int
	// repairs says that workers mend inputs.
	repairs bool
	// inquiries says that some tools ask people while they run.
	inquiries bool
	// undoes says that workers keep what workspaces were, and that people undo batches.
	undoes bool
	// overlays says that workers keep overlays, and that people commit and drop them; apart that no two workers see the
	// same.
	overlays, apart bool
}

// focus is what a history is about above all.
type focus string

// The focuses.
const (
	anything  focus = "anything"
	streams   focus = "open batches, whose owners change"
	takeovers focus = "owners that fall silent and come back"
	absences  focus = "workers that are silent for long and come back to exclusive calls"
	restarts  focus = "a server that is killed when it has just handed out a read"
	people    focus = "calls that wait for people, and batches that are parked meanwhile"
	upgrades  focus = "parties of two versions"
	visitors  focus = "agents over HTTP, and an API that dies"
	crowds    focus = "batches that stand in line for one workspace, for calls that people allow and agents cancel"
)

// focuses are as often drawn as they stand here.
var focuses = []focus{anything, anything, anything, anything, streams, takeovers, absences, restarts, people, people,
	people, crowds, visitors, upgrades}

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
	again          time.Duration // over a new connection, so much later; 0: over the same at nearly the same time
	canceled       []int
	apart          time.Duration // they are canceled one by one, so long after each other
	// open says that the calls from first on are appended later, one every pause, and then the batch is closed, or left
	// open.
	open   bool
	first  int
	pause  time.Duration
	closes bool
	// interrupt is when its session is interrupted; 0: never.
	interrupt time.Duration
	// last says that it is canceled when all others are over.
	last bool
	// of is the batch behind which it is handed in: submit is then how long after the end of that.
	of *batchSpec
	// uses is the batch whose overlay it commits or drops, which action says.
	uses   *batchSpec
	action toolyard.OverlayAction
}

// cancels reports whether its agent cancels a call.
func (b *batchSpec) cancels(i int) bool {
	return (b.cancel > 0 || b.last) && (len(b.canceled) == 0 || slices.Contains(b.canceled, i))
}

// draws are what scenarios are drawn with.
type draws struct{ *rand.Rand }

func (d draws) one(in int) bool { return d.IntN(in) == 0 }

func (d draws) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.Int64N(int64(b-a)+1))
}

func pick[T any](d draws, from []T) T { return from[d.IntN(len(from))] }

func (w *world) drawScenario(about focus) *scenario {
	d := draws{w.random("scenario")}
	sc := &scenario{focus: cmp.Or(about, pick(d, focuses)), dispatchers: 1 + d.IntN(2),
		approvalWait: d.between(2*time.Second, 8*time.Second).Truncate(time.Millisecond)}
	sc.people = sc.focus == people || sc.focus == crowds || sc.focus == anything && d.one(4)
	sc.peopleHTTP = sc.people && d.one(3)
	if a := (draws{w.random("archive")}); sc.focus != upgrades && a.one(2) {
		sc.archiveAfter = a.between(100*time.Millisecond, 5*time.Second).Truncate(time.Millisecond)
	}
	if r := (draws{w.random("rates")}); sc.focus != upgrades && r.one(5) {
		sc.rates = []admission.NamedRate{
			{Name: "re*", Rate: admission.Rate{Calls: 1 + r.IntN(2), PerSecond: 2 + r.IntN(6), Wait: longWait}},
			{Name: "*", Rate: admission.Rate{Calls: 1 + r.IntN(3), Wait: longWait}}}
	}
	if b := (draws{w.random("budgets")}); sc.focus != upgrades && b.one(6) {
		wide := admission.Budget{Amount: admission.Amount{Calls: 1_000_000}}
		sc.budgets = admission.Budgets{{Kind: admission.BudgetOfTeam, Agents: "*", Budget: wide},
			{Kind: admission.BudgetOfBatch, Agents: "*", Budget: wide}}
	}
	draws{w.random("limits")}.limits(sc)
	draws{w.random("shards")}.divide(sc)
	workspaces, agents := 1+d.IntN(2), 1+d.IntN(3)
	switch sc.focus {
	case takeovers:
		workspaces, agents, sc.dispatchers = 1, 3, 2
	case streams:
		sc.dispatchers = 2
	case upgrades:
		sc.dispatchers = 2
	case restarts:
		workspaces = 1
	case crowds:
		workspaces, agents, sc.approvalWait = 1, 2+d.IntN(2), longWait
	}
	if sc.focus == people && d.one(3) { // nobody runs out of time, and nothing that was forgotten is found by that
		sc.approvalWait = longWait
	}
	for i := range workspaces {
		sc.workspaces = append(sc.workspaces, toolyard.Workspace(fmt.Sprint("ws", i+1)))
	}
	lacking := ""
	if d.one(8) {
		lacking = pick(d, kinds[:5]).name
	}
	for i := range 2 + d.IntN(2) {
		s := workerSpec{classes: toolyard.Classes, slots: 1 + d.IntN(2)}
		if sc.focus == absences {
			s.slots = 2
		}
		if i > 0 && d.one(4) {
			s.classes = toolyard.Classes[:1+d.IntN(2)]
		}
		if lacking != "" && d.one(2) {
			s.lacks = lacking
		}
		sc.workers = append(sc.workers, s)
	}
	if sc.focus == upgrades { // one of each version has everything
		sc.workers[1] = workerSpec{classes: toolyard.Classes, slots: sc.workers[1].slots}
	}
	for a := range agents {
		agent := agentSpec{name: toolyard.Agent(fmt.Sprint("a", a+1)), http: sc.focus == visitors || d.one(4)}
		batches := 1 + d.IntN(2)
		if sc.focus == people { // the second one may profit from what was answered in the first
			batches = 2
		}
		for n := range batches {
			agent.batches = append(agent.batches, d.batch(sc, &agent, n))
		}
		sc.agents = append(sc.agents, agent)
	}
	if sc.focus != upgrades && sc.focus != crowds {
		draws{w.random("locks")}.files(sc)
		draws{w.random("behind")}.behind(sc)
		draws{w.random("outlive")}.outlive(sc)
		draws{w.random("inquiries")}.inquire(sc)
		draws{w.random("repairs")}.malform(sc)
		draws{w.random("undo")}.undo(sc)
		draws{w.random("overlay")}.overlay(sc)
	}
	for i := range sc.workers { // nobody asks for calls that there are none of: each request is a step
		sc.workers[i].classes = slices.DeleteFunc(slices.Clone(sc.workers[i].classes), func(c toolyard.Class) bool {
			return c == toolyard.Unsafe && !sc.unsafe()
		})
	}
	return sc
}

// files has some batches of a scenario ask for named locks, and some calls act on one file.
func (d draws) files(sc *scenario) {
	if !d.one(3) {
		return
	}
	for _, a := range sc.agents {
		for _, b := range a.batches {
			b.batch.Options.NamedLocks = !d.one(4)
			for i := range b.batch.Calls {
				c := &b.batch.Calls[i]
				name, ok := map[string]string{"read": "view", "write": "edit"}[c.Tool]
				if !ok || d.one(4) {
					continue
				}
				c.Tool = name
				c.Input = onFile(c.Input, pick(d, []string{"a", "./a", "b", "c/d"}))
			}
		}
	}
}

// onFile is an input that names a file.
func onFile(given json.RawMessage, file string) json.RawMessage {
	var in input
	if err := json.Unmarshal(given, &in); err != nil {
		panic(err) // it was made here
	}
	in.File = file
	return raw(in)
}

// unsafe reports whether there are unsafe calls, or may be: what uses overlays is judged by its input, and counts as
// unsafe where no worker answers.
func (sc *scenario) unsafe() bool {
	if sc.overlays {
		return true
	}
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

// longWait is longer than anything lasts.
const longWait = 10 * time.Minute

func (d draws) batch(sc *scenario, agent *agentSpec, n int) *batchSpec {
	b := &batchSpec{submit: d.between(0, 2*time.Second), twice: d.one(6)}
	if n > 0 && sc.focus == people && !d.one(3) { // when people have answered something
		b.submit += d.between(2*time.Second, 5*time.Second)
	}
	b.batch = toolyard.Batch{
		ID: toolyard.BatchID(fmt.Sprint("b", n+1)), Agent: agent.name, Session: "s", Workspace: pick(d, sc.workspaces),
		Interactive: sc.people,
		Options: toolyard.Options{
			Partition: toolyard.Consecutive, OnError: pick(d,
				[]toolyard.OnError{toolyard.CancelGroup, toolyard.Continue}),
			MaxConcurrency: 1 + d.IntN(4), TimeoutMS: longWait.Milliseconds(),
			Supersede: sc.people && n > 0 && d.one(4),
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
		c := d.call(sc, failing)
		if asked := agent.asked(); len(asked) > 0 && d.one(2) { // what somebody may have allowed for the session
			c = pick(d, asked)
		}
		c.ID = fmt.Sprint("c", i)
		b.batch.Calls = append(b.batch.Calls, c)
	}
	if sc.focus == crowds {
		d.crowd(b, n)
		return b
	}
	b.first = len(b.batch.Calls)
	if d.one(4) || sc.focus == streams {
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
		if d.one(3) {
			b.canceled = nil // all
		}
	}
	if d.one(10) || sc.people && d.one(6) {
		b.interrupt = b.submit + d.between(100*time.Millisecond, 5*time.Second)
	}
	return b
}

// asked are the calls of an agent's batches so far that need a person.
func (a *agentSpec) asked() (out []toolyard.Call) {
	for _, b := range a.batches {
		for _, c := range b.batch.Calls {
			if k, _ := kindOf(c.Tool); k.asks {
				out = append(out, c)
			}
		}
	}
	return out
}

// crowd makes a batch one of those that stand in line all the time: each agent's first one writes, and the others read
// what people allow one by one.
func (d draws) crowd(b *batchSpec, n int) {
	b.submit, b.batch.Options.Partition = d.between(0, time.Second), toolyard.Consecutive
	b.batch.Options.TimeoutMS, b.batch.Options.Supersede = longWait.Milliseconds(), false
	b.first = len(b.batch.Calls)
	if n > 0 {
		b.open, b.closes, b.pause, b.first = true, true, 2*time.Second, b.first-1
		b.cancel = b.submit + d.between(100*time.Millisecond, 2*time.Second)
		b.apart = d.between(10*time.Millisecond, 400*time.Millisecond)
	}
	for i := range b.batch.Calls {
		c := &b.batch.Calls[i]
		c.Tool = "write"
		in := input{WorkMS: d.between(20*time.Millisecond, 300*time.Millisecond).Milliseconds(), Commits: 2}
		if n > 0 {
			c.Tool, in.Commits = "ask_read", 0
			if d.one(2) {
				b.canceled = append(b.canceled, i)
			}
		}
		c.Input = raw(in)
	}
	if len(b.canceled) == 0 {
		b.cancel = 0
	}
}

// codes are what tools fail with.
var codes = []toolyard.Code{toolyard.ExecutionFailed, toolyard.DependencyUnavailable, toolyard.SandboxViolation,
	toolyard.InvalidArguments}

func (d draws) call(sc *scenario, failing int) toolyard.Call {
	drawn := slices.Clone(kinds)
	for i := range drawn {
		switch name := drawn[i].name; {
		case drawn[i].asks && sc.focus == people:
			drawn[i].weight = 6
		case drawn[i].asks && sc.people:
			drawn[i].weight = 3
		case sc.focus == absences && (name == "put" || name == "write"):
			drawn[i].weight *= 6
		case sc.focus == restarts && name != "read" && name != "write":
			drawn[i].weight = 0
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
	switch {
	case sc.focus == takeovers && d.one(3), (sc.focus == absences || sc.focus == visitors) && d.one(2):
		in.WorkMS = d.between(time.Second, 6*time.Second).Milliseconds()
	case sc.focus == restarts && d.one(2):
		in.WorkMS = d.between(60*time.Millisecond, 2*time.Second).Milliseconds()
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
