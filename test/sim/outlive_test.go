package sim

import (
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/verdict"
)

// outlive has batches whose commands may go on behind them, as background calls.
func (d draws) outlive(sc *scenario) {
	if sc.backgroundCalls == 0 && !d.one(8) {
		return
	}
	sc.backgroundCalls = max(sc.backgroundCalls, 1+d.IntN(3))
	for _, a := range sc.agents {
		for _, b := range a.batches {
			if !d.one(4) {
				b.batch.Options.BackgroundAfterMS = d.between(ms, 3*time.Second).Milliseconds()
				if b.cancel == 0 && d.one(4) {
					b.cancel = b.submit + d.between(100*ms, 2*time.Second)
				}
			}
			for i := range b.batch.Calls {
				c := &b.batch.Calls[i]
				name, ok := map[string]string{"read": readingTool, "write": changingTool, "put": changingTool,
					"shell": changingTool}[c.Tool]
				if !ok || d.one(2) {
					continue
				}
				c.Tool, c.Input = name, asCommand(name, c.Input)
			}
		}
	}
}

// asCommand is an input with the command of a tool.
func asCommand(tool string, given json.RawMessage) json.RawMessage {
	var in input
	if err := json.Unmarshal(given, &in); err != nil {
		panic(err) // it was made here
	}
	k, _ := kindOf(tool)
	in.Command = k.command
	return raw(in)
}

// backgroundOf is the background call that a call has started, whether or not it holds the workspace; nil: there is
// none, or it was refused.
func (w *world) backgroundOf(h *verdict.History, k toolyard.BatchKey, call int) (toolyard.BatchKey, *verdict.Batch) {
	for _, workspace := range []bool{false, true} {
		of := toolyard.BatchKey{Agent: k.Agent, ID: toolyard.BackgroundID(k, call, workspace)}
		if rec := h.Batches[of]; rec != nil {
			return of, rec
		}
	}
	return toolyard.BatchKey{}, nil
}

// startedFor is how the background call ended that a start has started; over says that it has ended.
func (w *world) startedFor(j *verdict.Judged, c verdict.Call) (end verdict.Finished, over bool) {
	if _, rec := w.backgroundOf(j.History, c.BatchKey, c.Index); rec != nil {
		end, over = rec.Results()[0]
	}
	return end, over
}

// checkCommands: a command that may change something is planned as a start of a background call where its batch wants
// that, and no other call is. A start that ends with the background call's result says what the log says of that.
func (w *world) checkCommands(r *report, h *verdict.History) {
	for _, k := range w.keys() {
		spec, rec := w.seen[k].spec, h.Batches[k]
		may := spec.batch.Options.BackgroundAfterMS > 0 && w.seen[k].started == nil
		results := rec.Results()
		for i, c := range plannedOf(rec) {
			if i >= len(spec.batch.Calls) {
				break // a log that contradicts itself, which others say
			}
			given := spec.batch.Calls[i].Tool
			stands := c.Tool == toolyard.BackgroundStart && given != c.Tool
			if want := may && given == changingTool && w.sc.without(given) < len(w.sc.workers); want != stands &&
				results[i].Code != toolyard.UnknownTool {
				w.fail("commands", "%s/%d, a call of %s, is planned as one of %s", k, i, given, c.Tool)
			}
			res, over := results[i]
			if !stands || !over || res.IsError {
				continue
			}
			r.saw(playsOutlived, len(res.Structured) > 0)
			if len(res.Structured) > 0 {
				continue
			}
			r.saw(playsInTime, true)
			of, child := w.backgroundOf(h, k, i)
			if child == nil {
				w.fail("commands", "%s/%d has a result, and there is no background call", k, i)
				continue
			}
			if end, ok := child.Results()[0]; !ok || end.IsError || end.Output != res.Output || end.At.After(res.At) {
				w.fail("commands", "%s/%d ended with %q, and %s as %q with %q", k, i, res.Output, of, end.Code,
					end.Output)
			}
		}
	}
}

// startFailed reports whether the call that has started a background call had failed by some time.
func (w *world) startFailed(j *verdict.Judged, s *started, at time.Time) bool {
	if s.by == nil {
		return false
	}
	for i, res := range j.Batches[s.by.batch.Key()].Results() {
		if of, _ := w.backgroundOf(j.History, s.by.batch.Key(), i); of == s.key {
			return res.IsError && !res.At.After(at)
		}
	}
	return false
}

// leftWithin is how long after it was stored a background call is stopped whose start had failed by then, when nothing
// goes wrong any more.
const leftWithin = 15 * time.Second

// checkLeft: a start that has failed leaves no background call running. One that was stored before its start had failed
// is stopped or over when the batch of the start is settled, and one that was stored later is soon after.
func (w *world) checkLeft(r *report, h *verdict.History) {
	for _, k := range w.keys() {
		results := h.Batches[k].Results()
		for i, c := range plannedOf(h.Batches[k]) {
			res, over := results[i]
			if c.Tool != toolyard.BackgroundStart || !over || !res.IsError {
				continue
			}
			of, child := w.backgroundOf(h, k, i)
			if child == nil {
				continue
			}
			stored, stopped, refused := lifeOf(child)
			if refused || !stopped.IsZero() && !stopped.After(res.At) {
				continue
			}
			r.saw(playsLeft, true)
			by := w.settled(k)
			switch late := stored.After(res.At); {
			case late && h.FaultEnd.After(stored):
				by = h.FaultEnd.Add(leftWithin)
			case late:
				by = stored.Add(leftWithin)
			case by.IsZero():
				continue
			}
			if stopped.IsZero() || stopped.After(by) {
				w.fail("left", "%s/%d ended as %s at %s, and %s, stored at %s, is neither stopped nor over at %s (%s)", k,
					i, res.Code, stamp(res.At.Sub(w.began)), of, stamp(stored.Sub(w.began)), stamp(by.Sub(w.began)),
					stamp(stopped.Sub(w.began)))
			}
		}
	}
}

// lifeOf is when a batch was stored, and when it was canceled or over, whichever was first; zero: never.
func lifeOf(b *verdict.Batch) (stored, stopped time.Time, refused bool) {
	for _, e := range b.Log {
		ends := false
		switch body := e.Body.(type) {
		case events.Submitted:
			stored = e.Time
		case events.Refused:
			refused = true
		case events.Canceled:
			ends = true
		case events.Reply:
			ends = body.Completed
		}
		if ends && (stopped.IsZero() || e.Time.Before(stopped)) {
			stopped = e.Time
		}
	}
	return stored, stopped, refused
}
