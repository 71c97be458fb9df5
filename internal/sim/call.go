package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// As in packages worker and pipeline.
const (
	returnPause   = 250 * time.Millisecond
	maxDeliveries = 8
	guardGrace    = 100 * time.Millisecond
	slowClaim     = 250 * time.Millisecond
	retryRoom     = 2 * time.Second
)

// Why a call is let go.
var (
	errLapsed   = errors.New("the lease lapsed")
	errShutdown = errors.New("the worker is shutting down")
	errTaken    = errors.New("the call is another's")
	errClaimed  = errors.New("the call is this worker's already")
)

// stopped is why a call is stopped that ends with a result.
type stopped struct{ code toolyard.Code }

func (e stopped) Error() string { return string(e.code) }

func letGo(err error) bool { return err == errLapsed || err == errShutdown || err == errTaken }

// running is a call in a worker's hands.
type running struct {
	s     *Sim
	w     *worker
	th    *thread
	d     *delivery
	call  *events.RequestedCall
	spec  *callSpec
	ctx   *context
	lease rightToAct
	term  int  // of the worker's registration in which it began
	sent  Time // when the last heartbeat was
	// seq is what the next append on the call's chain expects; claimed says that it is this worker's claim, conflict
	// that the call is another's or answered.
	seq               uint64
	claimed, conflict bool
	input             string // what would run
	exec              *execution
	then              func(settled bool)
}

func (r *running) String() string { return r.d.String() }

// run takes one call to its result in the log; then is told whether the call needs its message no more.
func (w *worker) run(d *delivery, then func(settled bool)) {
	s := w.s
	call := &d.request.Calls[0]
	r := &running{
		s: s, w: w, th: &thread{p: w.p}, d: d, call: call, spec: &d.batch.spec.calls[call.Index], ctx: &context{},
		lease: rightToAct{length: lease, since: d.received}, sent: s.now, seq: d.request.Expected,
	}
	w.registered.holds(s.now)
	r.term = w.registered.term
	r.then = func(settled bool) {
		r.th.ended = true
		w.running = slices.DeleteFunc(w.running, func(x *running) bool { return x == r })
		then(settled)
	}
	if w.has(d.batch, call.Index) {
		r.giveBack() // delivered again while this worker still has it
		return
	}
	w.running = append(w.running, r)
	if r.spec.kind == w.lacks {
		if d.n < maxDeliveries {
			r.giveBack()
			return
		}
		r.store(events.Finish(events.End{Result: r.result(toolyard.DependencyUnavailable)}),
			func(err error) { r.then(answered(err)) })
		return
	}
	r.keep()
	if left := r.remaining(); left < 2*patience {
		s.after(r.th, left, func() { r.ctx.cancel(s, r.th, stopped{toolyard.DeadlineExceeded}) })
	}
	s.after(r.th, r.spec.before, r.start)
}

// remaining is how much of the batch's time is left, by this worker's clock.
func (r *running) remaining() Time {
	return r.d.received + Time(r.d.request.RemainingMS)*time.Millisecond - r.s.now
}

func (r *running) giveBack() {
	r.s.tell(r.w.th, "give back", func() { r.d.nak(returnPause) })
	r.then(false)
}

// mayAct reports whether this worker's right to act for the call is certain: the lease of the delivery, and its place
// in the registry.
func (r *running) mayAct() bool {
	if !r.s.has(FenceLapsed) {
		r.lease.lapsed = false
	}
	held, alive := r.lease.holds(r.s.now), r.w.registered.holds(r.s.now)
	return held && alive && (r.w.registered.term == r.term || !r.s.has(FenceLapsed))
}

