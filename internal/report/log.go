package report

import (
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
)

// Log reads the log of one batch.
type Log struct {
	state   batch.State
	problem string
	// takenOver says that an owner has taken the batch from another one. A parked batch has none.
	takenOver bool
	planned   time.Time
	started   map[int]time.Time // groups
	ended     map[int]time.Time // calls
	// asked are the calls whose last question has no answer. spared are the rules that would have spared the questions
	// that people answered with yes, each as often.
	asked  map[int]bool
	spared []string
	// given are the results that stand in a reply alone: those of a batch that was given up.
	given map[int]*toolyard.Result
}

// NewLog begins the log of a batch.
func NewLog(k toolyard.BatchKey) *Log {
	return &Log{state: batch.State{Key: k}, started: map[int]time.Time{}, ended: map[int]time.Time{},
		asked: map[int]bool{}, given: map[int]*toolyard.Result{}}
}

// Stop says why the log cannot be followed any further.
func (l *Log) Stop(problem string) {
	if l.problem == "" {
		l.problem = problem
	}
}

// Add takes the next event in.
func (l *Log) Add(r batch.Record) {
	if l.problem != "" {
		return
	}
	parked := l.state.Parked
	if err := l.state.Apply(r); err != nil {
		l.Stop(err.Error())
		return
	}
	if _, ok := r.Body.(events.Adopted); ok && !parked {
		l.takenOver = true
	}
	if _, ok := r.Body.(events.Planned); ok && l.planned.IsZero() {
		l.planned = r.Time
	}
	l.questions(&r)
	if s := events.StartOf(r.Body); s != nil {
		if _, ok := l.started[s.Group]; !ok {
			l.started[s.Group] = r.Time
		}
	}
	reply, isReply := r.Body.(events.Reply)
	if !isReply {
		for _, res := range events.ResultsIn(r.Body) {
			if i := res.Index; !l.open(i) && l.ended[i].IsZero() {
				l.ended[i] = r.Time
			}
		}
		return
	}
	for n := range reply.Results {
		if i := reply.Results[n].Index; l.open(i) && l.given[i] == nil {
			l.given[i] = &reply.Results[n]
		}
	}
}

// questions follows what people are asked, and answer: a tool may ask again about a call that was allowed.
func (l *Log) questions(r *batch.Record) {
	decided, isDecision := r.Body.(events.Decided)
	_, asks := r.Body.(events.Waiting)
	if !asks && !isDecision {
		return
	}
	for _, i := range r.Calls() {
		if i < 0 || i >= len(l.state.Calls) || l.state.Calls[i].Seq != r.Seq { // of another pool: it means nothing
			continue
		}
		l.asked[i] = asks
		if decided.Decision != events.Approve {
			continue
		}
		// One that is for this input alone is no rule.
		if rule, ok := policy.RememberedRule(l.state.Calls[i].Asked.Remember); ok {
			l.spared = append(l.spared, rule.String())
		}
	}
}

// open reports whether the log has no result of a call.
func (l *Log) open(i int) bool {
	return i < 0 || i >= len(l.state.Calls) || l.state.Calls[i].Result == nil
}

// result is what a call ended with; nil if it is under way.
func (l *Log) result(i int) *toolyard.Result {
	if l.open(i) {
		return l.given[i]
	}
	return l.state.Calls[i].Result
}

// unplanned are the calls behind those of the plan: those of a batch without one, and those that were appended since.
func (l *Log) unplanned() []toolyard.Call {
	if l.state.Submission == nil {
		return nil
	}
	all := slices.Concat(l.state.Submission.Calls, l.state.Input)
	return all[min(len(l.state.Calls), len(all)):]
}

// ticketWait is how long a group waited for its ticket: from when all was there that it waited for otherwise.
func (l *Log) ticketWait(g int) (time.Duration, bool) {
	groups := l.state.Plan.Groups
	began, ok := l.started[g]
	if !ok || !groups[g].Ticket {
		return 0, false
	}
	ready := l.planned
	for _, before := range groups[:g] {
		for _, i := range before.Calls {
			if l.ended[i].After(ready) {
				ready = l.ended[i]
			}
		}
	}
	return max(began.Sub(ready), 0), true
}

// aborted is how many calls of a group ended because one of their siblings failed, and that one's tool.
func (l *Log) aborted(g int) (culprit string, calls int) {
	first := time.Time{}
	for _, i := range l.state.Plan.Groups[g].Calls {
		res := l.result(i)
		if res == nil || !res.IsError {
			continue
		}
		if res.Code == toolyard.SiblingCanceled {
			calls++
			continue
		}
		ran := slices.ContainsFunc(res.Phases, func(f toolyard.Fact) bool { return f.Phase == toolyard.PhaseExecute })
		if ran && l.state.Plan.Calls[i].AbortsSiblings && (first.IsZero() || l.ended[i].Before(first)) {
			culprit, first = l.state.Plan.Calls[i].Tool, l.ended[i]
		}
	}
	return culprit, calls
}
