// Package replay reads the log of a batch again: it folds the events with the state machine's own fold, checks
// invariants on the way, and draws what happened.
//
// It has no side effects and asks no other process: an old log and one that is still growing are read in the same way.
// It checks more than the fold. The fold accepts an event that follows from the ones before; a replay also checks that
// a group waited for those before it, and that replies have the results of the log.
//
// Events come in the order in which they were stored. Events and replies are stored apart, and their common order comes
// from clocks and may be slightly wrong. So a reply may precede its results, and is compared with them when they come.
package replay

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Contradiction is the first event that cannot be true together with those before it.
type Contradiction struct {
	// Event counts from 1; one more than the number of events means the log's end.
	Event   int         `json:"event"`
	Type    events.Type `json:"type"`
	Problem string      `json:"problem"`
	// Newer is the type of an earlier event that only a newer version knows: to that version the log may be consistent.
	Newer events.Type `json:"newer,omitempty"`
}

func (c *Contradiction) Error() string {
	what := string(c.Type)
	if what == "" {
		what = "the end of the log"
	}
	if c.Newer != "" {
		return fmt.Sprintf("event %d (%s): %s; an event before it is of a newer version, which may say otherwise (%s)",
			c.Event, what, c.Problem, c.Newer)
	}
	return fmt.Sprintf("event %d (%s): %s", c.Event, what, c.Problem)
}

// Replay replays the events of one batch. The zero Replay is ready.
type Replay struct {
	state batch.State
	read  int
	wrong *Contradiction

	key     toolyard.BatchKey
	ids     map[string]int
	over    int // all groups before this one have all their results
	checked int // all calls before this one are planned as submitted
	groupOf map[int]int
	replied map[int]toolyard.Result // replies whose results are not in the log yet
	givenUp []int                   // answered as internal_error by an owner that gave up
	// answered says that a refusal in place of the plan was followed by the one that the agent reads.
	answered bool

	times times
}

// Add adds the next event. It returns the [*Contradiction] of the log so far, if there is one.
func (p *Replay) Add(e Event) error {
	if p.wrong != nil {
		return p.wrong
	}
	if p.ids == nil {
		p.ids, p.groupOf, p.replied = map[string]int{}, map[int]int{}, map[int]toolyard.Result{}
		p.times.groups, p.times.calls = map[int]time.Time{}, map[int]*callTimes{}
	}
	p.read++
	if problem := p.add(e); problem != "" {
		p.contradict(p.read, e.Body.EventType(), problem)
		return p.wrong
	}
	return nil
}

func (p *Replay) contradict(event int, t events.Type, problem string) {
	p.wrong = &Contradiction{Event: event, Type: t, Problem: problem}
	if newer := p.state.Newer; len(newer) > 0 {
		p.wrong.Newer = newer[0].Type
	}
}

// add checks one event, folds it, and records its times. It returns what is wrong.
func (p *Replay) add(e Event) (problem string) {
	if problem := p.belongs(e); problem != "" {
		return problem
	}
	if p.foreign(e) {
		return "" // it means nothing
	}
	if problem := p.follows(e); problem != "" && !isNewer(e) {
		return problem
	}
	if sub, ok := e.Body.(events.Submitted); ok {
		e.Body = p.completed(sub)
	}
	e.Seq = uint64(p.read) // the log's order counts; the fold skips an event that is not later
	if err := p.state.Apply(e.Record); err != nil {
		if invariant, ok := errors.AsType[*batch.InvariantError](err); ok {
			return invariant.Problem
		}
		return err.Error()
	}
	if problem := p.matches(e); problem != "" {
		return problem
	}
	p.times.record(e, &p.state)
	return ""
}

// belongs checks that the event belongs to this batch and is not a repeat.
func (p *Replay) belongs(e Event) string {
	if isUnreadable(e) { // its id may be what is wrong with it
		return ""
	}
	if first, ok := p.ids[e.Meta.ID]; ok {
		return fmt.Sprintf("it has the id of event %d", first)
	}
	p.ids[e.Meta.ID] = p.read
	if e.Chain == batch.ChainSubmission || isNewer(e) {
		return ""
	}
	k, index, inCall, err := about(e.Meta.Subject)
	switch {
	case err != nil:
		return err.Error()
	case inCall != (e.Chain == batch.ChainItem), inCall && index != e.Index:
		return fmt.Sprintf("its subject %q is not that of its place", e.Meta.Subject)
	case p.key != toolyard.BatchKey{} && k != p.key:
		return fmt.Sprintf("it is an event of batch %s in the log of batch %s", k, p.key)
	}
	p.key = k
	return p.sameKey()
}

// foreign reports whether an event is on the chain of an item for a pool that its calls were not planned for. A process
// with write access to the stream may put it there, but no reader uses it.
func (p *Replay) foreign(e Event) bool {
	s := &p.state
	return e.Chain == batch.ChainItem && e.Pool != "" && s.Plan != nil && e.Index >= 0 && e.Index < len(s.Plan.Calls) &&
		e.Pool != s.Plan.Calls[e.Index].Pool
}