// keep renews the delivery, and stops the tool when it cannot, or when the log says that the call is over.
func (r *running) keep() {
	s := r.s
	beat := heartbeat(settings.CallAckWait)
	left := func() Time {
		if !s.has(FenceLapsed) {
			return beat
		}
		return max(0, r.lease.since+r.lease.length-s.now)
	}
	pause := beat
	if s.has(FenceKeepPace) { // from when the last one was sent
		pause = max(0, r.sent+beat-s.now)
	}
	s.after(r.th, min(pause, left()+time.Millisecond), func() { // not later than the lease's end
		if s.has(FenceLapsed) && !r.mayAct() {
			s.log(r.w.p.name, "%s: the lease has lapsed", r)
			r.ctx.cancel(s, r.th, errLapsed)
			return
		}
		sent := s.now
		r.sent = sent
		what := "keep"
		if s.opt.Trace {
			what = fmt.Sprintf("keep %s", r)
		}
		over := false
		s.request(r.th, min(beat, left()), what, func() error {
			r.d.alive()
			over = r.d.batch.isAnswered(r.call.Index)
			return nil
		}, func(err error) {
			if err == nil && (!s.has(FenceLapsed) || r.lease.holds(s.now)) {
				r.lease.since = sent
			}
			if !s.has(FenceLapsed) && !r.mayAct() {
				r.ctx.cancel(s, r.th, errLapsed)
				return
			}
			if err == nil && over {
				s.log(r.w.p.name, "%s: the log says that it is over", r)
				r.ctx.cancel(s, r.th, stopped{toolyard.Canceled})
				return
			}
			r.keep()
		})
	})
}

// isAnswered reports whether the call's own chain has its result.
func (b *batchLog) isAnswered(index int) bool {
	l := b.calls[index]
	if len(l) == 0 {
		return false
	}
	_, ok := l[len(l)-1].Body.(events.Finished)
	return ok
}

// start is what stands between the message and the tool: the phases before, the lease, the claim.
func (r *running) start() {
	s := r.s
	if r.ctx.over() {
		r.end(r.ctx.cause)
		return
	}
	if code := r.spec.ends(r.call.Attempt); code != "" && !r.spec.executes {
		r.finish(r.result(code))
		return
	}
	if r.spec.person {
		if !r.approved() {
			r.finish(r.result(toolyard.PermissionDenied))
			return
		}
		if r.asks() {
			r.wait()
			return
		}
	}
	if !r.mayAct() {
		if !s.has(FenceLapsedAtStart) { // as if the call were another's
			r.then(true)
			return
		}
		r.end(errLapsed)
		return
	}
	begin := func() {
		switch {
		case !r.mayAct(): // storing the claim may have taken long
			r.end(errLapsed)
		case r.ctx.over():
			r.end(r.ctx.cause)
		default:
			r.execute()
		}
	}
	if !r.mustClaim() {
		begin()
		return
	}
	began := s.now
	claim := events.Claimed{Worker: r.w.p.name, Attempt: r.call.Attempt, Ticket: r.d.request.Ticket}
	s.append(r.th, r.ctx, r.d.batch, batch.ChainItem, r.call.Index, r.seq, claim, func(rec batch.Record, err error) {
		switch {
		case err == errConflict:
			// A claim that this worker stored before, and never knew of, is as good: nothing was started on it.
			r.recognise(func() {
				if r.claimed {
					begin()
					return
				}
				r.conflict = true
				r.end(errTaken)
			})
		case err != nil:
			r.end(err)
		default:
			r.seq, r.claimed = rec.Seq, true
			if s.now-began <= slowClaim {
				begin()
				return
			}
			// The answer came late: the call may have been answered behind the claim.
			s.last(r.th, nil, r.d.batch, batch.ChainItem, r.call.Index, func(m *stored) {
				if m.Seq != rec.Seq {
					r.conflict = true
					r.end(errTaken)
					return
				}
				begin()
			})
		}
	})
}

