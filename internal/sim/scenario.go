package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/partition"
	"github.com/toolyard/toolyard/tool"
)

// scenario is what a history is about: who is there, and what is asked of them.
type scenario struct {
	workspaces  []toolyard.Workspace
	dispatchers int
	workers     []workerSpec
	agents      int
	batches     []*batchSpec
	hooks       bool // hooks are told of batches that are over
	queueWait   time.Duration
	// wavering says that no call looks as if it needed a person until it is delivered again.
	wavering bool
}

type workerSpec struct {
	classes []toolyard.Class
	slots   int
	lacks   string
}

// batchSpec is one batch, and what its agent does with it.
type batchSpec struct {
	key     toolyard.BatchKey
	name    string
	agent   int
	sub     toolyard.Batch
	all     []toolyard.Call
	calls   []callSpec
	timeout time.Duration
	// submit is when, twice whether on two connections at once; cancel is when (0: never), and which calls (none: all).
	submit, cancel Time
	twice          bool
	canceled       []int
	apart          Time // they are canceled one by one, so long after each other
	// open says that the calls from first on are appended later: pieces of them, one every pause, and then the batch is
	// closed by its agent, or left open.
	open   bool
	first  int
	pause  Time
	closes bool
	// interrupt is when its session is interrupted (0: never), approvalWait how long people have to decide.
	interrupt, approvalWait Time
}

// asks reports whether any call of the batch may need a person.
func (b *batchSpec) asks() bool {
	return slices.ContainsFunc(b.calls, func(c callSpec) bool { return c.person })
}

// callSpec is one call: its kind, and how its tool behaves.
type callSpec struct {
	kind string // see kinds
	// code is how it ends, executes whether that comes after the tool has begun.
	code     toolyard.Code
	executes bool
	aborts   bool // its failure ends its siblings
	before   Time // the phases before the tool
	takes    Time // the tool
	commits  int  // its commit points
	ignores  bool // it does not care for being stopped
	computes bool // it stands still while its worker is paused, where others only sleep
	passes   int  // its failure may pass, and does after so many attempts
	// person says that it needs one, wavers that it does only when it is delivered again, hooked that a hook changes
	// its input.
	person, wavers, hooked bool
	answers                [2]*answer // what each of the people is going to say, nil for nothing
	interruptible          bool
}

// ends is how an attempt ends.
func (c *callSpec) ends(attempt int) toolyard.Code {
	if c.passes > 0 && attempt > c.passes {
		return toolyard.OK
	}
	return c.code
}

// kinds are the letters of batch's traces, and some more.
var kinds = map[string]struct {
	class      toolyard.Class
	idempotent bool
	workspace  bool
	weight     int
}{
	"read":   {toolyard.ReadOnly, true, true, 6},
	"look":   {toolyard.ReadOnly, true, false, 2}, // no workspace
	"pop":    {toolyard.ReadOnly, false, true, 1}, // may not run twice
	"write":  {toolyard.WriteExclusive, false, true, 4},
	"put":    {toolyard.WriteExclusive, true, true, 2},
	"shell":  {toolyard.Unsafe, false, true, 1},
	"send":   {toolyard.WriteExclusive, false, false, 1}, // no workspace
	"absent": {toolyard.Unsafe, false, true, 1},          // answered at plan
}

var kindNames = []string{"read", "look", "pop", "write", "put", "shell", "send", "absent"}

// How calls end at plan, before the tool has begun, and after.
var (
	planCodes = []toolyard.Code{toolyard.UnknownTool, toolyard.BlockedTool, toolyard.SchemaNotLoaded,
		toolyard.SchemaValidationFailed}
	earlyCodes = []toolyard.Code{
		toolyard.InvalidArguments, toolyard.SetupRequired, toolyard.SandboxViolation, toolyard.InputMutationFailed,
		toolyard.HookBlocked,
		toolyard.HookFailed, toolyard.PermissionDenied, toolyard.PolicyBlocked, toolyard.DependencyUnavailable,
	}
	lateCodes = []toolyard.Code{
		toolyard.ExecutionFailed, toolyard.Timeout, toolyard.DependencyUnavailable, toolyard.SandboxViolation,
		toolyard.ResultMappingFailed,
		toolyard.PostHookFailed, toolyard.ResultTooLarge, toolyard.ResultRedacted, toolyard.InternalError,
		toolyard.InvalidArguments,
	}
)

