package batch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
)

// Stop is why calls are stopped, for the workers that run them.
type Stop struct {
	Code toolyard.Code
	// Culprit is the call that failed, as the model knows it; empty unless the code is sibling_canceled.
	Culprit string
	// Reason is why somebody canceled, and By who did.
	Reason, By string
}

// verdict is how a call is to end.
type verdict struct {
	Stop
	// The model reads why the call ends (text), what may be said of its effects, and what to do next (advice).
	text, advice string
	detail       string
	retryable    bool
	retryAfterMS int64
}

// ending is the decided end of one open call.
type ending struct {
	verdict
	// unbegun says that the end is wanted only of a call that has not begun.
	unbegun bool
	// first and told are when workers were told first and last; withdrawn says that the call's message was asked to
	// be taken out of the queue, and never that no worker was ever handed it.
	first, told      time.Time
	withdrawn, never bool
	// asked is the sequence that the append handed to the shell expected, and tried says that there was one.
	tried bool
	asked uint64
	// handed says that a worker may have been handed the call.
	handed bool
}

// stops reports whether the call ends whatever it is doing, also after it was claimed.
func (e *ending) stops() bool {
	switch e.Code {
	case toolyard.Canceled, toolyard.DeadlineExceeded, toolyard.SiblingCanceled:
		return !e.unbegun
	}
	return false
}

// decideEnds decides which open calls end because of a deadline, a cancel, a failed sibling, a halt, no worker, or
// a lost one. What was decided for a call first stays.
//
// Everything here follows from the state and the clock, never from the moment at which an event came in, so that
// the next owner decides the same.
func (m *Machine) decideEnds() {
	s := &m.state
	if m.group == len(s.Plan.Groups) {
		return
	}
	failed := m.firstFailure()
	culprit := m.culprit()
	decide := func(i int) {
		if _, ok := m.ends.decided[i]; ok || !s.Open(i) {
			return
		}
		if v, ok := m.verdictOn(i, failed, culprit); ok {
			m.ends.decided[i] = &ending{verdict: v}
		} else if v, ok := m.interruptVerdict(i); ok {
			m.ends.decided[i] = &ending{verdict: v, unbegun: !s.Plan.Calls[i].Interruptible}
		}
	}
	if len(s.Cancels) > 0 || len(s.Interrupts) > 0 || failed >= 0 || !m.log.Before(s.Plan.Deadline) {
		for i := range s.Calls {
			decide(i)
		}
		return
	}
	if culprit >= 0 {
		for _, i := range s.Plan.Groups[m.group].Calls {
			decide(i)
		}
		return
	}
	for i := range m.flight.active { // nothing else can end
		decide(i)
	}
	for i := range m.flight.retrying {
		decide(i)
	}
	for i := range m.approvals.waiting {
		decide(i)
	}
}

