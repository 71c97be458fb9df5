package verdict

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"

	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// Kind is what the checks know of a tool.
//
// A deaf tool asks for no commit point: what it does after its end happens. What may be run once only may end as
// outcome_unknown. A free tool uses no workspace, and waits for nobody there.
type Kind struct{ Once, Exclusive, Deaf, Free bool }

// Rules say what the tools are, and what the faults of a run may do to results. The zero Rules are those of faults that
// nobody may notice.
type Rules struct {
	Kinds map[string]Kind
	// Hurt are the workers' processes that were killed or stopped: a call that may not run twice, and that one of them
	// had, may end as outcome_unknown.
	Hurt map[int]bool
	// Zombie says that a hurt worker woke up between its last commit point and its effect: what it does then happens,
	// unless the ledger refuses its token.
	Zombie bool
	Settle time.Duration // how long after the fault everything is over; 0: 20 s
	// Told is how long after it was decided a tool may not know that it is canceled; 0: 3 s, a call ack wait.
	Told time.Duration
	// Foreign are batches that somebody stored by hand.
	Foreign []toolyard.BatchKey
	// Stopped are the processes that were stopped as a whole: what they do between waking up and their next commit
	// point happens.
	Stopped map[int]bool
	// Right reports whether a result may say what it says.
	Right func(*Judged, Call, Finished) bool
}

// Call names a call among all.
type Call struct {
	toolyard.BatchKey
	Index int
}

func (c Call) String() string { return fmt.Sprintf("%s/%d", c.BatchKey, c.Index) }

// Judged is a history in the form that the checks read.
type Judged struct {
	*History
	Rules
	Tools   map[Call]string
	Results map[Call]Finished
	Planned map[toolyard.BatchKey]*events.Planned
	GroupOf map[Call]int
	lines   map[Call][]ledger.Line
	out     []string
}

// Fail notes that something does not hold.
func (j *Judged) Fail(q, format string, args ...any) {
	j.out = append(j.out, q+": "+fmt.Sprintf(format, args...))
}

// Check holds the history against the invariants, and returns what does not hold. Each is a linear scan, over what is
// sorted.
func (h *History) Check(r Rules) []string {
	j := &Judged{
		History: h, Rules: r, Tools: map[Call]string{}, lines: map[Call][]ledger.Line{}, Results: map[Call]Finished{},
		Planned: map[toolyard.BatchKey]*events.Planned{}, GroupOf: map[Call]int{},
	}
	j.Settle, j.Told = cmp.Or(j.Settle, 20*time.Second), cmp.Or(j.Told, 3*time.Second)
	for _, l := range h.Ledger {
		c := Call{l.Key(), l.Index}
		j.lines[c] = append(j.lines[c], l)
	}
	for _, sub := range h.Submissions {
		for i, c := range sub.Batch.Calls {
			j.Tools[Call{sub.Key(), i}] = c.Tool
		}
		rec := h.Batches[sub.Key()]
		for i, f := range rec.Results() {
			j.Results[Call{sub.Key(), i}] = f
		}
		j.plan(sub.Key(), rec)
	}
	for _, q := range []func(){j.q1, j.q2, j.q3and4, j.q5, j.steady, j.q6, j.q7, j.q8, j.q10, j.q12, j.q13, j.q14,
		j.codes} {
		q()
	}
	return j.out
}

// plan puts a batch's groups together, as they were in the end.
func (j *Judged) plan(k toolyard.BatchKey, rec *Batch) {
	for _, l := range rec.Log {
		switch b := l.Body.(type) {
		case events.Planned:
			j.Planned[k] = &b
		case events.Extended:
			if p := j.Planned[k]; p != nil {
				p.Calls = append(slices.Clone(p.Calls), b.Calls...)
				p.Groups = append(slices.Clone(p.Groups[:b.FirstGroup]), b.Groups...)
			}
		}
	}
	if p := j.Planned[k]; p != nil {
		for g, group := range p.Groups {
			for _, i := range group.Calls {
				j.GroupOf[Call{k, i}] = g
			}
		}
	}
}

