package batch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// ending is the decided end of one open call.
type ending struct {
	result toolyard.Result
	// told is when the workers were told last; asked is the sequence that the append handed to the shell expected, and
	// tried says that there was one.
	told  time.Time
	tried bool
	asked uint64
	// unbegun says that the end is wanted only of a call that has not begun.
	unbegun bool
}

// stops reports whether the end is wanted of a call whatever it is doing, and so stays wanted when it is claimed.
func (e *ending) stops() bool {
	return !e.unbegun && (e.result.Code == toolyard.Canceled || e.result.Code == toolyard.DeadlineExceeded)
}

// decideEnds says for which open calls the owner must write the result, because nobody else will or may: a deadline, a
// cancel, a failed sibling, a halt, no worker, or a lost one. What was decided for a call first stays.
//
// Everything here is derived from the state and the clock, never from the moment at which an event came in, so that the
// next owner decides the same.
func (m *Machine) decideEnds() {
	s := &m.state
	if m.group == len(s.Plan.Groups) {
		return
	}
	failed := m.firstFailure()
	culprit := m.culprit()
	decide := func(i int) {
		if _, ok := m.ends[i]; ok || !s.Open(i) {
			return
		}
		if r, ok := m.end(i, failed, culprit); ok {
			m.ends[i] = &ending{result: r}
		} else if r, ok := m.interrupted(i); ok {
			m.ends[i] = &ending{result: r, unbegun: !s.Plan.Calls[i].Interruptible}
		}
	}
	if len(s.Cancels) > 0 || len(s.Interrupts) > 0 || failed >= 0 || !m.now.Before(s.Plan.Deadline) {
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
	for i := range m.active { // nothing else can end
		decide(i)
	}
	for i := range m.retrying {
		decide(i)
	}
	for i := range m.waiting {
		decide(i)
	}
}

// end decides for one open call, the strongest reason first.
func (m *Machine) end(i, failed, culprit int) (toolyard.Result, bool) {
	s := &m.state
	for _, c := range s.Cancels {
		if len(c.Calls) == 0 || slices.Contains(c.Calls, i) {
			return m.result(i, toolyard.Canceled, "Canceled: "+cmp.Or(c.Reason, "the call was canceled")+". It was not completed; do not assume that it had no effect.", "by "+c.By), true
		}
	}
	if !m.now.Before(s.Plan.Deadline) {
		r := m.result(i, toolyard.DeadlineExceeded, "The batch's time limit passed before this call was answered. Ask for less at once, or for a longer timeout.", "")
		return r, true
	}
	if failed >= 0 && i > failed {
		return m.result(i, toolyard.Skipped, fmt.Sprintf("Not executed: an earlier call in this batch failed (%s).", m.name(failed)), ""), true
	}
	if culprit >= 0 && m.groupOf[i] == m.group {
		return m.result(i, toolyard.SiblingCanceled, fmt.Sprintf("Canceled because a call that ran beside it failed: %s. See that call's error; call again if the result is still needed.", m.name(culprit)), ""), true
	}
	c := s.Calls[i]
	if d := c.Decision; c.Status == Decided && d.Decision != events.Approve {
		return m.result(i, toolyard.ApprovalRejected, "The user said no: "+cmp.Or(d.Reason, "no reason was given")+". The call did not run; do not try it again unless the user asks for it.", "by "+d.By), true
	}
	if c.Status == Waiting && !m.now.Before(m.ApprovalEnd(i)) {
		wait := m.ApprovalEnd(i).Sub(c.AskedAt).Round(time.Millisecond)
		return m.result(i, toolyard.ApprovalExpired, fmt.Sprintf("Nobody answered the request for permission within %s. The call did not run; ask the user before it is tried again.", wait), ""), true
	}
	if at, ok := m.queueEnd(i); ok && !m.now.Before(at) {
		r := m.result(i, toolyard.DependencyUnavailable, fmt.Sprintf("The call waited in the queue for %s and no worker was free for it. The same call may succeed later.", m.now.Sub(m.queued[i]).Round(time.Millisecond)), "queue wait")
		r.Retryable = true
		return r, true
	}
	if m.isLost(i) && (!s.Plan.Calls[i].Judgement.Idempotent || c.Attempt >= m.cfg.MaxAttempts) {
		return m.unknown(i), true
	}
	if c.Status == Retrying && c.Attempt >= m.cfg.MaxAttempts {
		r := m.result(i, toolyard.DependencyUnavailable, fmt.Sprintf("The call could not be finished in %d attempts. The same call may succeed later.", c.Attempt), "")
		r.Retryable = true
		return r, true
	}
	if since, ok := m.unserved(i); ok && m.now.Sub(since) >= m.cfg.WorkerWait {
		p := s.Plan.Calls[i]
		r := m.result(i, toolyard.DependencyUnavailable, fmt.Sprintf("No worker for %s was there for %s. The call did not run; the same call may succeed later.", p.Tool, m.cfg.WorkerWait.Round(time.Millisecond)),
			fmt.Sprintf("no live worker of pool %q takes %s calls", p.Pool, p.Judgement.Class))
		r.Retryable = true
		return r, true
	}
	return toolyard.Result{}, false
}

// interrupted decides for one open call of a batch whose session was interrupted: what has not begun does not begin, and
// what runs is stopped if its tool says so, and waited for otherwise.
func (m *Machine) interrupted(i int) (toolyard.Result, bool) {
	s := &m.state
	if len(s.Interrupts) == 0 {
		return toolyard.Result{}, false
	}
	by := s.Interrupts[0]
	reason := cmp.Or(by.Reason, "the session was interrupted")
	if !m.mayRun(i) {
		return m.result(i, toolyard.Canceled, "Not executed: "+reason+".", "by "+by.By), true
	}
	if s.Plan.Calls[i].Interruptible {
		return m.result(i, toolyard.Canceled, "Interrupted: "+reason+". It was not completed; do not assume that it had no effect.", "by "+by.By), true
	}
	return toolyard.Result{}, false
}

// mayRun reports whether somebody may be executing a call: it is claimed, or it needs no claim and is, or may have been
// under a former owner, in the queue.
func (m *Machine) mayRun(i int) bool {
	switch m.state.Calls[i].Status {
	case Claimed:
		return true
	case Waiting:
		return false
	}
	return !m.state.Plan.Calls[i].Claim && (m.active[i] || m.state.Takeovers > 0 && m.isStarted(i))
}

// unknown is the result of a call whose worker is lost.
func (m *Machine) unknown(i int) toolyard.Result {
	return m.result(i, toolyard.OutcomeUnknown, "The worker that ran this call was lost. It may or may not have taken effect: check before trying again.", "worker "+m.state.Calls[i].Worker)
}

// firstFailure returns the first call with an error, when the batch stops there, or -1.
func (m *Machine) firstFailure() int {
	if m.state.Plan.Partition != toolyard.OrderedHalt {
		return -1
	}
	return m.failed
}

// culprit returns the call of the current group whose failure ends its siblings, or -1.
func (m *Machine) culprit() int {
	plan := m.state.Plan
	if plan.OnError == toolyard.CancelGroup && plan.Groups[m.group].Safe {
		if i, ok := m.culprits[m.group]; ok {
			return i
		}
	}
	return -1
}

// executed reports whether the tool itself was started: only then does its failure say something about its siblings.
func executed(r *toolyard.Result) bool {
	return slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool { return f.Phase == toolyard.PhaseExecute })
}