func pick[T any](s *Sim, from []T) T { return from[s.rand.IntN(len(from))] }

func (s *Sim) one(in int) bool { return s.rand.IntN(in) == 0 }

func (s *Sim) drawScenario() *scenario {
	s.focus = s.opt.Focus
	if s.focus == 0 {
		s.focus = pick(s, []Focus{Anything, Anything, Anything, Anything, Anything, Streams, Takeovers, Absences,
			Restarts, People, People, People, People, Crowds})
	}
	sc := &scenario{dispatchers: 2 + s.rand.IntN(2), agents: 1 + s.rand.IntN(3)}
	if s.focus == Takeovers {
		sc.agents = 3
	}
	sc.queueWait = 5 * time.Minute // none in any history
	if s.focus >= People {
		sc.hooks, sc.wavering = s.one(4), s.one(6)
		if s.one(4) {
			sc.queueWait = 12 * time.Second
		}
	}
	workspaces := 1 + s.rand.IntN(2)
	if s.focus == Takeovers || s.focus == Restarts || s.focus == Crowds {
		workspaces = 1
	}
	for i := range workspaces {
		sc.workspaces = append(sc.workspaces, toolyard.Workspace(fmt.Sprint("ws", i+1)))
	}
	for i := range 2 + s.rand.IntN(2) {
		w := workerSpec{classes: toolyard.Classes, slots: 1 + s.rand.IntN(2)}
		if s.focus == Absences {
			w.slots = 2
		}
		if i > 0 && s.one(4) {
			w.classes = toolyard.Classes[:1+s.rand.IntN(2)]
		}
		if i > 0 && s.one(8) {
			w.lacks = pick(s, kindNames[:7])
		}
		sc.workers = append(sc.workers, w)
	}
	for a := range sc.agents {
		for b := range 1 + s.rand.IntN(3) {
			sc.batches = append(sc.batches, s.drawBatch(sc, a, b))
		}
	}
	return sc
}

func (s *Sim) drawBatch(sc *scenario, agent, n int) *batchSpec {
	b := &batchSpec{agent: agent, timeout: 10 * time.Minute, submit: s.between(0, 3*time.Second), twice: s.one(6)}
	if s.one(8) {
		b.timeout = s.between(500*time.Millisecond, 8*time.Second)
	}
	b.key = toolyard.BatchKey{Agent: toolyard.Agent(fmt.Sprint("a", agent+1)),
		ID: toolyard.BatchID(fmt.Sprint("b", n+1))}
	b.name = string(b.key.Agent) + "/" + string(b.key.ID)
	b.sub = toolyard.Batch{ID: b.key.ID, Agent: b.key.Agent, Session: "s", Workspace: pick(s, sc.workspaces),
		Options: toolyard.Options{
			Partition: toolyard.Consecutive, OnError: pick(s,
				[]toolyard.OnError{toolyard.CancelGroup, toolyard.Continue}),
			MaxConcurrency: 1 + s.rand.IntN(4),
		}}
	if s.one(2) {
		b.sub.Options.Partition = pick(s, toolyard.Strategies)
	}
	failing := pick(s, []int{3, 6, 20})
	for i := range 1 + s.rand.IntN(3) + s.rand.IntN(4) {
		c := s.drawCall(failing)
		b.calls = append(b.calls, c)
		b.sub.Calls = append(b.sub.Calls, toolyard.Call{ID: fmt.Sprint("c", i), Tool: c.kind,
			Input: json.RawMessage("{}")})
	}
	b.first, b.all = len(b.calls), b.sub.Calls
	if s.one(4) || s.focus == Streams {
		b.open, b.sub.Open, b.closes = true, true, !s.one(4)
		b.first, b.pause = s.rand.IntN(len(b.calls)+1), s.between(time.Millisecond, 1200*time.Millisecond)
		b.sub.Calls = b.all[:b.first:b.first]
	}
	switch s.focus {
	case People:
		s.drawPeople(sc, b)
	case Crowds:
		s.drawCrowd(b, n)
		return b
	}
	if s.one(5) {
		b.cancel = b.submit + s.between(0, 5*time.Second)
		for i := range b.calls {
			if s.one(2) {
				b.canceled = append(b.canceled, i)
			}
		}
	}
	return b
}

