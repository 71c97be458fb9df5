package sim

import (
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// callLog is what the log says of one call, as far as people and ends are concerned.
type callLog struct {
	// asked are the events that say that it waits; waiting is the last one and question what it says, or nil.
	asked    []broker.Logged
	waiting  *broker.Logged
	question events.Waiting
	decided  *broker.Logged
	decision events.Decided
	// canceled and interrupted are the events that end it.
	canceled, interrupted []broker.Logged
	finished              *broker.Logged
	claimed               []broker.Logged
}

func logOf(b *verdict.Batch, index int) (out callLog) {
	for i := range b.Log {
		l := &b.Log[i]
		switch body := l.Body.(type) {
		case events.Canceled:
			if len(body.Calls) == 0 || slices.Contains(body.Calls, index) {
				out.canceled = append(out.canceled, *l)
			}
		case events.Interrupted:
			out.interrupted = append(out.interrupted, *l)
		}
		if !slices.Contains(l.Calls(), index) {
			continue
		}
		switch body := l.Body.(type) {
		case events.Waiting:
			if body.Form != nil { // what was decided before was about another question
				out.decided, out.decision = nil, events.Decided{}
			}
			out.asked, out.waiting, out.question = append(out.asked, *l), l, body
		case events.Decided:
			out.decided, out.decision = l, body
		case events.Claimed:
			out.claimed = append(out.claimed, *l)
		case events.Finished:
			out.finished = l
		}
	}
	return out
}

// allowance is what a person has allowed for a session.
type allowance struct {
	agent toolyard.Agent
	tool  string
	input string // its hash
	rule  string
	at    time.Time
}

// checkPeople: a call that needs a person begins when one has allowed it, or the same for its session, on the input
// that was allowed. Nobody is asked about what was decided, or what the session remembers.
func (w *world) checkPeople(h *verdict.History) {
	var allowed []allowance
	for _, sub := range h.Submissions {
		for i, call := range sub.Batch.Calls {
			log := logOf(h.Batches[sub.Key()], i)
			for _, e := range log.asked {
				if log.decided != nil && e.Seq > log.decided.Seq {
					w.fail("asked once", "a person is asked about %s/%d, which was decided", sub.Key(), i)
				}
			}
			if log.decided != nil && log.decision.Remember != "" {
				allowed = append(allowed, allowance{sub.Batch.Agent, call.Tool, log.decision.InputSHA256,
					log.question.Remember, log.decided.Time})
			}
		}
	}
	for n, l := range h.Ledger {
		if k, _ := kindOf(l.Tool); l.Kind != ledger.Begin || !k.asks {
			continue
		}
		ranOn := w.book.ranOn[n]
		log := logOf(h.Batches[l.Key()], l.Index)
		switch d := log.decided; {
		case d == nil && !slices.ContainsFunc(allowed, func(a allowance) bool {
			return a.agent == l.Agent && a.tool == l.Tool && a.input == ranOn && a.at.UnixNano() <= l.Wall
		}):
			w.fail("approval", "%s/%d begins, and nobody has allowed it", l.Key(), l.Index)
		case d != nil && (log.decision.Decision != events.Approve || d.Time.UnixNano() > l.Wall):
			w.fail("approval", "%s/%d begins, and was not allowed", l.Key(), l.Index)
		case d != nil && log.decision.InputSHA256 != ranOn:
			w.fail("approval", "%s/%d begins on %s, and %s was allowed", l.Key(), l.Index, ranOn,
				log.decision.InputSHA256)
		}
	}
	for _, sub := range h.Submissions {
		for _, e := range h.Batches[sub.Key()].Log {
			plan, ok := e.Body.(events.Planned)
			if !ok {
				continue
			}
			for i := range sub.Batch.Calls {
				if log := logOf(h.Batches[sub.Key()], i); log.waiting != nil && slices.Contains(plan.Remembered,
					log.question.Remember) {
					w.fail("remembered", "a person is asked about %s/%d, and the session remembers %q", sub.Key(), i,
						log.question.Remember)
				}
			}
		}
	}
}

// wokenWithin is how long after a decision a parked batch goes on, when nothing goes wrong any more. It is less than
// the time after which dispatchers look for decisions whose wake was lost.
const wokenWithin = 15 * time.Second

// checkParked: when a batch is parked nothing of it is on its way, and nothing of it happens until somebody has adopted
// it again. That is soon after a person has decided.
func (w *world) checkParked(h *verdict.History) {
	for _, sub := range h.Submissions {
		rec := h.Batches[sub.Key()]
		var parked *broker.Logged
		for i := range rec.Log {
			e := &rec.Log[i]
			if e.Chain != batch.ChainBatch {
				continue
			}
			if parked != nil {
				w.checkWhileParked(h, sub.Key(), parked, e)
			}
			parked = nil
			if _, ok := e.Body.(events.Parked); ok {
				parked = e
				w.checkAtParking(sub.Key(), rec, e)
			}
		}
		if parked == nil || !completedAt(rec).IsZero() { // one who took itself for the owner may have ended it
			continue
		}
		for i := range sub.Batch.Calls {
			log := logOf(rec, i)
			if log.decided != nil && log.decided.Seq > parked.Seq {
				w.fail("woken", "%s is parked at %s for good, and its call %d was decided at %s", sub.Key(),
					stamp(parked.Time.Sub(w.began)), i, stamp(log.decided.Time.Sub(w.began)))
			}
		}
	}
}

// checkAtParking: of the groups that were started, each call waits or has its result.
func (w *world) checkAtParking(k toolyard.BatchKey, rec *verdict.Batch, parked *broker.Logged) {
	before := &batch.State{Key: k}
	for _, e := range inOrder(rec.Log) {
		if e.Seq >= parked.Seq && e.Chain != batch.ChainSubmission || e.Chain == batch.ChainReply {
			continue
		}
		if err := before.Apply(e.Record); err != nil {
			return // Q13 says so
		}
	}
	for g := range before.Plan.Groups {
		if _, started := before.Started[g]; !started {
			continue
		}
		for _, i := range before.Plan.Groups[g].Calls {
			if c := before.Calls[i]; c.Result == nil && c.Asked == nil {
				w.fail("parked", "%s is parked, and its call %d is %s", k, i, c.Status)
			}
		}
	}
}

// inOrder are the events in an order in which they can be folded.
func inOrder(log []broker.Logged) []broker.Logged {
	out := slices.Clone(log)
	slices.SortStableFunc(out, func(a, b broker.Logged) int {
		if (a.Chain == batch.ChainSubmission) != (b.Chain == batch.ChainSubmission) {
			if a.Chain == batch.ChainSubmission {
				return -1
			}
			return 1
		}
		return int(int64(a.Seq) - int64(b.Seq))
	})
	return out
}

// checkWhileParked: nothing of a batch begins while it is parked, but what is answered already, and an owner that was
// paused has queued once more. The batch is adopted soon after the first decision.
func (w *world) checkWhileParked(h *verdict.History, k toolyard.BatchKey, parked, next *broker.Logged) {
	from, to := parked.Time.UnixNano(), next.Time.UnixNano()
	results := h.Batches[k].Results()
	for _, l := range h.Ledger {
		if res, ok := results[l.Index]; ok && res.At.Before(parked.Time) {
			continue
		}
		if l.Key() == k && l.Kind == ledger.Begin && l.Wall > from && l.Wall < to {
			w.fail("parked", "%s/%d begins at %s, and its batch is parked", k, l.Index,
				stamp(time.Unix(0, l.Wall).Sub(w.began)))
		}
	}
	for _, e := range h.Batches[k].Log {
		d, ok := e.Body.(events.Decided)
		if !ok || e.Seq < parked.Seq || e.Seq > next.Seq || w.wasHurt(d.By) {
			continue
		}
		since := e.Time
		if h.FaultEnd.After(since) {
			since = h.FaultEnd
		}
		if took := next.Time.Sub(since); took > wokenWithin {
			w.fail("woken", "%s went on %s after a person had decided", k, took)
		}
	}
}

// wasHurt reports whether anything happened to a party, so that it may not have done all that it was about to do.
func (w *world) wasHurt(name string) bool {
	i := slices.IndexFunc(w.parties, func(p *party) bool { return p.name == name })
	return i < 0 || w.parties[i].hurt()
}

// stoppedWithin is how long after a cancel or an interrupt nothing begins that it is about, when nothing goes wrong any
// more. Reads that may have begun before are waited for: they come again, and one after the other.
const stoppedWithin = 15 * time.Second

// checkEnds: a call that needs a claim does not begin after it has its result, and none begins long after it was
// canceled or its session interrupted. People have all the time that they are given.
func (w *world) checkEnds(h *verdict.History) {
	for _, l := range h.Ledger {
		if l.Kind != ledger.Begin {
			continue
		}
		log, at := logOf(h.Batches[l.Key()], l.Index), time.Unix(0, l.Wall)
		if f := log.finished; f != nil && len(log.claimed) == 0 && claims(h, l.Key(), l.Index) && at.After(f.Time) {
			w.fail("ended", "%s/%d begins %s after it had its result", l.Key(), l.Index, at.Sub(f.Time))
		}
		for _, e := range append(slices.Clone(log.canceled), log.interrupted...) {
			from := e.Time
			if h.FaultEnd.After(from) {
				from = h.FaultEnd
			}
			if late := at.Sub(from); late > stoppedWithin {
				w.fail("stopped", "%s/%d begins %s after %s", l.Key(), l.Index, late, e.Body.EventType())
			}
		}
	}
}

// claims reports whether a call is to be claimed before it begins.
func claims(h *verdict.History, k toolyard.BatchKey, index int) bool {
	calls := plannedOf(h.Batches[k])
	return index < len(calls) && calls[index].Claim
}

// plannedOf are the calls of a batch as they were planned.
func plannedOf(b *verdict.Batch) (calls []events.PlannedCall) {
	for _, e := range b.Log {
		switch body := e.Body.(type) {
		case events.Planned:
			calls = append(calls, body.Calls...)
		case events.Extended:
			calls = append(calls, body.Calls...)
		}
	}
	return calls
}