// verdictOn decides for one open call, the strongest reason first.
func (m *Machine) verdictOn(i, failed, culprit int) (verdict, bool) {
	s := &m.state
	for _, c := range s.Cancels {
		if len(c.Calls) == 0 || slices.Contains(c.Calls, i) {
			reason := cmp.Or(c.Reason, "the call was canceled")
			return verdict{Stop: Stop{Code: toolyard.Canceled, Reason: reason, By: c.By},
				text: "Canceled: " + reason + ".", detail: "by " + c.By}, true
		}
	}
	if !m.log.Before(s.Plan.Deadline) {
		return verdict{Stop: Stop{Code: toolyard.DeadlineExceeded},
			text:   "The batch's time limit passed before this call was answered.",
			advice: "Ask for less at once, or for a longer timeout."}, true
	}
	if failed >= 0 && i > failed {
		return verdict{Stop: Stop{Code: toolyard.Skipped},
			text: fmt.Sprintf("Not executed: an earlier call in this batch failed (%s).", m.name(failed))}, true
	}
	if culprit >= 0 && m.index.groupOf[i] == m.group {
		return verdict{Stop: Stop{Code: toolyard.SiblingCanceled, Culprit: m.name(culprit)},
			text:   fmt.Sprintf("Canceled because a call that ran beside it failed: %s.", m.name(culprit)),
			advice: "See that call's error; call again if the result is still needed."}, true
	}
	c := s.Calls[i]
	if d := c.Decision; c.Status == Decided && d.Decision == events.Supersede {
		return verdict{Stop: Stop{Code: toolyard.ApprovalExpired}, detail: "by " + d.By,
			text:   "Nobody decided about this call before the session went on: " + d.Reason + ".",
			advice: "Make the call again if it is still wanted."}, true
	}
	if d := c.Decision; c.Status == Decided && d.Decision != events.Approve {
		said := "The user said no: "
		if c.Asked != nil && c.Asked.Form != nil {
			said = "The user did not answer what the tool asked: "
		}
		return verdict{Stop: Stop{Code: toolyard.ApprovalRejected}, detail: "by " + d.By,
			text:   said + cmp.Or(d.Reason, "no reason was given") + ".",
			advice: "Do not try it again unless the user asks for it."}, true
	}
	if c.Status == Waiting && !m.log.Before(m.ApprovalEnd(i)) {
		wait := m.ApprovalEnd(i).Sub(c.AskedAt).Round(time.Millisecond)
		what := "the request for permission"
		if c.Asked != nil && c.Asked.Form != nil {
			what = "what the tool asked"
		}
		return verdict{Stop: Stop{Code: toolyard.ApprovalExpired},
			text:   fmt.Sprintf("Nobody answered %s within %s.", what, wait),
			advice: "Ask the user before it is tried again."}, true
	}
	unavailable := func(detail, format string, args ...any) (verdict, bool) {
		return verdict{Stop: Stop{Code: toolyard.DependencyUnavailable}, text: fmt.Sprintf(format, args...),
			advice: "The same call may succeed later.", detail: detail, retryable: true}, true
	}
	if at, ok := m.queueEnd(i); ok && !m.now.Before(at) {
		return unavailable("queue wait", "The call waited in the queue for %s and no worker was free for it.",
			m.now.Sub(m.flight.queued[i]).Round(time.Millisecond))
	}
	if m.isLost(i) && (!s.Plan.Calls[i].Judgement.Idempotent ||
		m.lastAttempt(&c, c.Started()+1)) {
		return m.unknownOutcome(i), true
	}
	if c.Status == Retrying && m.lastAttempt(&c, c.Started()) {
		return unavailable("", "The call could not be finished in %d attempts.", c.Attempt)
	}
	if since, ok := m.unserved(i); ok && m.now.Sub(since) >= m.cfg.WorkerWait {
		p := s.Plan.Calls[i]
		return unavailable(fmt.Sprintf("no live worker of pool %q takes %s calls", p.Pool, p.Judgement.Class),
			"No worker for %s was there for %s.", p.Tool, m.cfg.WorkerWait.Round(time.Millisecond))
	}
	return verdict{}, false
}

// maxClaims is how many attempts a call has at most for each that it may be started in: some may end before that.
const maxClaims = 2

// lastAttempt is [LastAttempt] for a call. An attempt that ended with a question was not in vain.
func (m *Machine) lastAttempt(c *Call, started int) bool {
	return LastAttempt(started-c.questions, c.Attempt-c.questions, m.cfg.MaxAttempts)
}

// LastAttempt reports whether a call has no further attempt: as many were started as may be, or there were too many.
func LastAttempt(started, attempts, most int) bool {
	return started >= most || attempts >= maxClaims*most
}

// MaxReasonBytes is how much is taken of why calls are to end, and of who says so: each call's result has it. Clients
// refuse a longer reason.
const MaxReasonBytes = 1_000

// brief is the beginning of what somebody has said on the control chain.
func brief(said string) string {
	return clip.Bytes(said, MaxReasonBytes)
}

// interruptVerdict decides for one open call of a batch whose session was interrupted. A call that has not begun
// does not begin. One that runs is stopped if its tool allows it, and waited for otherwise.
func (m *Machine) interruptVerdict(i int) (verdict, bool) {
	s := &m.state
	if len(s.Interrupts) == 0 {
		return verdict{}, false
	}
	by := s.Interrupts[0]
	reason := cmp.Or(by.Reason, "the session was interrupted")
	v := verdict{Stop: Stop{Code: toolyard.Canceled, Reason: reason, By: by.By}, text: "Interrupted: " + reason + ".",
		detail: "by " + by.By}
	return v, s.Plan.Calls[i].Interruptible || s.Calls[i].Status != Claimed && !m.unseen(i)
}

// unseen reports whether a worker may be executing a call although the log says nothing: the call needs no claim, and
// nothing has happened to it since it was queued, by this owner or a former one. A call that was given back is claimed
// by its next worker, but another may have it from a former owner.
func (m *Machine) unseen(i int) bool {
	c := &m.state.Calls[i]
	if m.state.Plan.Calls[i].Claim || c.Status != Pending || c.Seq > 0 && m.state.Takeovers == 0 {
		return false
	}
	return m.flight.active[i] && !m.flight.held[i] || m.state.Takeovers > 0 && m.isStarted(i)
}

// unknownOutcome is the verdict on a call whose worker is lost.
func (m *Machine) unknownOutcome(i int) verdict {
	return verdict{Stop: Stop{Code: toolyard.OutcomeUnknown}, text: "The worker that ran this call was lost.",
		detail: "worker " + m.state.Calls[i].Worker}
}

