package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/verdict"
)

// restWithin is how long after the last result nothing is left to do.
const restWithin = 40 * time.Second

// judge holds what is left of the history against the invariants. It reads the log as a party of its own.
func (w *world) judge(r *report) {
	done := make(chan struct{})
	m := &machine{name: "judge", run: func(p *party) error {
		defer close(done)
		c, end, err := p.client(false)
		if err != nil {
			return err
		}
		defer end()
		nc, err := p.connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		b, err := natsbroker.Join(p.ctx, nc, "/judge", nil)
		if err != nil {
			return err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		w.atRest(p, b, js)
		if err := w.findStarted(p.ctx, b, js); err != nil {
			return err
		}
		h, err := w.history(p.ctx, b, c)
		if err != nil {
			return err
		}
		r.lines = len(h.Ledger)
		if *written != "" {
			if err := h.Write(*written); err != nil {
				return err
			}
		}
		for _, bad := range h.Check(w.rules()) {
			name, text, _ := strings.Cut(bad, ": ")
			w.fail(name, "%s", text)
		}
		w.checkReadings(h)
		w.checkOutputs(r, h)
		w.checkPeople(h)
		w.checkInquiries(r, h)
		w.checkInputs(r, h)
		w.checkParked(h)
		w.checkEnds(h)
		w.checkVersions(h)
		w.checkStarted(r, h)
		w.checkCommands(r, h)
		w.checkLeft(r, h)
		w.checkUndone(r)
		w.checkOverlays(r, h)
		w.checkTasks(r)
		w.checkSuperseded(h)
		if err := w.checkBudgets(p.ctx, r, b, h); err != nil {
			return err
		}
		w.plays(r, h)
		return w.archived(p.ctx, r, js)
	}}
	w.start(m)
	<-done
}

// archived notes which batches were read from the archive, and in which shards they are.
func (w *world) archived(ctx context.Context, r *report, js jetstream.JetStream) error {
	n, found, in := 0, 0, map[int]bool{}
	for at := range w.sc.count() {
		submissions, err := js.Stream(ctx, nameIn(at, "TY_BATCH"))
		if err != nil {
			return err
		}
		for _, k := range w.keys() {
			m, err := submissions.GetLastMsgForSubject(ctx, nameIn(at, "ty.batch.")+broker.KeyTokens(k))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return fmt.Errorf("look at the submission of %s: %w", k, err)
			}
			switch events.Type(m.Header.Get("ce-type")) {
			case events.BatchMoved:
				continue
			case events.BatchArchived:
				n++
			}
			found++
			in[at] = true
		}
	}
	if found != len(w.keys()) {
		return fmt.Errorf("%d of %d batches have a submission", found, len(w.keys()))
	}
	r.saw(playsArchived, n > 0)
	r.saw(playsStaying, n > 0 && n < len(w.keys()))
	r.saw(playsDivided, len(in) > 1)
	former, later := false, false
	for at := range in {
		former, later = former || at < w.sc.shards, later || at >= w.sc.shards
	}
	r.saw(playsRaised, w.sc.raised > 0 && former && later)
	return nil
}