// drawPeople draws which calls of a batch need a person, and what the people do.
func (s *Sim) drawPeople(sc *scenario, b *batchSpec) {
	if s.one(3) {
		return
	}
	b.approvalWait = s.between(time.Second, 8*time.Second)
	often, asking, silent := 1+s.rand.IntN(3), 0, false
	for i := range b.calls {
		c := &b.calls[i]
		c.interruptible = s.one(3)
		if c.kind == "absent" || !s.one(often) {
			continue
		}
		asking++
		c.person, c.hooked = true, s.one(6)
		if sc.wavering || s.one(8) { // of a read that is not claimed, an execution that nobody accepts may pass unseen
			c.wavers = !kinds[c.kind].class.Safe()
		}
		for n := range c.answers {
			if n == 0 && s.one(5) || n == 1 && !s.one(3) {
				continue
			}
			a := &answer{after: s.between(0, 300*time.Millisecond), decision: events.Approve, edits: s.one(5)}
			if s.one(4) {
				a.decision = events.Reject
			}
			if s.one(2) {
				a.after = s.between(0, 6*time.Second)
			}
			c.answers[n] = a
		}
		silent = silent || c.answers[0] == nil && c.answers[1] == nil
	}
	switch {
	case !silent && s.one(2): // nobody runs out of time, and nothing that was forgotten is found by that
		b.approvalWait = 10 * time.Minute
	case asking <= 2 && s.one(4): // longer than anything else takes
		b.approvalWait = s.between(25*time.Second, 32*time.Second)
	}
	if s.one(6) {
		b.interrupt = b.submit + s.between(100*time.Millisecond, 8*time.Second)
	}
}

// drawCrowd makes a batch one of those that stand in line all the time: each agent's first one writes, and the others
// read what people allow one by one.
func (s *Sim) drawCrowd(b *batchSpec, n int) {
	b.timeout, b.approvalWait, b.submit = 10*time.Minute, 10*time.Minute, s.between(0, time.Second)
	b.sub.Options.Partition = toolyard.Consecutive
	b.open, b.sub.Open, b.closes, b.pause = n > 0, n > 0, true, 2*time.Second
	b.first = len(b.calls)
	if b.open {
		b.first = max(0, b.first-1)
		b.cancel, b.apart = b.submit+s.between(100*time.Millisecond, 2*time.Second),
			s.between(10*time.Millisecond, 400*time.Millisecond)
	}
	b.sub.Calls = b.all[:b.first:b.first]
	for i := range b.calls {
		c := &b.calls[i]
		*c = callSpec{kind: "write", takes: s.between(20*time.Millisecond, 300*time.Millisecond), commits: 2}
		if b.open {
			*c = callSpec{kind: "read", takes: c.takes, person: true}
			c.answers[0] = &answer{after: s.between(0, 2*time.Second), decision: events.Approve}
			if s.one(2) {
				b.canceled = append(b.canceled, i)
			}
		}
		b.all[i].Tool = c.kind
	}
}