func isUnreadable(e Event) bool {
	_, ok := e.Body.(events.Unreadable)
	return ok
}

func isNewer(e Event) bool {
	_, ok := e.Body.(events.Newer)
	return ok
}

// sameKey completes the submission's key, which may be missing, from the other events.
func (p *Replay) sameKey() string {
	sub := p.state.Submission
	if sub == nil {
		return ""
	}
	if sub.Agent == "" {
		sub.Agent = p.key.Agent
	}
	if sub.ID == "" {
		sub.ID = p.key.ID
	}
	if sub.Key() != p.key {
		return fmt.Sprintf("it is an event of batch %s, and batch %s was submitted", p.key, sub.Key())
	}
	p.state.Key = p.key
	return ""
}

// completed sets the defaults of a submission, as the dispatcher does.
func (p *Replay) completed(sub events.Submitted) events.Submitted {
	agent, id := sub.Agent, sub.ID
	sub.Calls = slices.Clone(sub.Calls)
	sub.Normalize("")
	sub.Agent, sub.ID = agent, id // the other events are authoritative
	return sub
}

// follows checks what must be true before the event, beyond the fold's checks.
func (p *Replay) follows(e Event) string {
	s := &p.state
	if _, ok := e.Body.(events.Submitted); ok != (s.Submission == nil) {
		if ok {
			return "the batch was submitted before"
		}
		return "it stands before the submission"
	}
	if s.Refused != nil && e.Chain != batch.ChainInput && e.Chain != batch.ChainControl { // others write there too
		if again, ok := e.Body.(events.Refused); ok && again == *s.Refused && !p.answered {
			// a rejected batch is refused in place of its plan, and then where its agent reads
			p.answered = true
			return ""
		}
		return "the batch was refused before"
	}
	switch b := e.Body.(type) {
	case events.Refused:
		if s.Plan != nil {
			return "the batch was planned before"
		}
	case events.Planned:
		if b.Start != nil {
			return startsEarly(&b)
		}
	case events.Adopted:
		if s.Plan != nil && b.Takeover != s.Takeovers+1 {
			return fmt.Sprintf("it is takeover %d after takeover %d", b.Takeover, s.Takeovers)
		}
	case events.Extended:
		for g := range s.Started {
			if g > b.FirstGroup {
				return fmt.Sprintf("it plans group %d again, and group %d had started", b.FirstGroup+1, g+1)
			}
		}
	case events.Started:
		if s.Plan != nil && b.Group < len(s.Plan.Groups) {
			return p.barrier(b.Group)
		}
	case events.Settled:
		for _, r := range b.Results {
			if g, ok := p.groupOf[r.Index]; ok && p.started(g) {
				return fmt.Sprintf("it settles call %d, whose group %d had started: a worker may have it", r.Index, g+1)
			}
		}
	}
	if e.Chain == batch.ChainItem {
		return p.inItem(e)
	}
	return ""
}

// startsEarly checks that a plan answers every call of the groups before the one that it starts.
func startsEarly(p *events.Planned) string {
	answered := map[int]bool{}
	for i := range p.Results {
		answered[p.Results[i].Index] = true
	}
	for g, group := range p.Groups[:max(0, min(p.Start.Group, len(p.Groups)))] {
		for _, i := range group.Calls {
			if !answered[i] {
				return fmt.Sprintf("group %d starts with the plan, and call %d of group %d has no result",
					p.Start.Group+1, i, g+1)
			}
		}
	}
	return ""
}

func (p *Replay) started(group int) bool {
	_, ok := p.state.Started[group]
	return ok
}

// barrier checks that every call of the groups before this one has its result.
func (p *Replay) barrier(group int) string {
	s := &p.state
	for p.over < group && s.Done(p.over) {
		p.over++
	}
	if p.over >= group {
		return ""
	}
	open := slices.IndexFunc(s.Plan.Groups[p.over].Calls, s.Open)
	return fmt.Sprintf("group %d started before call %d of group %d had its result", group+
		1, s.Plan.Groups[p.over].Calls[open], p.over+1)
}

// inItem checks an event of an item against its group and the claims of its calls.
func (p *Replay) inItem(e Event) string {
	s := &p.state
	g, ok := p.groupOf[e.Index]
	if !ok {
		return "" // the fold knows that there is no such call
	}
	if !p.started(g) {
		return fmt.Sprintf("call %d has an event before its group %d started", e.Index, g+1)
	}
	claim, claims := e.Body.(events.Claimed)
	if !claims {
		return ""
	}
	call := e.Calls()[0]
	if call < 0 || call >= len(s.Calls) {
		return ""
	}
	if c := s.Calls[call]; c.Status == batch.Claimed &&
		(!claim.Renewed || claim.Worker != c.Worker || claim.Attempt != c.Attempt) {
		return fmt.Sprintf("call %d is claimed while the claim of worker %s stands", call, c.Worker)
	}
	return ""
}