// unserved says since when call i waits in a queue that no worker serves.
func (m *Machine) unserved(i int) (time.Time, bool) {
	queued, ok := m.queued[i]
	if !ok || m.state.Calls[i].Status == Claimed {
		return time.Time{}, false
	}
	p := m.state.Plan.Calls[i]
	absent, ok := m.absent[Route{Pool: p.Pool, Class: p.Judgement.Class}]
	if !ok {
		return time.Time{}, false
	}
	if queued.After(absent) {
		return queued, true
	}
	return absent, true
}

// endCalls hands the decided ends to the shell. A call of a group that never started was never queued: the owner alone
// can write about it, and all of them go into one event. Any other gets its result on its own chain, where a worker's
// may come first, and workers are told after the log. Only a claimed call that is canceled or late is left to its worker,
// who is told until it has written what became of the call, or is lost: while it may still act, its group is not over.
func (m *Machine) endCalls() []Effect {
	s := &m.state
	var settled []toolyard.Result
	var out []Effect
	abort := m.stopped
	m.stopped = map[toolyard.Code][]int{}
	tell := func(i int, e *ending) {
		if e.told.IsZero() || m.now.Sub(e.told) >= m.cfg.AbortEvery {
			e.told = m.now
			abort[e.result.Code] = append(abort[e.result.Code], i)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(m.ends)) {
		e, c := m.ends[i], s.Calls[i]
		if !m.isStarted(i) {
			settled = append(settled, e.result)
			continue
		}
		if c.Status == Claimed && e.stops() {
			if !m.isLost(i) {
				tell(i, e)
				continue
			}
			e.result = m.unknown(i)
		}
		if e.tried && e.asked == c.Seq {
			continue
		}
		e.tried, e.asked = true, c.Seq
		out = append(out, Append{Chain: ChainCall, Index: i, Expected: c.Seq, Body: events.Finished{Result: e.result}})
	}
	if len(settled) > 0 && !m.appending {
		m.appending = true
		out = append(out, Append{Chain: ChainBatch, Expected: s.BatchSeq, Body: events.Settled{Results: settled}})
	}
	for _, code := range slices.Sorted(maps.Keys(abort)) {
		slices.Sort(abort[code])
		out = append(out, Abort{Calls: abort[code], Code: code})
	}
	return append(out, m.retryLost()...)
}

// isLost reports whether nobody executes a claimed call any more, as far as could be found out.
func (m *Machine) isLost(i int) bool {
	c := m.state.Calls[i]
	seq, dropped := m.dropped[i]
	return c.Status == Claimed && (m.lost[c.Worker] || dropped && seq == c.Seq)
}

// retryLost gives up the claims that lost workers hold on idempotent calls, so that they run again.
func (m *Machine) retryLost() []Effect {
	var out []Effect
	for _, i := range m.InFlight() {
		c := m.state.Calls[i]
		if _, ends := m.ends[i]; ends || !m.isLost(i) {
			continue
		}
		if at, ok := m.retries[i]; ok && at == c.Seq {
			continue
		}
		m.retries[i] = c.Seq
		out = append(out, Append{Chain: ChainCall, Index: i, Expected: c.Seq, Body: events.AttemptFailed{
			Worker: c.Worker, Attempt: c.Attempt, Code: toolyard.OutcomeUnknown, Reason: "the worker was lost",
		}})
	}
	return out
}

// result makes the result of a call that the owner ends, with the facts that explain it.
func (m *Machine) result(i int, code toolyard.Code, message, detail string) toolyard.Result {
	p, c := m.state.Plan.Calls[i], m.state.Calls[i]
	r := toolyard.Result{
		Index: i, CallID: p.ID, Tool: p.Tool, Echo: m.state.call(i).Echo, IsError: true, Code: code, Error: message, Detail: detail,
		Class: p.Judgement.Class, Attempts: c.Attempt, Worker: c.Worker,
		Phases: []toolyard.Fact{
			{Phase: toolyard.PhaseSchedule, Outcome: toolyard.OutcomeFailed, Code: code, Detail: detail},
			{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
		},
	}
	if code == toolyard.ApprovalRejected || code == toolyard.ApprovalExpired {
		r.Phases[0].Phase = toolyard.PhasePermission
	}
	r.ApprovalWaitMS = float64(c.Waited) / float64(time.Millisecond)
	if c.Status == Waiting {
		r.ApprovalWaitMS = float64(m.now.Sub(c.AskedAt)) / float64(time.Millisecond)
	}
	if c.Asked != nil { // what was found before somebody was asked
		r.Phases = slices.Concat(c.Asked.Facts, r.Phases)
	}
	if at, ok := m.queued[i]; ok {
		r.QueueMS = float64(m.now.Sub(at)) / float64(time.Millisecond)
	}
	return r
}

// name is how a call is named to the model.
func (m *Machine) name(i int) string {
	p := m.state.Plan.Calls[i]
	return fmt.Sprintf("%s, call %s", p.Tool, p.ID)
}