// mustClaim reports whether the call is claimed before it begins.
func (r *running) mustClaim() bool {
	reconnected := r.s.has(FenceForgotten) && r.s.restored(r.w.p) != r.d.restored
	stale := r.d.request.Ticket > 0 && !r.d.fresh()
	return r.call.Claim || r.call.Again || r.call.Attempt > 1 || r.d.request.Expected > 0 || r.d.n > 1 || r.d.again ||
		reconnected || stale
}

// approved is pipeline.stillApproved: whether what was approved, if anything was, is what would run. A hook changes the
// input of some calls, and not always the same way: the real pipeline runs none after an approval, and compares all the
// same.
func (r *running) approved() bool {
	r.input = "input"
	a := r.call.Approved
	if a != nil && a.Input != "" {
		r.input = a.Input
	}
	if r.spec.hooked && r.s.one(2) {
		r.input += ", as changed by a hook"
	}
	return a == nil || a.InputSHA256 == r.input || !r.s.has(FenceApprovedHash)
}

// asks reports whether a person has to decide about the call. Some calls look harmless until they are delivered again.
func (r *running) asks() bool {
	return r.call.Approved == nil && r.s.has(FenceApproval) && (!r.spec.wavers || r.d.n > 1)
}

// wait is worker.wait: it writes down that the call needs a person.
func (r *running) wait() {
	if !r.mayAct() {
		r.then(false)
		return
	}
	w := events.Waiting{Worker: r.w.p.name, Attempt: r.call.Attempt - 1, Class: r.call.Judgement.Class,
		InputSHA256: r.input}
	if r.input != "input" {
		w.Changed = r.input
	}
	r.store(w, func(err error) {
		if err == errClaimed {
			r.end(errLapsed)
			return
		}
		r.then(answered(err))
	})
}

// recognise finds out whether the claim on the call's chain is this worker's own, of this attempt.
func (r *running) recognise(then func()) {
	if r.claimed || !r.s.has(FenceRecognise) {
		then()
		return
	}
	r.s.last(r.th, nil, r.d.batch, batch.ChainItem, r.call.Index, func(m *stored) {
		if m != nil {
			if c, ok := m.Body.(events.Claimed); ok && c.Worker == r.w.p.name && c.Attempt == r.call.Attempt {
				r.seq, r.claimed = m.Seq, true
			}
		}
		then()
	})
}

// execute runs the tool: it begins, passes its commit points, and ends. A tool that is told to stop does so soon, or
// not at all; then it is left behind, and the worker answers for it.
func (r *running) execute() {
	s := r.s
	if r.th.dead() {
		return
	}
	r.exec = s.begin(r)
	over := false
	stop := func(code toolyard.Code, why error) {
		if over {
			return
		}
		over = true
		s.ended(r.exec)
		if why != nil && letGo(why) {
			r.end(why)
			return
		}
		r.finish(r.result(code))
	}
	r.ctx.onEnd(s, r.th, func() {
		grace := s.between(0, 20*time.Millisecond)
		if r.spec.ignores {
			grace = guardGrace
		}
		s.after(r.th, grace, func() {
			code := toolyard.Canceled
			if st, ok := r.ctx.cause.(stopped); ok {
				code = st.code
			}
			stop(code, r.ctx.cause)
		})
	})
	takes := r.spec.takes
	if s.focus == Restarts { // a second execution may be over first
		takes = s.between(takes/10, takes)
	}
	var next func()
	next = func() {
		r.work(takes/Time(r.spec.commits+1), func() {
			switch {
			case over:
			case r.exec.commits == r.spec.commits:
				stop(r.spec.ends(r.call.Attempt), nil)
			case r.ctx.over(): // it returns with the cause, unless it ignores that too
			case s.has(FenceCommit) && !r.mayAct():
				s.log(r.w.p.name, "%s: may not commit, the lease has lapsed", r)
				stop(toolyard.ExecutionFailed, nil)
			default:
				s.commit(r.exec)
				next()
			}
		})
	}
	next()
}

