//go:build unix

package faults

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// rules say what a cell's fault may do to results. The zero rules are those of a fault that nobody may notice.
type rules struct {
	// harmed are the workers that were killed or stopped: a call that may not run twice, and that one of them had, may end
	// as outcome_unknown.
	harmed []*process
	pids   []int // of further ones
	// zombie says that a harmed worker woke up between its last commit point and its effect: what it does then happens,
	// unless the ledger refuses its token.
	zombie bool
	settle time.Duration // how long after the fault everything is over; 0: 20 s
	// told is how long after it was decided a tool may not know that it is canceled; 0: 3 s, a call ack wait.
	told time.Duration
	// codes are what else the results of a tool may say.
	codes map[string][]toolyard.Code
	// foreign are batches that somebody stored by hand.
	foreign []toolyard.BatchKey
	// stopped are the processes that were stopped as a whole: what they do between waking up and their next commit point
	// happens.
	stopped map[int]bool
}

// kinds are the tools of the load.
//
// A deaf tool asks for no commit point: what it does after its end happens.
var kinds = map[string]struct{ once, exclusive, deaf bool }{
	"look": {}, "look_once": {once: true}, "write": {once: true, exclusive: true}, "put": {exclusive: true}, "fail": {},
	"steady_look": {}, "steady_write": {once: true, exclusive: true}, "steady_put": {exclusive: true},
	"deaf_write": {once: true, exclusive: true, deaf: true}, "fork": {once: true, exclusive: true, deaf: true}, "panic_write": {once: true, exclusive: true}, "exit_write": {once: true, exclusive: true},
}

// call names a call among all.
type call struct {
	toolyard.BatchKey
	index int
}

func (c call) String() string { return fmt.Sprintf("%s/%d", c.BatchKey, c.index) }

// judged is a history in the form that the checks read.
type judged struct {
	*history
	rules
	tools   map[call]string
	lines   map[call][]ledger.Line
	results map[call]finished
	planned map[toolyard.BatchKey]*events.Planned
	groupOf map[call]int
	hurt    map[int]bool // the processes of the harmed
	out     []string
}

func (j *judged) fail(q, format string, args ...any) {
	j.out = append(j.out, q+": "+fmt.Sprintf(format, args...))
}

// check holds the history against the invariants. Each is a linear scan, over what is sorted.
func (h *history) check(r rules) []string {
	j := &judged{
		history: h, rules: r, tools: map[call]string{}, lines: map[call][]ledger.Line{}, results: map[call]finished{},
		planned: map[toolyard.BatchKey]*events.Planned{}, groupOf: map[call]int{}, hurt: map[int]bool{},
	}
	j.settle, j.told = cmp.Or(j.settle, 20*time.Second), cmp.Or(j.told, 3*time.Second)
	for _, p := range r.harmed {
		j.hurt[p.pid()] = true
	}
	for _, pid := range r.pids {
		j.hurt[pid] = true
	}
	for _, l := range h.ledger {
		c := call{l.Key(), l.Index}
		j.lines[c] = append(j.lines[c], l)
	}
	for _, sub := range h.submissions {
		for i, c := range sub.Batch.Calls {
			j.tools[call{sub.key(), i}] = c.Tool
		}
		rec := h.batches[sub.key()]
		for i, f := range rec.results() {
			j.results[call{sub.key(), i}] = f
		}
		j.plan(sub.key(), rec)
	}
	for _, q := range []func(){j.q1, j.q2, j.q3and4, j.q5, j.steady, j.q6, j.q7, j.q8, j.q10, j.q12, j.q13, j.q14, j.codesAreRight} {
		q()
	}
	return j.out
}

// plan puts a batch's groups together, as they were in the end.
func (j *judged) plan(k toolyard.BatchKey, rec *recorded) {
	for _, l := range rec.log {
		switch b := l.Body.(type) {
		case events.Planned:
			j.planned[k] = &b
		case events.Extended:
			if p := j.planned[k]; p != nil {
				p.Calls = append(slices.Clone(p.Calls), b.Calls...)
				p.Groups = append(slices.Clone(p.Groups[:b.FirstGroup]), b.Groups...)
			}
		}
	}
	if p := j.planned[k]; p != nil {
		for g, group := range p.Groups {
			for _, i := range group.Calls {
				j.groupOf[call{k, i}] = g
			}
		}
	}
}