// history reads everything.
func (w *world) history(ctx context.Context, b *natsbroker.Broker, c *client.Client) (*verdict.History, error) {
	h := &verdict.History{Batches: map[toolyard.BatchKey]*verdict.Batch{}, Processes: map[string]int{},
		FaultEnd: w.began.Add(w.quietAt)}
	for _, p := range w.parties {
		h.Processes[p.name] = p.id
	}
	w.book.mu.Lock()
	h.Ledger, h.LedgerAt = slices.Clone(w.book.lines), time.Now() // what comes later is no part of the history
	w.book.mu.Unlock()
	for _, k := range w.keys() {
		rec, err := verdict.Read(ctx, b, c, k)
		if err != nil {
			return h, fmt.Errorf("read batch %s: %w", k, err)
		}
		for i := range rec.Log {
			rec.Log[i].Time = rec.Log[i].Time.Add(-w.ahead)
		}
		h.Batches[k] = rec
		s := w.seen[k]
		s.mu.Lock()
		sub := &verdict.Submission{Batch: s.spec.batch, Acked: w.began.Add(w.opens + s.spec.submit), Over: s.over}
		sub.Batch.Calls = nil
		for _, l := range rec.Log {
			switch body := l.Body.(type) {
			case events.Submitted:
				sub.Batch.Calls = append(sub.Batch.Calls, body.Calls...)
			case events.Appended:
				sub.Batch.Calls = append(sub.Batch.Calls, body.Calls...)
			}
		}
		for i, c := range plannedOf(rec) {
			if i < len(sub.Batch.Calls) && c.Tool == toolyard.BackgroundStart {
				sub.Batch.Calls[i].Tool = c.Tool // a command that goes on is run by another call
			}
		}
		for _, id := range s.acked {
			if !slices.ContainsFunc(sub.Batch.Calls, func(c toolyard.Call) bool { return c.ID == id }) {
				w.fail("Q14", "call %s of %s was acknowledged and is not stored", id, k)
			}
		}
		for _, r := range s.results {
			switch {
			case !r.whole:
			case sub.Results == nil:
				sub.Results, sub.At = r.results, r.at
			default:
				sub.Again = append(sub.Again, r.results)
			}
		}
		s.mu.Unlock()
		if s.started != nil && handedIn(sub, rec) {
			h.Refused = append(h.Refused, k)
			continue
		}
		h.Submissions = append(h.Submissions, sub)
	}
	return h, nil
}

// keys are the batches, in order.
func (w *world) keys() (out []toolyard.BatchKey) {
	for _, a := range w.sc.agents {
		for _, b := range a.batches {
			out = append(out, b.batch.Key())
		}
	}
	for _, s := range w.behind {
		out = append(out, s.key)
	}
	return out
}

// rules are those that the history is judged by.
func (w *world) rules() verdict.Rules {
	r := verdict.Rules{
		Kinds: map[string]verdict.Kind{}, Hurt: map[int]bool{}, Settle: patience, Told: toolTimeout +
			10*time.Second, Right: w.right,
	}
	for _, k := range kinds {
		r.Kinds[k.name] = verdict.Kind{Once: !k.idempotent && !k.inquires, Exclusive: !k.class.Safe(),
			Free: !k.workspace || k.inquires} // one that asks gives the workspace back meanwhile
	}
	for _, p := range w.parties {
		r.Hurt[p.id] = p.hurt()
	}
	return r
}