// work lets a tool do something for a while, which takes longer when its worker is paused meanwhile and it computes.
func (r *running) work(d Time, then func()) {
	s, p, begun := r.s, r.w.p, r.s.now
	s.after(r.th, d, func() {
		if left := begun + d - max(p.pausedAt, begun); s.now > begun+d && left > 0 && r.spec.computes {
			r.work(left, then)
			return
		}
		then()
	})
}

// end settles what is left of a call that did not come to a result of its own.
func (r *running) end(why error) {
	s := r.s
	if st, ok := why.(stopped); ok {
		r.finish(r.result(st.code))
		return
	}
	s.log(r.w.p.name, "%s: lets go: %v", r, why)
	r.w.letGo[callKey{r.d.batch, r.call.Index}] = s.now
	if r.conflict {
		r.then(true)
		return
	}
	settle := func() {
		mayRepeat := r.call.Judgement.Idempotent && r.call.Attempt < r.d.request.MaxAttempts
		switch {
		case r.claimed && (r.exec == nil || mayRepeat):
			r.store(events.AttemptFailed{Worker: r.w.p.name, Attempt: r.call.Attempt, Code: toolyard.OutcomeUnknown,
				Reason: why.Error()},
				func(err error) { r.then(answered(err)) })
		case r.claimed:
			r.store(events.Finish(events.End{Result: r.result(toolyard.OutcomeUnknown)}),
				func(err error) { r.then(answered(err)) })
		case why == errShutdown:
			r.giveBack()
		default:
			r.then(false) // it is being delivered again already
		}
	}
	if r.mustClaim() { // the claim's answer may have been lost
		r.recognise(settle)
		return
	}
	settle()
}

// answered reports whether a call has an answer in the log after an append: this one's, or another's.
func answered(err error) bool { return err == nil || err == errConflict }

// finish stores a result, or that the attempt failed in a way that may pass.
func (r *running) finish(res toolyard.Result) {
	var body events.Body = events.Finish(events.End{Result: res})
	started := res.Attempts >= r.call.Attempt
	if res.Retryable && res.Code != toolyard.Timeout && (r.call.Judgement.Idempotent || !started) &&
		r.call.Attempt < r.d.request.MaxAttempts && r.remaining() > retryRoom {
		body = events.AttemptFailed{Worker: r.w.p.name, Attempt: r.call.Attempt, Code: res.Code, Reason: "it may pass"}
	}
	r.store(body, func(err error) { r.then(answered(err)) })
}

// store is worker.appendCall: a conflict with this worker's own claim, whose answer was lost, is none.
func (r *running) store(body events.Body, then func(error)) {
	r.s.append(r.th, nil, r.d.batch, batch.ChainItem, r.call.Index, r.seq, body, func(rec batch.Record, err error) {
		switch {
		case err == nil:
			r.seq = rec.Seq
			then(nil)
		case err == errConflict && !r.claimed && !r.conflict:
			r.conflict = true
			r.recognise(func() {
				if !r.claimed {
					then(err)
					return
				}
				r.conflict = false
				if body.EventType() == events.CallWaiting && r.s.has(FenceWaitClaim) { // it cannot wait under a claim
					then(errClaimed)
					return
				}
				r.store(body, then)
			})
		default:
			then(err)
		}
	})
}

// result is the call's result on this worker.
func (r *running) result(code toolyard.Code) toolyard.Result {
	res := toolyard.Result{
		Index: r.call.Index, CallID: r.call.ID, Tool: r.call.Tool, Code: code, IsError: code.IsError(),
		Class:  r.call.Judgement.Class,
		Worker: r.w.p.name, Attempts: r.call.Attempt - 1, Retryable: r.spec.passes > 0 && code == r.spec.code,
	}
	if r.exec != nil {
		res.Attempts = r.call.Attempt
		res.Phases = append(res.Phases, toolyard.Fact{Phase: toolyard.PhaseExecute})
		res.Output = fmt.Sprintf("execution %d", r.exec.n)
	}
	return res
}