// q1: every accepted call has one result on the reply stream, and no call that was not accepted has one.
func (j *Judged) q1() {
	known := map[toolyard.BatchKey]bool{}
	for _, sub := range j.Submissions {
		known[sub.Key()] = true
		count := map[int]int{}
		completed := 0
		for _, l := range j.Batches[sub.Key()].Log {
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
				j.Fail("Q1", "call %s has %d results on the reply stream", Call{sub.Key(), i}, count[i])
			}
			delete(count, i)
		}
		for i := range count {
			j.Fail("Q1", "the reply stream has a result for call %s, which was never handed in", Call{sub.Key(), i})
		}
		if completed != 1 {
			j.Fail("Q1", "batch %s was completed %d times", sub.Key(), completed)
		}
	}
	for c := range j.lines {
		if slices.Contains(j.Refused, c.BatchKey) {
			j.Fail("Q1", "call %s ran, and its batch was refused", c)
		}
	}
	for _, k := range j.Replied {
		if !known[k] && !slices.Contains(j.Foreign, k) && !slices.Contains(j.Refused, k) {
			j.Fail("Q1", "the reply stream has batch %s, which was never handed in", k)
		}
	}
}

// q2: results come in emission order without a gap, and nobody sees one twice.
func (j *Judged) q2() {
	inOrder := func(who string, results []toolyard.Result, n int) {
		for i, r := range results {
			if r.Index != i {
				j.Fail("Q2", "%s got the result of call %d in place %d", who, r.Index, i)
				return
			}
		}
		if len(results) != n {
			j.Fail("Q2", "%s got %d results of %d", who, len(results), n)
		}
	}
	for _, sub := range j.Submissions {
		inOrder("the agent of "+sub.Key().String(), sub.Results, len(sub.Batch.Calls))
		var replied []toolyard.Result
		for _, l := range j.Batches[sub.Key()].Log {
			if b, ok := l.Body.(events.Reply); ok {
				replied = append(replied, b.Results...)
			}
		}
		inOrder("the reply stream of "+sub.Key().String(), replied, len(sub.Batch.Calls))
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

// q3and4: what may not run twice starts at most once and acts at most once, and one that did not act says so; what may
// run twice and says that it succeeded has acted.
func (j *Judged) q3and4() {
	for c, name := range j.Tools {
		lines, res := j.lines[c], j.Results[c]
		begun, acted := count(lines, ledger.Begin), count(lines, ledger.Effect)
		if j.Kinds[name].Once && (begun > 1 || acted > 1) {
			j.Fail("Q3", "%s %s was started %d times and has acted %d times", name, c, begun, acted)
		}
		_, ofLoad := j.Kinds[name]
		ofAnother := res.Cache == toolyard.CacheHit || res.Cache == toolyard.CacheShared // then that one has acted
		if ofLoad && !res.IsError && res.CallID != "" && acted == 0 && (!ofAnother || j.Kinds[name].Once) {
			j.Fail(map[bool]string{true: "Q3", false: "Q4"}[j.Kinds[name].Once],
				"%s %s says that it succeeded and has not acted", name, c)
		}
		// A read has three attempts, and the first is started twice if its worker dies without a claim.
		if begun > 4 || begun > 3 && j.Kinds[name].Exclusive {
			j.Fail("Q3", "%s %s was started %d times", name, c, begun)
		}
	}
	for c, lines := range j.lines {
		if _, ok := j.Tools[c]; !ok {
			j.Fail("Q3", "%s was run %d times and never handed in", c, count(lines, ledger.Begin))
		}
	}
}

// span is a time in which a workspace is used.
type span struct {
	call      Call
	file      string // empty: the whole workspace
	exclusive bool
	from, to  int64
}

// place is a file of a workspace, or with an empty file what no call names.
type place struct {
	workspace toolyard.Workspace
	file      string
}

// meets reports whether who acts in one place must not act beside an exclusive call in the other.
func (p place) meets(other place) bool {
	return p.workspace == other.workspace && (p.file == "" || other.file == "" || p.file == other.file)
}

// byPlace has the spans of each place: those of the whole workspace are in all of its places.
func byPlace(spans map[toolyard.Workspace][]span) map[place][]span {
	out := map[place][]span{}
	for w, all := range spans {
		files := map[string]bool{"": true}
		for _, s := range all {
			files[s.file] = true
		}
		for file := range files {
			for _, s := range all {
				if s.file == "" || s.file == file {
					out[place{w, file}] = append(out[place{w, file}], s)
				}
			}
			slices.SortFunc(out[place{w, file}], func(a, b span) int { return cmp.Compare(a.from, b.from) })
		}
	}
	return out
}

// fileOf is the file that a call acts on; empty: its group needs the whole workspace.
func (j *Judged) fileOf(c Call) string {
	plan, ok := j.Planned[c.BatchKey]
	if lines := j.lines[c]; ok && len(lines) > 0 && len(plan.Groups[j.GroupOf[c]].Locks) > 0 {
		return lines[0].File
	}
	return ""
}

// q5: in one workspace nothing runs beside an exclusive call, but calls of other files. An exclusive call has
// its workspace from its first begin to the end that the log gives it; a read from its begin to its effect, if its
// result was taken.
func (j *Judged) q5() {
	byWorkspace := map[toolyard.Workspace][]span{}
	for c, lines := range j.lines {
		res, ok := j.Results[c]
		if !ok {
			continue
		}
		if j.Kinds[j.Tools[c]].Free {
			continue
		}
		w := lines[0].Workspace
		if j.Kinds[j.Tools[c]].Exclusive {
			byWorkspace[w] = append(byWorkspace[w], span{c, j.fileOf(c), true, lines[0].Wall, res.At.UnixNano()})
			continue
		}
		// The execution whose result was taken is the last that its worker began before: the others do not count.
		var s *span
		for _, l := range lines {
			switch {
			case res.IsError || l.Worker != j.Processes[res.Worker] || l.Kind == ledger.Begin &&
				l.Wall > res.At.UnixNano():
			case l.Kind == ledger.Begin:
				s = &span{c, j.fileOf(c), false, l.Wall, l.Wall}
			case l.Kind == ledger.Effect && s != nil && s.to == s.from:
				s.to = l.Wall
			}
		}
		if s != nil {
			byWorkspace[w] = append(byWorkspace[w], *s)
		}
	}
	for at, spans := range byPlace(byWorkspace) {
		w := at.workspace
		var last, lastExclusive span // those that end last so far
		for _, s := range spans {
			if s.exclusive && s.from < last.to {
				j.Fail("Q5", "in workspace %s %s began while %s was running, %s before its end", w, s.call, last.call,
					time.Duration(last.to-s.from))
			} else if !s.exclusive && s.from < lastExclusive.to {
				j.Fail("Q5", "in workspace %s %s began while the exclusive %s was running, %s before its end", w,
					s.call, lastExclusive.call, time.Duration(lastExclusive.to-s.from))
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

// steady: in one workspace nothing acts beside an exclusive call, from its first begin to the end that the log gives
// it, whether its result was taken or not; and no exclusive call acts after its attempt has an end in the log, also
// behind its last commit point. Only what was stopped as a whole may, for a moment.
func (j *Judged) steady() {
	byWorkspace := map[toolyard.Workspace][]span{}
	for c, lines := range j.lines {
		if res, ok := j.Results[c]; ok && j.Kinds[j.Tools[c]].Exclusive && !j.Kinds[j.Tools[c]].Free {
			byWorkspace[lines[0].Workspace] = append(byWorkspace[lines[0].Workspace],
				span{c, j.fileOf(c), true, lines[0].Wall, res.At.UnixNano()})
		}
	}
	places := byPlace(byWorkspace)
	for c, lines := range j.lines {
		for _, l := range lines {
			if l.Kind != ledger.Tick || j.Stopped[l.Worker] {
				continue
			}
			if at, ended := j.attemptEnd(c, l.Attempt); ended && j.Kinds[j.Tools[c]].Exclusive &&
				l.Wall > at.UnixNano() {
				j.Fail("Q7", "%s acted %s after its attempt %d had its end in the log", c,
					time.Duration(l.Wall-at.UnixNano()), l.Attempt)
			}
			if j.Kinds[j.Tools[c]].Free {
				continue
			}
			for at, spans := range places {
				if !at.meets(place{l.Workspace, j.fileOf(c)}) {
					continue
				}
				n, _ := slices.BinarySearchFunc(spans, l.Wall,
					func(s span, at int64) int { return cmp.Compare(s.from, at) })
				// the one that began last before; the others are over, or Q5 says so
				for _, s := range spans[max(0, n-1):n] {
					if s.call != c && l.Wall < s.to {
						j.Fail("Q5", "in workspace %s %s acted while the exclusive %s had it, %s before its end",
							l.Workspace, c, s.call, time.Duration(s.to-l.Wall))
					}
				}
			}
		}
	}
}

// q6: nothing of a group begins before each call of the groups before it has its result in the log.
func (j *Judged) q6() {
	for k, plan := range j.Planned {
		var over int64 // when the groups before this one were
		var open []int // calls of those that have no result
		for g, group := range plan.Groups {
			for _, i := range group.Calls {
				for _, l := range j.lines[Call{k, i}] {
					if l.Kind == ledger.Begin && (l.Wall < over || len(open) > 0) {
						j.Fail("Q6",
							"%s of group %d began %s before the groups before it were over (without a result: %v)",
							Call{k, i}, g, time.Duration(over-l.Wall), open)
					}
				}
			}
			for _, i := range group.Calls {
				if f, ok := j.Results[Call{k, i}]; ok {
					over = max(over, f.At.UnixNano())
				} else {
					open = append(open, i)
				}
			}
		}
	}
}

// q7: the tokens that exclusive effects carry only grow in each place of a workspace, no two groups have the
// same, none was refused, and nothing acts after its call, or its attempt, has an end in the log.
func (j *Judged) q7() {
	type holder struct {
		token uint64
		k     toolyard.BatchKey
		group int
	}
	last := map[place]holder{}
	for _, l := range j.Ledger {
		c := Call{l.Key(), l.Index}
		kind := j.Kinds[j.Tools[c]]
		exclusive := kind.Exclusive && !kind.Deaf && !kind.Free
		switch {
		case l.Kind == ledger.Fenced && !(j.Zombie && j.Hurt[l.Worker]):
			j.Fail("Q7", "%s came with token %d when the workspace had seen a higher one", c, l.Token)
		case l.Kind == ledger.Effect && exclusive:
			here, now := place{l.Workspace, j.fileOf(c)}, holder{l.Token, l.Key(), j.GroupOf[c]}
			for at, was := range last {
				if at.meets(here) && l.Token > 0 &&
					(l.Token < was.token || l.Token == was.token && was != now) {
					j.Fail("Q7", "%s has acted with token %d after %s, group %d, with token %d", c, l.Token, was.k,
						was.group, was.token)
				}
			}
			if last[here] = now; l.Token == 0 {
				j.Fail("Q7", "%s has acted without a token", c)
			}
			if at, ended := j.attemptEnd(c, l.Attempt); ended && l.Wall > at.UnixNano() &&
				!(j.Zombie && j.Hurt[l.Worker]) {
				j.Fail("Q7", "%s has acted %s after its attempt %d had its end in the log", c,
					time.Duration(l.Wall-at.UnixNano()), l.Attempt)
			}
		}
	}
}

// attemptEnd is when the log says that an attempt of a call was over.
func (j *Judged) attemptEnd(c Call, attempt int) (time.Time, bool) {
	for _, l := range j.Batches[c.BatchKey].Log {
		if !slices.Contains(l.Calls(), c.Index) {
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

// q8: a call that needs a claim does not begin after it was ended for a sibling's sake, unless it was claimed before;
// and whoever runs such a call knows it soon.
func (j *Judged) q8() {
	for c, res := range j.Results {
		if res.Code != toolyard.SiblingCanceled {
			continue
		}
		claims := j.Planned[c.BatchKey].Calls[c.Index].Claim && !j.wasClaimed(c)
		running := map[int]bool{} // by process
		for _, l := range j.lines[c] {
			after := time.Duration(l.Wall - res.At.UnixNano())
			switch {
			case l.Kind == ledger.Begin && claims && after > 0:
				j.Fail("Q8", "%s began %s after it was canceled", c, after)
			case l.Kind == ledger.Begin:
				running[l.Worker] = true
			case l.Kind == ledger.Stopped || l.Kind == ledger.End || l.Kind == ledger.Effect:
				if running[l.Worker] && after > j.Told && !j.Hurt[l.Worker] {
					j.Fail("Q8", "%s was told %s after it was canceled; %s are allowed", c, after, j.Told)
				}
				delete(running, l.Worker)
			}
		}
		soon := !j.LedgerAt.IsZero() && j.LedgerAt.Sub(res.At) <= j.Told // it may stop yet
		for pid := range running {
			if !j.Hurt[pid] && !soon {
				j.Fail("Q8", "%s was canceled and never stopped, in process %d", c, pid)
			}
		}
	}
}

// wasClaimed reports whether a call was claimed before it had its result: its worker may not know of it when it starts.
func (j *Judged) wasClaimed(c Call) bool {
	for _, l := range j.Batches[c.BatchKey].Log {
		if _, ok := l.Body.(events.Claimed); ok && slices.Contains(l.Calls(), c.Index) {
			return true
		}
	}
	return false
}

// q10: whoever hands the same batch in again gets the same results.
func (j *Judged) q10() {
	for _, sub := range j.Submissions {
		for _, again := range sub.Again {
			if !bytes.Equal(raw(again), raw(sub.Results)) {
				j.Fail("Q10", "batch %s was handed in again, and its results are others: %s", sub.Key(), raw(again))
			}
		}
	}
}

// q12: everything is over soon after the last fault.
func (j *Judged) q12() {
	for _, sub := range j.Submissions {
		from := sub.Acked
		if j.FaultEnd.After(from) {
			from = j.FaultEnd
		}
		switch took := sub.Over.Sub(from); {
		case sub.Over.IsZero():
			j.Fail("Q12", "batch %s was never over", sub.Key())
		case took > j.Settle:
			j.Fail("Q12", "batch %s was over %s after the last fault; %s are allowed", sub.Key(), took, j.Settle)
		}
	}
}

// q13: the events, read again and folded again, give the same to the byte, and do not contradict each other.
func (j *Judged) q13() {
	for k, r := range j.Batches {
		if r.Contradiction != nil {
			j.Fail("Q13", "the log of %s contradicts itself: %v", k, r.Contradiction)
		} else if !bytes.Equal(r.View, r.Replayed) {
			j.Fail("Q13", "the replay of %s gives\n%s\nand it is told as\n%s", k, r.Replayed, r.View)
		}
	}
}

// q14: what was acknowledged is there: every batch with every call, and every result that an agent has seen.
func (j *Judged) q14() {
	for _, sub := range j.Submissions {
		if sub.Acked.IsZero() {
			continue
		}
		stored := map[string]bool{}
		for _, l := range j.Batches[sub.Key()].Log {
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
				j.Fail("Q14", "call %s (%s) was acknowledged and is not stored", Call{sub.Key(), i}, id)
			}
		}
		for _, r := range sub.Results {
			f := j.Results[Call{sub.Key(), r.Index}]
			if !bytes.Equal(raw(f.Result), raw(r)) {
				j.Fail("Q14", "the agent has seen for call %s\n%s\nand the log has\n%s", Call{sub.Key(), r.Index},
					raw(r), raw(f.Result))
			}
		}
	}
}

// codes: a fault does not make results worse than it has to.
func (j *Judged) codes() {
	for c, res := range j.Results {
		if j.Right != nil && !j.Right(j, c, res) {
			j.Fail("code", "%s %s ended as %q: %s (%s)", j.Tools[c], c, res.Code, res.Error, res.Detail)
		}
	}
}