// resultsIn are the results that an event gives to calls, or replies.
func resultsIn(body events.Body) []toolyard.Result {
	switch b := body.(type) {
	case events.Planned:
		return b.Results
	case events.Extended:
		return b.Results
	case events.Settled:
		return b.Results
	case events.Finished:
		return []toolyard.Result{b.Result}
	case events.Reply:
		return b.Results
	}
	return nil
}

// q1: every accepted call has one result on the reply stream, and no call that was not accepted has one.
func (j *judged) q1() {
	known := map[toolyard.BatchKey]bool{}
	for _, sub := range j.submissions {
		known[sub.key()] = true
		count := map[int]int{}
		completed := 0
		for _, l := range j.batches[sub.key()].log {
			if b, ok := l.Body.(events.Reply); ok {
				for _, r := range b.Results {
					count[r.Index]++
				}
				if b.Completed {
					completed++
				}
			}
		}
		for i := range sub.Batch.Calls {
			if count[i] != 1 {
				j.fail("Q1", "call %s has %d results on the reply stream", call{sub.key(), i}, count[i])
			}
			delete(count, i)
		}
		for i := range count {
			j.fail("Q1", "the reply stream has a result for call %s, which was never handed in", call{sub.key(), i})
		}
		if completed != 1 {
			j.fail("Q1", "batch %s was completed %d times", sub.key(), completed)
		}
	}
	for c := range j.lines {
		if slices.Contains(j.refused, c.BatchKey) {
			j.fail("Q1", "call %s ran, and its batch was refused", c)
		}
	}
	for _, k := range j.replied {
		if !known[k] && !slices.Contains(j.foreign, k) && !slices.Contains(j.refused, k) {
			j.fail("Q1", "the reply stream has batch %s, which was never handed in", k)
		}
	}
}

// q2: results come in emission order without a gap, and nobody sees one twice.
func (j *judged) q2() {
	inOrder := func(who string, results []toolyard.Result, n int) {
		for i, r := range results {
			if r.Index != i {
				j.fail("Q2", "%s got the result of call %d in place %d", who, r.Index, i)
				return
			}
		}
		if len(results) != n {
			j.fail("Q2", "%s got %d results of %d", who, len(results), n)
		}
	}
	for _, sub := range j.submissions {
		inOrder("the agent of "+sub.key().String(), sub.Results, len(sub.Batch.Calls))
		var replied []toolyard.Result
		for _, l := range j.batches[sub.key()].log {
			if b, ok := l.Body.(events.Reply); ok {
				replied = append(replied, b.Results...)
			}
		}
		inOrder("the reply stream of "+sub.key().String(), replied, len(sub.Batch.Calls))
	}
}

// count counts the lines of a kind about a call.
func count(lines []ledger.Line, k ledger.Kind) (n int) {
	for _, l := range lines {
		if l.Kind == k {
			n++
		}
	}
	return n
}

// q3and4: what may not run twice starts at most once and acts at most once, and one that did not act says so; what may run twice
// and says that it succeeded has acted.
func (j *judged) q3and4() {
	for c, name := range j.tools {
		lines, res := j.lines[c], j.results[c]
		begun, acted := count(lines, ledger.Begin), count(lines, ledger.Effect)
		if kinds[name].once && (begun > 1 || acted > 1) {
			j.fail("Q3", "%s %s was started %d times and has acted %d times", name, c, begun, acted)
		}
		_, ofLoad := kinds[name]
		if ofLoad && !res.IsError && res.CallID != "" && acted == 0 {
			j.fail(map[bool]string{true: "Q3", false: "Q4"}[kinds[name].once], "%s %s says that it succeeded and has not acted", name, c)
		}
		// A read has three attempts, and the first is started twice if its worker dies without a claim.
		if begun > 4 || begun > 3 && kinds[name].exclusive {
			j.fail("Q3", "%s %s was started %d times", name, c, begun)
		}
	}
	for c, lines := range j.lines {
		if _, ok := j.tools[c]; !ok {
			j.fail("Q3", "%s was run %d times and never handed in", c, count(lines, ledger.Begin))
		}
	}
}