func (s *Sim) drawCall(failing int) callSpec {
	var c callSpec
	for w := s.rand.IntN(18); ; {
		c.kind = pick(s, kindNames)
		if w -= kinds[c.kind].weight; w < 0 {
			break
		}
	}
	if s.focus == Absences && !s.one(3) {
		c.kind = pick(s, []string{"put", "write"})
	}
	c.aborts, c.ignores, c.computes = !s.one(5), s.one(8), s.one(2)
	c.before = s.between(0, 5*time.Millisecond)
	if s.one(20) {
		c.before = s.between(0, 4*time.Second)
	}
	c.takes = s.between(time.Millisecond, 60*time.Millisecond)
	switch s.rand.IntN(10) {
	case 0, 1:
		c.takes = s.between(60*time.Millisecond, 800*time.Millisecond)
	case 2:
		c.takes = s.between(time.Second, 6*time.Second)
	}
	if s.focus == Takeovers && s.one(3) {
		c.takes = s.between(3*time.Second, 6*time.Second)
	}
	if s.focus == Absences && s.one(2) {
		c.takes = s.between(time.Second, 6*time.Second)
	}
	if s.focus == Restarts {
		c.kind = pick(s, []string{"read", "read", "write"})
		if s.one(2) {
			c.takes = s.between(60*time.Millisecond, 2*time.Second)
		}
	}
	if !kinds[c.kind].class.Safe() {
		c.commits = 1 + s.rand.IntN(3)
	}
	switch {
	case c.kind == "absent":
		c.code = pick(s, planCodes)
	case !s.one(failing):
	case s.one(3):
		c.code = pick(s, earlyCodes)
	default:
		c.code, c.executes = pick(s, lateCodes), true
	}
	if c.code.IsError() && c.kind != "absent" && s.one(4) {
		c.passes = 1 + s.rand.IntN(3)
	}
	return c
}

// toolTimeout is longer than any tool takes.
const toolTimeout = 10 * time.Second

// plan is what a dispatcher decides about the batch.
func (b *batchSpec) plan(owner string, seq uint64, now time.Time) events.Planned {
	o := b.sub.Options
	p := events.Planned{
		SubmissionSeq: seq, Owner: owner, Session: b.sub.Session, Workspace: b.sub.Workspace, Surface: "surface",
		Partition: o.Partition,
		OnError:   o.OnError, MaxConcurrency: o.MaxConcurrency, Deadline: now.Add(b.timeout), Open: b.open,
		ApprovalWaitMS: b.approvalWait.Milliseconds(),
	}
	p.Calls, p.Results = b.planCalls(0, b.first)
	p.Groups = b.groups(b.first)
	return p
}

// extend is what an owner decides about calls that were appended.
func (b *batchSpec) extend(s *batch.State) events.Extended {
	from := len(s.Plan.Calls)
	to := from + len(s.Unplanned())
	e := events.Extended{InputSeq: s.InputSeq, Closed: s.InputClosed}
	e.Calls, e.Results = b.planCalls(from, to)
	groups := b.groups(to)
	for e.FirstGroup < len(s.Plan.Groups) && e.FirstGroup < len(groups) &&
		s.Plan.Groups[e.FirstGroup].Ticket == groups[e.FirstGroup].Ticket &&
		slices.Equal(s.Plan.Groups[e.FirstGroup].Calls, groups[e.FirstGroup].Calls) {
		e.FirstGroup++
	}
	e.Groups = groups[e.FirstGroup:]
	return e
}

func (b *batchSpec) planCalls(from, to int) (calls []events.PlannedCall, results []toolyard.Result) {
	for i := from; i < to; i++ {
		c := &b.calls[i]
		k := kinds[c.kind]
		j := tool.Judgement{Class: k.class, ReadOnly: k.class.Safe(), Idempotent: k.idempotent}
		calls = append(calls, events.PlannedCall{
			ID: b.all[i].ID, Tool: c.kind, Pool: toolyard.DefaultPool, Judgement: j, Claim: !j.Class.Safe() ||
				!j.Idempotent, AbortsSiblings: c.aborts,
			Interruptible: c.interruptible, TimeoutMS: toolTimeout.Milliseconds(),
		})
		if c.kind == "absent" {
			results = append(results, toolyard.Result{Index: i, CallID: b.all[i].ID, Tool: c.kind, IsError: true,
				Code: c.code, Class: k.class})
		}
	}
	return calls, results
}

