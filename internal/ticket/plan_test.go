package ticket_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// This is a model of one batch of two groups. Two dispatchers plan it at once and reserve tickets; a third one may
// adopt it; a sweeper takes out tickets that nobody needs; and another batch wants the workspace alone. Each change of
// the queue is one step, since it is a compare-and-set. Parties that make no more steps have crashed.
// [planners.explore] visits every state that any order of steps leads to.

const groups = 2

// planners is the model. Its rules can be left out.
type planners struct {
	modes [2]ticket.Mode // of the groups, by planner: two dispatchers may plan differently
	other ticket.Mode    // of the other batch
	// reserve: what is done before the plan takes no ticket out. look: a dispatcher that lost takes its ticket out only
	// if the batch is over. through: a ticket is needed until the last group that it is for is over. granted: a plan
	// starts a group only under a ticket that is granted. alone: a ticket is kept only by who is alone in the queue.
	reserve, look, through, granted, alone bool
	// repeats: each party may make one change twice, since no answer has come. It multiplies the states.
	repeats bool
}

// scene is a state of the model. at[2] is the adopter, at[3] the other batch.
type scene struct {
	q       ticket.Queue
	at      [4]actor
	planned int // who planned, from 1
	owner   int // who owns the batch, from 1; a later one has a higher term
	started [groups]uint64
	over    [groups]bool
	done    bool // the batch is complete
	passed  bool // the other batch was overtaken by a group that came after it
}

type actor struct {
	step   string
	group  int
	number uint64
	// repeated: it has made one change twice
	repeated bool
}

func (s *scene) key() string { return fmt.Sprint(*s) }

// running returns the group whose call runs, -1 for none. It runs on a worker, whatever becomes of its owner.
func (s *scene) running() int {
	for g := range groups {
		if s.started[g] != 0 && !s.over[g] {
			return g
		}
	}
	return -1
}

func (p planners) holder(who, group int) ticket.Holder {
	h := ticket.Holder{Agent: "a", Batch: "b", Group: group}
	if who == 2 {
		h.Term = 1
	}
	if group == 0 && p.modes[0] != ticket.Shared && p.modes[1] == p.modes[0] {
		h.Through = groups - 1
	}
	return h
}

// namesOf are the names of all named tickets of the model.
func namesOf(mode ticket.Mode) []tool.Lock {
	if mode == ticket.Named {
		return []tool.Lock{{Name: "a"}}
	}
	return nil
}

var other = ticket.Holder{Agent: "a", Batch: toolyard.BatchID("other")}

// explore returns the number of states, and the first broken promise.
func (p planners) explore() (int, error) {
	seen := map[string]bool{}
	todo := []scene{{at: [4]actor{{step: "reserve"}, {step: "reserve"}, {step: "adopt"}, {step: "join"}}}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[s.key()] {
			continue
		}
		seen[s.key()] = true
		if err := p.check(&s); err != nil {
			return len(seen), err
		}
		todo = append(todo, p.next(s)...)
	}
	return len(seen), nil
}

func (p planners) check(s *scene) error {
	if g := s.running(); g >= 0 && s.at[3].step == "holds" {
		return fmt.Errorf("group %d runs beside the other batch: %+v", g, *s)
	}
	if s.started[1] != 0 && s.started[1] <= s.started[0] {
		return fmt.Errorf("the second group's token is not above the first's: %+v", *s)
	}
	if s.passed {
		return fmt.Errorf("a group began before the other batch, which had waited for the one before: %+v", *s)
	}
	return nil
}

// next returns the states to which one step leads.
func (p planners) next(s scene) (out []scene) {
	for who := range 3 {
		if n, ok := p.act(s, who); ok {
			out = append(out, n)
		}
		// No answer has come, and the change is made once more.
		if a := s.at[who]; a.step == "waits" && p.repeats && !a.repeated {
			if q, own, err := s.q.Join(p.holder(who, a.group), p.mode(&s), namesOf(p.mode(&s))...); err == nil {
				n := s
				n.q, n.at[who].number, n.at[who].repeated = q, own.Number(a.group), true
				out = append(out, n)
			}
		}
	}
	if g := s.running(); g >= 0 {
		n := s
		n.over[g] = true
		out = append(out, n)
	}
	n := s
	switch x := &n.at[3]; x.step {
	case "join":
		n.q, _, _ = s.q.Join(other, p.other, namesOf(p.other)...)
		x.step = "waits"
		out = append(out, n)
	case "waits":
		if _, ok := s.q.Granted(other, p.other, namesOf(p.other)...); ok {
			x.step = "holds"
			out = append(out, n)
		}
	case "holds":
		n.q, x.step = s.q.Leave(other), "gone"
		out = append(out, n)
	}
	for _, t := range s.q.Tickets { // the sweeper
		last := t.Group
		if p.through {
			last = t.Holder.Last()
		}
		if t.Batch == "b" && s.planned != 0 && (s.done || s.over[last]) {
			n := s
			n.q = s.q.Remove(t.N)
			out = append(out, n)
		}
	}
	return out
}

// mode is that of a group, as the stored plan has it.
func (p planners) mode(s *scene) ticket.Mode { return p.modes[s.planned-1] }