// right reports whether a result may say what it says.
func (w *world) right(j *verdict.Judged, c verdict.Call, res verdict.Finished) bool {
	spec, by := w.seen[c.BatchKey].spec, w.seen[c.BatchKey].started
	call := spec.batch.Calls[c.Index]
	var in input
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return false
	}
	if j.Tools[c] != call.Tool { // a start that stands for a command: it has no faults of its own
		if end, over := w.startedFor(j, c); over && end.Code == res.Code {
			return true // as that one may end
		}
		call.Tool, in = j.Tools[c], input{}
	}
	k, _ := kindOf(call.Tool)
	o := spec.batch.Options
	late := o.TimeoutMS < longWait.Milliseconds()
	log := logOf(j.Batches[c.BatchKey], c.Index)
	canceled := len(log.canceled) > 0 && spec.cancels(c.Index) || len(log.interrupted) > 0
	if by != nil {
		late = by.by != nil && by.by.batch.Options.TimeoutMS < longWait.Milliseconds()
		canceled = canceled || len(log.canceled) > 0 && w.mayCancel(j, by, log.canceled[0].Time)
	}
	starts := call.Tool == toolyard.RunCodeTool || strings.HasPrefix(call.Tool, toolyard.BackgroundPrefix)
	troubled := w.disturbed.Load() || w.ailed()
	switch res.Code {
	case toolyard.BudgetExceeded:
		return w.sc.narrow > 0
	case toolyard.RateLimited:
		return w.sc.impatient
	case toolyard.OK:
		return call.Tool != absent && (in.Code == "" || in.Passes > 0) && (in.Path == "" || o.Repair && mends(in.Path))
	case toolyard.SchemaValidationFailed:
		return in.Path != "" && (!o.Repair || !mends(in.Path) || troubled)
	case toolyard.UnknownTool: // nobody has it, or the dispatcher could not see for two seconds who has it (ADR 0020)
		return call.Tool == absent || w.sc.without(call.Tool) == len(w.sc.workers) || w.disturbed.Load() || w.ailed()
	// Somebody was lost who had it, or seemed to be; what may run twice is tried again, unless it is to end or may
	// still run.
	case toolyard.OutcomeUnknown:
		toEnd := canceled || o.OnError == toolyard.CancelGroup || late
		twice := k.idempotent && plannedAsIdempotent(j.Batches[c.BatchKey], c.Index)
		return (!twice || res.Attempts >= 3 || toEnd || in.Ignores || w.stood(res.Worker)) &&
			(w.disturbed.Load() || j.Hurt[j.Processes[res.Worker]])
	case toolyard.Canceled:
		return canceled
	case toolyard.DeadlineExceeded:
		return late
	case toolyard.SiblingCanceled:
		return o.OnError == toolyard.CancelGroup
	case toolyard.Skipped:
		return o.Partition == toolyard.OrderedHalt
	case toolyard.ApprovalRejected:
		return log.decided != nil && log.decision.Decision == events.Reject
	case toolyard.ApprovalExpired:
		return log.decided != nil && log.decision.Decision == events.Supersede ||
			log.decided == nil && log.waiting != nil &&
				!res.At.Before(log.waiting.Time.Add(w.sc.approvalWait-w.unsure()))
	case toolyard.PermissionDenied: // what was decided is not what was asked
		return log.decided != nil && log.decision.Edited == "" && log.decision.InputSHA256 != log.question.InputSHA256
	case toolyard.DependencyUnavailable: // its own word, a breaker that has tripped on others', or nobody was there
		asks := strings.HasPrefix(call.Tool, toolyard.BackgroundPrefix) // a dispatcher, which may die with the question
		return w.disturbed.Load() || w.sc.fails(call.Tool, res.Code) || asks && w.ailed()
	}
	switch { // the workspace is left as it is; checkUndone and checkOverlays ask why
	case (k.undoes || k.lays) && res.Code == toolyard.ExecutionFailed:
		return true
	case k.lays && res.Code == toolyard.Timeout: // another worker has the lock of the workspace, and stands still
		return w.ailed()
	}
	if o.Overlay && w.rightOverlay(k, res) {
		return true
	}
	if starts {
		return w.rightStart(call, res, troubled)
	}
	return in.Code == res.Code
}

// rightStart reports whether a call that starts others, or asks about them, may fail so.
func (w *world) rightStart(c toolyard.Call, res verdict.Finished, troubled bool) bool {
	switch res.Code {
	case toolyard.ExecutionFailed: // nobody answered; or there is no room for another background call
		return troubled || c.Tool == toolyard.BackgroundStart
	case toolyard.InvalidArguments: // there is no such background call, or not yet, or nobody has the tool
		return c.Tool != toolyard.RunCodeTool
	case toolyard.Timeout:
		return c.Tool == toolyard.RunCodeTool && troubled
	case toolyard.UnknownTool, toolyard.SetupRequired, toolyard.DependencyUnavailable:
		return troubled
	}
	return false
}

// mayCancel reports whether a batch that a call has started may be canceled: a background call when somebody stops it,
// and the call of a script when that is over.
func (w *world) mayCancel(j *verdict.Judged, s *started, at time.Time) bool {
	if s.parent == nil {
		return w.sc.stops(s.key.ID) || w.startFailed(j, s, at)
	}
	end := logOf(j.Batches[s.by.batch.Key()], s.parent.Call).finished
	return end != nil && !end.Time.After(at)
}

// stops reports whether some call stops a background call.
func (sc *scenario) stops(handle toolyard.BatchID) bool {
	for _, a := range sc.agents {
		for _, b := range a.batches {
			for _, c := range b.batch.Calls {
				if c.Tool == toolyard.BackgroundStop && bytes.Contains(c.Input, []byte(handle)) {
					return true
				}
			}
		}
	}
	return false
}