// span is a time in which a workspace is used.
type span struct {
	call      call
	exclusive bool
	from, to  int64
}

// q5: in one workspace nothing runs beside an exclusive call. An exclusive call has its workspace from its first begin
// to the end that the log gives it; a read from its begin to its effect, if its result was taken.
func (j *judged) q5() {
	byWorkspace := map[toolyard.Workspace][]span{}
	for c, lines := range j.lines {
		res, ok := j.results[c]
		if !ok {
			continue
		}
		w := lines[0].Workspace
		if kinds[j.tools[c]].exclusive {
			byWorkspace[w] = append(byWorkspace[w], span{c, true, lines[0].Wall, res.at.UnixNano()})
			continue
		}
		// The execution whose result was taken is the last that its worker began before: the others do not count.
		var s *span
		for _, l := range lines {
			switch {
			case res.IsError || l.Worker != j.processes[res.Worker] || l.Kind == ledger.Begin && l.Wall > res.at.UnixNano():
			case l.Kind == ledger.Begin:
				s = &span{c, false, l.Wall, l.Wall}
			case l.Kind == ledger.Effect && s != nil && s.to == s.from:
				s.to = l.Wall
			}
		}
		if s != nil {
			byWorkspace[w] = append(byWorkspace[w], *s)
		}
	}
	for w, spans := range byWorkspace {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		var last, lastExclusive span // those that end last so far
		for _, s := range spans {
			if s.exclusive && s.from < last.to {
				j.fail("Q5", "in workspace %s %s began while %s was running, %s before its end", w, s.call, last.call, time.Duration(last.to-s.from))
			} else if !s.exclusive && s.from < lastExclusive.to {
				j.fail("Q5", "in workspace %s %s began while the exclusive %s was running, %s before its end", w, s.call, lastExclusive.call, time.Duration(lastExclusive.to-s.from))
			}
			if s.to > last.to {
				last = s
			}
			if s.exclusive && s.to > lastExclusive.to {
				lastExclusive = s
			}
		}
	}
}