// act makes a party's next step.
func (p planners) act(s scene, who int) (scene, bool) {
	a := &s.at[who]
	current := func() int {
		for g := range groups {
			if !s.over[g] {
				return g
			}
		}
		return groups
	}
	switch a.step {
	case "reserve":
		join := ticket.Queue.Reserve
		if !p.reserve {
			join = ticket.Queue.Join
		}
		q, own, err := join(s.q, p.holder(who, 0), p.modes[who], namesOf(p.modes[who])...)
		if err != nil {
			a.step = "lost"
			return s, true
		}
		s.q, a.number, a.step = q, own.N, "plan"
	case "plan":
		_, granted := s.q.Granted(p.holder(who, 0), p.modes[who], namesOf(p.modes[who])...)
		// The grant is seen in the answer to the change; later it may have come.
		switch {
		case s.planned != 0:
			a.step = "lost"
		default:
			s.planned, s.owner, a.step = who+1, who+1, "own"
			if granted || !p.granted {
				s.started[0] = a.number
				a.step = "runs"
			}
		}
	case "lost":
		if p.look && !s.done {
			return s, false
		}
		s.q, a.step = s.q.Remove(a.number), "gone"
	case "adopt":
		if s.planned == 0 || s.done {
			return s, false
		}
		s.owner, a.step = who+1, "own"
	case "own": // it is about to take the current group's ticket
		a.group = current()
		if a.group == groups {
			a.step = "leave"
			break
		}
		h := p.holder(who, a.group)
		others := len(s.q.Tickets) > 1
		t, ok := s.q.Granted(h, p.mode(&s), namesOf(p.mode(&s))...)
		if ok && t.Group < a.group && t.Term == h.Term && (!others || !p.alone) {
			// The other batch waits since before the group, and is overtaken.
			_, waits := s.q.Find(other, p.other, namesOf(p.other)...)
			s.passed = s.passed || waits && s.owner == who+1
			a.number, a.step = t.Number(a.group), "start"
			break
		}
		q, own, err := s.q.Join(h, p.mode(&s), namesOf(p.mode(&s))...)
		switch {
		case errors.Is(err, ticket.ErrPassed):
			a.step = "gone"
		default:
			x, waits := s.q.Find(other, p.other, namesOf(p.other)...)
			before := ok && t.Term == h.Term && t.Group < a.group && s.started[a.group] == 0
			s.passed = s.passed || before && waits && own.N < x.N
			s.q, a.number, a.step = q, own.Number(a.group), "waits"
		}
	case "waits":
		if _, ok := s.q.Granted(p.holder(who, a.group), p.mode(&s), namesOf(p.mode(&s))...); !ok {
			return s, false
		}
		a.step = "start"
	case "start": // an append on the batch chain
		switch {
		case s.owner != who+1:
			a.step = "gone"
		case s.over[a.group]:
			a.step = "own"
		default:
			s.started[a.group], a.step = a.number, "runs"
		}
	case "runs":
		if !s.over[a.group] {
			return s, false
		}
		a.step = "own"
	case "leave":
		s.q, a.step = s.q.Leave(p.holder(who, groups-1)), "ends"
	case "ends":
		if s.owner == who+1 {
			s.done = true
		}
		a.step = "gone"
	default:
		return s, false
	}
	s.q.Tickets = slices.Clone(s.q.Tickets)
	return s, true
}

// everyPlan is the model with each combination of modes, and some with names; with the race detector, which finds
// nothing in one thread, only with an exclusive one of the first planner.
func everyPlan() map[string]planners {
	const s, x, n = ticket.Shared, ticket.Exclusive, ticket.Named
	out := map[string]planners{}
	for _, modes := range [][3]ticket.Mode{{x, s, x}, {x, x, x}, {s, s, x}, {s, x, x}, {n, n, n}, {n, x, n},
		{n, n, x}} {
		if raced && modes[0] != x {
			break
		}
		out[fmt.Sprintf("%s, %s, beside %s", modes[0], modes[1], modes[2])] = planners{
			modes: [2]ticket.Mode{modes[0], modes[1]}, other: modes[2],
			reserve: true, look: true, through: true, granted: true, alone: true}
	}
	return out
}

// TestPlannersOfOneBatch: however two planners, an adopter and a sweeper interleave, no group runs beside another batch
// that has the workspace alone, and a later group has a higher token.
func TestPlannersOfOneBatch(t *testing.T) {
	for name, p := range everyPlan() {
		p.repeats = !raced && p.modes[0] == p.modes[1] && p.modes[0] == ticket.Exclusive
		n, err := p.explore()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %d states", name, n)
	}
}

// TestEachRuleOfPlanningBites leaves out one rule at a time: a promise must break.
func TestEachRuleOfPlanningBites(t *testing.T) {
	for what, without := range map[string]func(*planners){
		"a reservation takes nothing out":            func(p *planners) { p.reserve = false },
		"who lost looks before it takes out":         func(p *planners) { p.look = false },
		"a ticket is needed for all its groups":      func(p *planners) { p.through = false },
		"a plan starts only what is granted":         func(p *planners) { p.granted = false },
		"only who is alone goes on under its ticket": func(p *planners) { p.alone = false },
	} {
		broken := 0
		for _, p := range everyPlan() {
			without(&p)
			if _, err := p.explore(); err != nil {
				broken++
				break
			}
		}
		if broken == 0 {
			t.Errorf("every promise holds without: %s", what)
		}
	}
}