// firstFailure returns the first call with an error, when the batch stops there, or -1.
func (m *Machine) firstFailure() int {
	if m.state.Plan.Partition != toolyard.OrderedHalt {
		return -1
	}
	return m.index.failed
}

// culprit returns the call of the current group whose failure ends its siblings, or -1.
func (m *Machine) culprit() int {
	plan := m.state.Plan
	if plan.OnError == toolyard.CancelGroup && plan.Groups[m.group].Safe {
		if i, ok := m.index.culprits[m.group]; ok {
			return i
		}
	}
	return -1
}

// executed reports whether the tool itself was started. Only then its failure says something about its siblings.
func executed(r *toolyard.Result) bool {
	return slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool { return f.Phase == toolyard.PhaseExecute })
}

// unserved returns since when call i waits in a queue that no worker serves. What its batch knew of that queue before
// counts too, once somebody has looked again since the call was queued: groups do not wait one after the other.
func (m *Machine) unserved(i int) (time.Time, bool) {
	queued, ok := m.flight.queued[i]
	if !ok || m.flight.held[i] || m.state.Calls[i].Status == Claimed {
		return time.Time{}, false
	}
	p := m.state.Plan.Calls[i]
	absent, ok := m.workers.absent[Route{Pool: p.Pool, Class: p.Judgement.Class}]
	if !ok {
		return time.Time{}, false
	}
	if queued.After(absent) && !m.workers.observed.After(queued) {
		return queued, true
	}
	return absent, true
}

// endCalls returns the effects of the decided ends. The worker that runs a call answers it: it is told to stop, again
// and again until it has answered. The owner answers calls that are known not to run, and those for which nobody
// answers:
//
//	the group never started   the owner alone can write about it, and all of them go into one event
//	nobody runs it            the owner writes on the call's chain, where a claim or a result may come first
//	a worker may run it       it is withdrawn from the queue, and does not run if no worker was ever given it.
//	unseen, without a claim   Otherwise its worker answers, or the owner after the grace, when no worker may run it
//	a worker has claimed it   its worker answers, or the owner when the worker is lost
//
// While a call may run its group is not done, and its workspace not free.
func (m *Machine) endCalls() []Effect {
	s := &m.state
	var settled []toolyard.Result
	ended := map[int][]events.End{} // by item
	var appends, out []Effect
	tell := map[Stop][]int{}
	for stop, calls := range m.ends.stopped {
		tell[stop] = calls
	}
	m.ends.stopped = map[Stop][]int{}
	var withdraw []int
	for _, i := range slices.Sorted(maps.Keys(m.ends.decided)) {
		e, c := m.ends.decided[i], s.Calls[i]
		if !m.isStarted(i) {
			settled = append(settled, m.result(i, e))
			continue
		}
		claimed := c.Status == Claimed && e.stops()
		if lost := m.isLost(i); claimed && lost && !s.Plan.Calls[i].Judgement.ReadOnly {
			e.verdict = m.unknownOutcome(i)
		} else if claimed && !lost || m.unseen(i) && !e.never {
			if e.stops() && (e.told.IsZero() || m.now.Sub(e.told) >= m.cfg.AbortEvery) {
				e.told = m.now
				tell[e.Stop] = append(tell[e.Stop], i)
			}
			if e.first.IsZero() {
				e.first = m.now
			}
			if !claimed && !e.withdrawn {
				e.withdrawn = true
				withdraw = append(withdraw, i)
			}
			if claimed || m.now.Sub(e.first) < m.cfg.EndGrace {
				continue
			}
			e.detail = join(e.detail, fmt.Sprintf("no worker has answered for it within %s", m.cfg.EndGrace))
		}
		if e.tried && e.asked == s.End(i) {
			continue
		}
		_, queued := m.flight.queued[i]
		queued = queued && !m.flight.held[i]
		e.tried, e.asked, e.handed = true, s.End(i), queued || s.Takeovers > 0
		ended[c.Item] = append(ended[c.Item], events.End{Result: m.result(i, e)})
	}
	for _, item := range slices.Sorted(maps.Keys(ended)) {
		appends = append(appends, Append{Chain: ChainItem, Index: item, Expected: s.End(item),
			Body: events.Finish(ended[item]...)})
	}
	if len(settled) > 0 && !m.appends.batch {
		m.appends.batch = true
		appends = append(appends, Append{Chain: ChainBatch, Expected: s.BatchSeq,
			Body: events.Settled{Results: settled}})
	}
	for _, stop := range slices.SortedFunc(maps.Keys(tell), Stop.compare) {
		slices.Sort(tell[stop])
		out = append(out, Abort{Calls: tell[stop], Stop: stop})
	}
	if len(withdraw) > 0 {
		out = append(out, Withdraw{Calls: withdraw})
	}
	return slices.Concat(out, appends, m.retryLost(ended))
}