// matches checks a folded event against its subject.
func (p *Replay) matches(e Event) string {
	switch b := e.Body.(type) {
	case events.Planned:
		return p.planned(0, e)
	case events.Extended:
		return p.planned(b.FirstGroup, e)
	case events.Reply:
		return p.reply(b)
	case events.Finished, events.Settled:
		if problem := p.answersItsCall(e); problem != "" {
			return problem
		}
		return p.repliesMatch()
	}
	return ""
}

// reply checks a reply. An owner that cannot continue a batch gives it up: its last reply answers the open calls as
// internal_error, and no event says so.
func (p *Replay) reply(b events.Reply) string {
	s := &p.state
	calls := len(s.Calls)
	for _, r := range b.Results {
		if b.Completed && r.Code == toolyard.InternalError && (r.Index >= len(s.Calls) || s.Open(r.Index)) {
			p.givenUp = append(p.givenUp, r.Index)
			calls = len(s.Submission.Calls) + len(s.Input)
		} else {
			p.replied[r.Index] = r
		}
		if r.Index >= calls {
			return fmt.Sprintf("it has the result of call %d, and the batch has %d calls", r.Index, calls)
		}
	}
	if b.Completed && s.Replied != calls {
		return fmt.Sprintf("it says that the batch is completed, after %d of %d results", s.Replied, calls)
	}
	return p.repliesMatch()
}

// planned adds the groups from firstGroup on, and checks that the planned calls are those that were submitted.
func (p *Replay) planned(firstGroup int, e Event) string {
	s := &p.state
	p.over = min(p.over, firstGroup)
	for g := firstGroup; g < len(s.Plan.Groups); g++ {
		for _, i := range s.Plan.Groups[g].Calls {
			p.groupOf[i] = g
		}
	}
	in := func(i int) *toolyard.Call {
		if n := len(s.Submission.Calls); i >= n {
			return &s.Input[i-n]
		}
		return &s.Submission.Calls[i]
	}
	handedIn := len(s.Submission.Calls) + len(s.Input)
	if n := len(s.Plan.Calls); n > handedIn || n < len(s.Submission.Calls) {
		return fmt.Sprintf("it plans %d calls, and %d were handed in", n, handedIn)
	}
	for ; p.checked < len(s.Plan.Calls); p.checked++ {
		// An appended call without an id gets one when it is planned.
		if id, planned := in(p.checked).ID, s.Plan.Calls[p.checked].ID; id != "" && id != planned {
			return fmt.Sprintf("it plans call %d as %q, and %q was handed in", p.checked, planned, id)
		}
	}
	return p.answersItsCall(e)
}

// answersItsCall checks that a result has the id of its call, because a model pairs them by id.
func (p *Replay) answersItsCall(e Event) string {
	for _, r := range events.ResultsIn(e.Body) {
		// empty: from a worker that could not read the call
		if want := p.state.Plan.Calls[r.Index].ID; r.CallID != want && r.CallID != "" {
			return fmt.Sprintf("the result of call %d is that of %q, and the call is %q", r.Index, r.CallID, want)
		}
	}
	return ""
}

// repliesMatch compares the replies with the results that are known.
func (p *Replay) repliesMatch() string {
	for _, i := range slices.Sorted(maps.Keys(p.replied)) {
		if i >= len(p.state.Calls) || p.state.Open(i) { // not planned yet, or has no result yet
			continue
		}
		found, replied := *p.state.Calls[i].Result, p.replied[i]
		delete(p.replied, i)
		if !reflect.DeepEqual(found, replied) {
			return fmt.Sprintf("the reply for call %d is not its result: %s", i, differs(found, replied))
		}
	}
	return ""
}

// differs says how two results of one call differ.
func differs(found, replied toolyard.Result) string {
	for _, f := range []struct{ what, a, b string }{
		{"code", outcome(&found), outcome(&replied)},
		{"output", found.Output, replied.Output},
		{"error", found.Error, replied.Error},
	} {
		if f.a != f.b {
			a, b, line := firstDifference(f.a, f.b)
			return fmt.Sprintf("%s line %d: found %q, replied %q", f.what, line, a, b)
		}
	}
	return "they differ beside code, output and error"
}

// end checks for states that a complete log cannot end in.
func (p *Replay) end() {
	if p.wrong != nil {
		return
	}
	wrong := func(format string, args ...any) {
		p.contradict(p.read+1, "", fmt.Sprintf(format, args...))
	}
	if open := slices.Sorted(maps.Keys(p.replied)); len(open) > 0 {
		wrong("call %d was replied to, and no event gives it a result", open[0])
		return
	}
	if p.state.Completed && !p.state.Closed && len(p.givenUp) == 0 {
		wrong("the batch was completed, and no event closed it")
	}
}