// ailed reports whether anything happened to a dispatcher or a worker.
func (w *world) ailed() bool {
	return slices.ContainsFunc(w.parties, func(p *party) bool {
		return (strings.HasPrefix(p.name, "d") || strings.HasPrefix(p.name, "w")) && p.hurt()
	})
}

// plannedAsIdempotent reports whether the plan of a batch says that a call may run twice: not if no worker has judged
// it.
func plannedAsIdempotent(b *verdict.Batch, index int) bool {
	var calls []events.PlannedCall
	for _, l := range b.Log {
		switch body := l.Body.(type) {
		case events.Planned:
			calls = body.Calls
		case events.Extended:
			calls = slices.Concat(calls, body.Calls)
		}
	}
	return index < len(calls) && calls[index].Judgement.Idempotent
}

// stood reports whether the tools of a party have stood still: one that was told to stop meanwhile did not return.
func (w *world) stood(name string) bool {
	return slices.ContainsFunc(w.parties, func(p *party) bool { return p.name == name && p.hasStood() })
}

// without is how many workers do not have a tool, or do not take its calls.
func (sc *scenario) without(tool string) (n int) {
	k, _ := kindOf(tool)
	for _, s := range sc.workers {
		if s.lacks == tool || !slices.Contains(s.classes, k.class) {
			n++
		}
	}
	return n
}

// fails reports whether some call of a tool fails so.
func (sc *scenario) fails(tool string, code toolyard.Code) bool {
	for _, a := range sc.agents {
		for _, b := range a.batches {
			for _, c := range b.batch.Calls {
				if c.Tool == tool && bytes.Contains(c.Input, []byte(code)) {
					return true
				}
			}
		}
	}
	return false
}

// checkReadings holds what agents saw that did not read to the end against what the others saw.
func (w *world) checkReadings(h *verdict.History) {
	for _, sub := range h.Submissions {
		for _, r := range w.seen[sub.Key()].results {
			n := len(r.results)
			if n > len(sub.Results) || !bytes.Equal(raw(r.results), raw(sub.Results[:n])) && n > 0 {
				w.fail("Q2", "%s saw %d results of %s that are not those that others saw", r.who, n, sub.Key())
			}
		}
	}
}

// atRest checks that nothing is left to do: no call queued, no message unacknowledged, nobody in line for a workspace.
func (w *world) atRest(p *party, b *natsbroker.Broker, js jetstream.JetStream) {
	var left string
	var err error
	for end := time.Now().Add(restWithin); time.Now().Before(end); {
		if left, err = w.left(p.ctx, b, js); err == nil && left == "" {
			return
		}
		if p.sleep(500*time.Millisecond) != nil {
			return
		}
	}
	w.fail("liveness", "%s after the last result something is left: %v", restWithin, errors.Join(err, errors.New(left)))
}

func (w *world) left(ctx context.Context, b *natsbroker.Broker, js jetstream.JetStream) (string, error) {
	var left []string
	for _, name := range w.sc.streams("TY_CALL", "TY_BATCH") {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return "", err
		}
		if n := stream.CachedInfo().State.Msgs; strings.HasSuffix(name, "_CALL") && n > 0 {
			left = append(left, fmt.Sprintf("%d messages on %s", n, name))
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.NumAckPending > 0 || c.NumPending > 0 {
				left = append(left, fmt.Sprintf("consumer %s has %d messages unacknowledged and %d to come", c.Name,
					c.NumAckPending, c.NumPending))
			}
		}
		if err := consumers.Err(); err != nil {
			return "", err
		}
	}
	for _, ws := range w.sc.workspaces {
		q, err := b.Tickets(ctx, ws)
		if err != nil {
			return "", err
		}
		if len(q.Tickets) > 0 {
			left = append(left, fmt.Sprintf("%d tickets of workspace %s: %+v", len(q.Tickets), ws, q.Tickets))
		}
	}
	return strings.Join(left, "; "), nil
}