func (s Stop) compare(other Stop) int {
	return cmp.Or(cmp.Compare(s.Code, other.Code), cmp.Compare(s.Culprit, other.Culprit),
		cmp.Compare(s.Reason, other.Reason), cmp.Compare(s.By, other.By))
}

// isLost reports whether a claimed call is no longer executed, as far as could be found out.
func (m *Machine) isLost(i int) bool {
	c := m.state.Calls[i]
	seq, dropped := m.workers.dropped[i]
	return c.Status == Claimed && dropped && seq == c.Seq
}

// retryLost gives up the claims of lost workers on idempotent calls, so that they run again. One append is made on a
// chain at a time: where calls of an item are being ended, or a claim is given up, the next one waits for its answer.
func (m *Machine) retryLost(ended map[int][]events.End) []Effect {
	var out []Effect
	busy := map[int]bool{}
	for item := range ended {
		busy[item] = true
	}
	for _, i := range m.InFlight() {
		c := m.state.Calls[i]
		if _, ends := m.ends.decided[i]; ends || !m.isLost(i) {
			continue
		}
		if at, ok := m.ends.retried[i]; ok && at == m.state.End(i) || busy[c.Item] {
			continue
		}
		m.ends.retried[i], busy[c.Item] = m.state.End(i), true
		out = append(out, Append{Chain: ChainItem, Index: c.Item, Expected: m.state.End(i), Body: events.AttemptFailed{
			Call: i, Worker: c.Worker, Attempt: c.Attempt, Code: toolyard.OutcomeUnknown, Reason: "the worker was lost",
		}})
	}
	return out
}

// evidence is what is known of whether a call's tool was started.
func (m *Machine) evidence(i int, never bool) outcome.Evidence {
	c, p := &m.state.Calls[i], &m.state.Plan.Calls[i]
	return outcome.Evidence{
		Tool: p.Tool, Judgement: p.Judgement, Started: c.Started(),
		MayHaveStarted: c.Status == Claimed || m.unseen(i) && !never,
	}
}

// result makes the result of a call that the owner ends, with the facts that explain it.
func (m *Machine) result(i int, e *ending) toolyard.Result {
	p, c := m.state.Plan.Calls[i], m.state.Calls[i]
	evidence := m.evidence(i, e.never)
	attempts := evidence.Started
	if evidence.MayHaveStarted {
		attempts++
	}
	at := toolyard.PhaseSchedule
	if e.Code == toolyard.ApprovalRejected || e.Code == toolyard.ApprovalExpired {
		at = toolyard.PhasePermission
	}
	var found []toolyard.Fact // before somebody was asked
	if c.Asked != nil {
		found = c.Asked.Facts
	}
	r := outcome.Ended(toolyard.Result{
		Index: i, CallID: p.ID, Tool: p.Tool, Echo: m.state.call(i).Echo, Code: e.Code,
		Error: e.words(evidence), Detail: e.detail,
		Retryable: e.retryable, RetryAfterMS: e.retryAfterMS, Class: p.Judgement.Class, Attempts: attempts,
		Worker: c.Worker,
	}, at, e.detail, found...)
	waited, queued := m.waits(i)
	r.ApprovalWaitMS = float64(waited) / float64(time.Millisecond)
	r.QueueMS = float64(queued) / float64(time.Millisecond)
	return r
}

// waits is how long a call has waited for people, for all questions about it, and in the queue, until a worker took it.
// The times of events are by the clock of a NATS server, which the owner knows nearly: neither is below zero.
func (m *Machine) waits(i int) (people, queue time.Duration) {
	c := &m.state.Calls[i]
	people = c.Waited
	if c.Status == Waiting {
		people += max(0, m.log.Sub(c.AskedAt))
	}
	if at, ok := m.flight.queued[i]; ok {
		queue = m.now.Sub(at)
		if c.Status == Claimed {
			queue = min(queue, m.own(c.ClaimedAt).Sub(at))
		}
	}
	return max(0, people), max(0, queue)
}

// words returns what the model reads.
func (v *verdict) words(evidence outcome.Evidence) string {
	out := v.text
	if v.Code != toolyard.Skipped || evidence.Ran() { // its text says that it did not run
		out += evidence.Sentence()
	}
	if v.advice != "" {
		out += " " + v.advice
	}
	return out
}

// name returns how the model knows a call.
func (m *Machine) name(i int) string {
	p := m.state.Plan.Calls[i]
	return fmt.Sprintf("%s, call %s", p.Tool, p.ID)
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