// groups partitions the first n calls.
func (b *batchSpec) groups(n int) (out []events.Group) {
	var classes []toolyard.Class
	for _, c := range b.calls[:n] {
		classes = append(classes, kinds[c.kind].class)
	}
	for _, g := range partition.Groups(b.sub.Options.Partition, classes) {
		ticket := slices.ContainsFunc(g.Calls, func(i int) bool {
			return b.calls[i].kind != "absent" &&
				kinds[b.calls[i].kind].workspace
		})
		out = append(out, events.Group{Safe: g.Safe, Calls: g.Calls, Ticket: ticket})
	}
	return out
}

// setUp draws the scenario and the faults, and starts everybody.
func (s *Sim) setUp() {
	s.sc = s.drawScenario()
	s.nats = newServer(s)
	s.drawFaults()
	for _, b := range s.sc.batches {
		s.nats.logs[b.key] = &batchLog{spec: b, calls: make([]subject, len(b.calls)),
			results: make([]int, len(b.calls)), dropped: map[uint64]bool{}, messages: map[uint64]*message{}}
	}
	if s.opt.Trace {
		s.describe()
	}
	start := func(m *machine, boot func(*party)) {
		m.boot = boot
		s.machines = append(s.machines, m)
		s.start(m)
	}
	for i := range s.sc.dispatchers {
		m := &machine{name: fmt.Sprint("d", i+1)}
		start(m, s.bootDispatcher())
	}
	for i, w := range s.sc.workers {
		m := &machine{name: fmt.Sprint("w", i+1)}
		start(m, s.bootWorker(m, w))
	}
	for i := range s.sc.agents {
		m := &machine{name: fmt.Sprint("a", i+1)}
		start(m, s.bootAgent(i))
	}
	if s.focus >= People {
		for i := range 2 {
			start(&machine{name: fmt.Sprint("p", i+1)}, s.bootPerson(i))
		}
		s.after(nil, s.quietAt+parkedTicketAfter, s.checkParkedTickets)
	}
}

func (s *Sim) describe() {
	var names []string
	for _, k := range s.f.kinds {
		names = append(names, [...]string{"crash", "pause", "cut", "shutdown", "outage"}[k])
	}
	f := s.f
	s.log("", "faults until %s: %s, one every %s and at %.1f%% of the steps; messages lost %.1f%%, answers lost "+
		"%.1f%%, late %.1f%%, refused %.1f%%, twice %.1f%%, reads stale %.0f%%, copies lost %.0f%%, aborts lost %.0f%%",
		stamp(s.quietAt), strings.Join(names, " "), f.every, 100*f.strike, 100*f.lose, 100*f.loseAnswer, 100*f.late,
		100*f.refuse, 100*f.twice, 100*f.stale, 100*f.feedLost, 100*f.abortLost)
	for _, b := range s.sc.batches {
		var calls []string
		for i, c := range b.calls {
			text := fmt.Sprintf("%d:%s %s", i, c.kind, c.takes.Round(time.Millisecond))
			if c.code != "" {
				text += " " + string(c.code)
			}
			if c.passes > 0 {
				text += fmt.Sprintf(" passes after %d", c.passes)
			}
			if c.ignores {
				text += " ignores"
			}
			if c.person {
				text += " needs a person"
			}
			for n, a := range c.answers {
				if a != nil {
					text += fmt.Sprintf(" (p%d says %s after %s, edits %v)", n+1, a.decision, a.after, a.edits)
				}
			}
			calls = append(calls, text)
		}
		o := b.sub.Options
		if b.open {
			calls = append(calls, fmt.Sprintf("open: %d at once, the others every %s, closes %v", b.first, b.pause,
				b.closes))
		}
		s.log("", "%s in %s, %s, %s, at most %d, %s: %s", b.name, b.sub.Workspace, o.Partition, o.OnError,
			o.MaxConcurrency, b.timeout, strings.Join(calls, "; "))
	}
}