// steady: in one workspace nothing acts beside an exclusive call, from its first begin to the end that the log gives it, whether
// its result was taken or not; and no exclusive call acts after its attempt has an end in the log, also behind its last commit
// point. Only what was stopped as a whole may, for a moment.
func (j *judged) steady() {
	byWorkspace := map[toolyard.Workspace][]span{}
	for c, lines := range j.lines {
		if res, ok := j.results[c]; ok && kinds[j.tools[c]].exclusive {
			byWorkspace[lines[0].Workspace] = append(byWorkspace[lines[0].Workspace], span{c, true, lines[0].Wall, res.at.UnixNano()})
		}
	}
	for _, spans := range byWorkspace {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	for c, lines := range j.lines {
		for _, l := range lines {
			if l.Kind != ledger.Tick || j.stopped[l.Worker] {
				continue
			}
			if at, ended := j.attemptEnd(c, l.Attempt); ended && kinds[j.tools[c]].exclusive && l.Wall > at.UnixNano() {
				j.fail("Q7", "%s acted %s after its attempt %d had its end in the log", c, time.Duration(l.Wall-at.UnixNano()), l.Attempt)
			}
			spans := byWorkspace[l.Workspace]
			n, _ := slices.BinarySearchFunc(spans, l.Wall, func(s span, at int64) int { return cmp.Compare(s.from, at) })
			for _, s := range spans[max(0, n-1):n] { // the one that began last before; the others are over, or Q5 says so
				if s.call != c && l.Wall < s.to {
					j.fail("Q5", "in workspace %s %s acted while the exclusive %s had it, %s before its end", l.Workspace, c, s.call, time.Duration(s.to-l.Wall))
				}
			}
		}
	}
}

// q6: nothing of a group begins before each call of the groups before it has its result in the log.
func (j *judged) q6() {
	for k, plan := range j.planned {
		var over int64 // when the groups before this one were
		var open []int // calls of those that have no result
		for g, group := range plan.Groups {
			for _, i := range group.Calls {
				for _, l := range j.lines[call{k, i}] {
					if l.Kind == ledger.Begin && (l.Wall < over || len(open) > 0) {
						j.fail("Q6", "%s of group %d began %s before the groups before it were over (without a result: %v)", call{k, i}, g, time.Duration(over-l.Wall), open)
					}
				}
			}
			for _, i := range group.Calls {
				if f, ok := j.results[call{k, i}]; ok {
					over = max(over, f.at.UnixNano())
				} else {
					open = append(open, i)
				}
			}
		}
	}
}

// q7: the tokens that exclusive effects carry only grow in each workspace, no two groups have the same, none was refused, and
// nothing acts after its call, or its attempt, has an end in the log.
func (j *judged) q7() {
	type holder struct {
		token uint64
		k     toolyard.BatchKey
		group int
	}
	last := map[toolyard.Workspace]holder{}
	for _, l := range j.ledger {
		c := call{l.Key(), l.Index}
		exclusive := kinds[j.tools[c]].exclusive && !kinds[j.tools[c]].deaf
		switch {
		case l.Kind == ledger.Fenced && !(j.zombie && j.hurt[l.Worker]):
			j.fail("Q7", "%s came with token %d when the workspace had seen a higher one", c, l.Token)
		case l.Kind == ledger.Effect && exclusive:
			was, now := last[l.Workspace], holder{l.Token, l.Key(), j.groupOf[c]}
			if l.Token == 0 || l.Token < was.token || l.Token == was.token && was != now {
				j.fail("Q7", "%s has acted with token %d after %s, group %d, with token %d", c, l.Token, was.k, was.group, was.token)
			}
			last[l.Workspace] = now
			if at, ended := j.attemptEnd(c, l.Attempt); ended && l.Wall > at.UnixNano() && !(j.zombie && j.hurt[l.Worker]) {
				j.fail("Q7", "%s has acted %s after its attempt %d had its end in the log", c, time.Duration(l.Wall-at.UnixNano()), l.Attempt)
			}
		}
	}
}

// attemptEnd is when the log says that an attempt of a call was over.
func (j *judged) attemptEnd(c call, attempt int) (time.Time, bool) {
	for _, l := range j.batches[c.BatchKey].log {
		if l.Chain != batch.ChainCall || l.Index != c.index {
			continue
		}
		switch b := l.Body.(type) {
		case events.AttemptFailed:
			if b.Attempt == attempt {
				return l.Time, true
			}
		case events.Finished:
			return l.Time, true
		}
	}
	return time.Time{}, false
}

// q8: a call that needs a claim does not begin after it was ended for a sibling's sake, unless it was claimed before; and whoever
// runs such a call knows it soon.
func (j *judged) q8() {
	for c, res := range j.results {
		if res.Code != toolyard.SiblingCanceled {
			continue
		}
		claims := j.planned[c.BatchKey].Calls[c.index].Claim && !j.wasClaimed(c)
		running := map[int]bool{} // by process
		for _, l := range j.lines[c] {
			after := time.Duration(l.Wall - res.at.UnixNano())
			switch {
			case l.Kind == ledger.Begin && claims && after > 0:
				j.fail("Q8", "%s began %s after it was canceled", c, after)
			case l.Kind == ledger.Begin:
				running[l.Worker] = true
			case l.Kind == ledger.Stopped || l.Kind == ledger.End || l.Kind == ledger.Effect:
				if running[l.Worker] && after > j.told && !j.hurt[l.Worker] {
					j.fail("Q8", "%s was told %s after it was canceled; %s are allowed", c, after, j.told)
				}
				delete(running, l.Worker)
			}
		}
		for pid := range running {
			if !j.hurt[pid] {
				j.fail("Q8", "%s was canceled and never stopped, in process %d", c, pid)
			}
		}
	}
}

// wasClaimed reports whether a call was claimed before it had its result: its worker may not know of it when it starts.
func (j *judged) wasClaimed(c call) bool {
	for _, l := range j.batches[c.BatchKey].log {
		if _, ok := l.Body.(events.Claimed); ok && l.Chain == batch.ChainCall && l.Index == c.index {
			return true
		}
	}
	return false
}

// q10: whoever hands the same batch in again gets the same results.
func (j *judged) q10() {
	for _, sub := range j.submissions {
		for _, again := range sub.Again {
			if !bytes.Equal(raw(again), raw(sub.Results)) {
				j.fail("Q10", "batch %s was handed in again, and its results are others: %s", sub.key(), raw(again))
			}
		}
	}
}

// q12: everything is over soon after the last fault.
func (j *judged) q12() {
	for _, sub := range j.submissions {
		from := sub.Acked
		if j.faultEnd.After(from) {
			from = j.faultEnd
		}
		switch took := sub.Over.Sub(from); {
		case sub.Over.IsZero():
			j.fail("Q12", "batch %s was never over", sub.key())
		case took > j.settle:
			j.fail("Q12", "batch %s was over %s after the last fault; %s are allowed", sub.key(), took, j.settle)
		}
	}
}

// q13: the events, read again and folded again, give the same to the byte, and do not contradict each other.
func (j *judged) q13() {
	for k, r := range j.batches {
		if r.contradiction != nil {
			j.fail("Q13", "the log of %s contradicts itself: %v", k, r.contradiction)
		} else if !bytes.Equal(r.view, r.replayed) {
			j.fail("Q13", "the replay of %s gives\n%s\nand it is told as\n%s", k, r.replayed, r.view)
		}
	}
}

// q14: what was acknowledged is there: every batch with every call, and every result that an agent has seen.
func (j *judged) q14() {
	for _, sub := range j.submissions {
		if sub.Acked.IsZero() {
			continue
		}
		stored := map[string]bool{}
		for _, l := range j.batches[sub.key()].log {
			switch b := l.Body.(type) {
			case events.Submitted:
				for _, c := range b.Calls {
					stored[c.ID] = true
				}
			case events.Appended:
				for _, c := range b.Calls {
					stored[c.ID] = true
				}
			}
		}
		for i, c := range sub.Batch.Calls {
			id := cmp.Or(c.ID, fmt.Sprintf("call_%d", i+1))
			if !stored[id] {
				j.fail("Q14", "call %s (%s) was acknowledged and is not stored", call{sub.key(), i}, id)
			}
		}
		for _, r := range sub.Results {
			f := j.results[call{sub.key(), r.Index}]
			if !bytes.Equal(raw(f.Result), raw(r)) {
				j.fail("Q14", "the agent has seen for call %s\n%s\nand the log has\n%s", call{sub.key(), r.Index}, raw(r), raw(f.Result))
			}
		}
	}
}

// codesAreRight: a fault does not make results worse than it has to.
func (j *judged) codesAreRight() {
	for c, res := range j.results {
		name := j.tools[c]
		if slices.Contains(j.codes[name], res.Code) {
			continue
		}
		ok := false
		switch res.Code {
		case toolyard.OK:
			ok = name != "fail" && name != "no_such_tool"
		case toolyard.ExecutionFailed:
			ok = name == "fail"
		case toolyard.UnknownTool:
			ok = name == "no_such_tool"
		case toolyard.SchemaValidationFailed:
			ok = j.wrongInput(c)
		case toolyard.SiblingCanceled:
			ok = j.hasFailedSibling(c)
		case toolyard.OutcomeUnknown:
			ok = kinds[name].once && j.hurt[j.processes[res.Worker]]
		}
		if !ok {
			j.fail("code", "%s %s ended as %q: %s (%s)", name, c, res.Code, res.Error, res.Detail)
		}
	}
}

func (j *judged) wrongInput(c call) bool {
	for _, sub := range j.submissions {
		if sub.key() == c.BatchKey {
			return bytes.Contains(sub.Batch.Calls[c.index].Input, []byte("soon"))
		}
	}
	return false
}

func (j *judged) hasFailedSibling(c call) bool {
	for _, i := range j.planned[c.BatchKey].Groups[j.groupOf[c]].Calls {
		if other := (call{c.BatchKey, i}); j.results[other].Code == toolyard.ExecutionFailed {
			return true
		}
	}
	return false
}
