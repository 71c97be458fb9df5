package sim

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// rightOverlay reports whether a call of a batch that runs on an overlay may end so.
func (w *world) rightOverlay(k kind, res verdict.Finished) bool {
	switch res.Code {
	case toolyard.SandboxViolation:
		return !k.held()
	case toolyard.SetupRequired: // another worker has the copy
		return w.sc.apart && k.workspace
	}
	return false
}

// checkOverlays: nothing that a batch has changed on its overlay is in the workspace before somebody commits it, and
// all of it when the commit says that it is. No overlay is committed and dropped, and none is used before its batch is
// over. What is not committed, or not dropped, is said, with a reason.
func (w *world) checkOverlays(r *report, h *verdict.History) {
	w.shelf.mu.Lock()
	defer w.shelf.mu.Unlock()
	in := map[int]placed{} // by the line of the ledger
	for _, p := range w.shelf.placed {
		in[p.line] = p
	}
	for _, k := range w.keys() {
		spec := w.seen[k].spec
		if spec.batch.Options.Overlay && w.seen[k].started == nil {
			w.checkOverlay(r, h, spec, in)
		}
	}
	for i := range w.shelf.used {
		u := &w.shelf.used[i]
		r.saw(playsResumedIn, u.resumed)
		r.saw(playsConflict, u.refused == othersPatch)
		w.checkLeftAlone(h, u)
	}
}

// checkOverlay checks what has become of one overlay.
func (w *world) checkOverlay(r *report, h *verdict.History, spec *batchSpec, in map[int]placed) {
	k := spec.batch.Key()
	over, results := completedAt(h.Batches[k]), h.Batches[k].Results()
	commits, drops := w.usesOf(h, spec)
	r.saw(playsTwiceIn, len(commits.done) > 1)
	r.saw(playsBoth, commits.all > 0 && drops.all > 0)
	if len(commits.done) > 0 && len(drops.done) > 0 {
		w.fail("overlay", "%s says that the overlay of %s is committed, and %s that it is dropped", commits.done[0], k,
			drops.done[0])
	}
	changed, workers := 0, map[int]bool{}
	for n, l := range h.Ledger {
		kind, _ := kindOf(l.Tool)
		if l.Key() != k {
			continue
		}
		if l.Kind == ledger.Begin && !kind.held() {
			w.fail("overlay", "%s/%d runs, and the overlay does not hold it", k, l.Index)
		}
		if l.Kind != ledger.Tick && l.Kind != ledger.Effect || kind.class.Safe() || !kind.workspace {
			continue
		}
		changed++
		workers[l.Worker] = true
		p, there := in[n]
		switch by := (toolyard.BatchKey{}); {
		case there && p.via == by:
			w.fail("overlay", "%s/%d has changed the workspace itself", k, l.Index)
		case there && (over.IsZero() || p.at.Before(over)):
			w.fail("overlay", "%s has committed what %s/%d has changed at %s, and that was not over", p.via, k, l.Index,
				stamp(p.at.Sub(w.began)))
		case there && len(drops.done) > 0:
			w.fail("overlay", "%s has dropped the overlay of %s, and what call %d has changed is in the workspace",
				drops.done[0], k, l.Index)
		case !there && len(commits.done) > 0:
			w.fail("overlay", "%s says that the overlay of %s is committed, and what call %d has changed is lost",
				commits.done[0], k, l.Index)
		}
	}
	r.saw(playsCommitted, changed > 0 && len(commits.done) > 0)
	r.saw(playsDropped, changed > 0 && len(drops.done) > 0)
	r.saw(playsMoved, len(workers) > 1)
	for _, res := range results {
		r.saw(playsNotHeld, res.Code == toolyard.SandboxViolation && res.Attempts == 0)
	}
}

// usesOfOne are the batches that do one thing with an overlay, and those that say that it is done.
type usesOfOne struct {
	all  int
	done []toolyard.BatchKey
}

// usesOf are the batches that commit or drop a batch's overlay.
func (w *world) usesOf(h *verdict.History, of *batchSpec) (commits, drops usesOfOne) {
	for _, k := range w.keys() {
		spec := w.seen[k].spec
		if spec.uses != of {
			continue
		}
		one := &commits
		if spec.action == toolyard.OverlayDrop {
			one = &drops
		}
		one.all++
		if res, ok := h.Batches[k].Results()[0]; ok && !res.IsError {
			one.done = append(one.done, k)
		}
	}
	return commits, drops
}

// completedAt is when a batch was over; zero: never.
func completedAt(b *verdict.Batch) (at time.Time) {
	for _, e := range b.Log {
		if body, ok := e.Body.(events.Reply); ok && body.Completed {
			at = e.Time
		}
	}
	return at
}

// submittedAt is when a batch was stored; zero: never.
func submittedAt(b *verdict.Batch) (at time.Time) {
	for _, e := range b.Log {
		if e.Chain == batch.ChainSubmission {
			return e.Time
		}
	}
	return at
}

// checkLeftAlone checks that an overlay was left as it is for a reason. The mutex is held.
func (w *world) checkLeftAlone(h *verdict.History, u *used) {
	c, spec := w.shelf.copies[copyKey{u.disk, u.of}], w.seen[u.by].spec
	right := true
	switch why := u.refused; {
	case why == "", why == othersPatch:
	case strings.Contains(why, isNotOver):
		right = spec.of == nil
	case strings.Contains(why, nobodyKnown), strings.Contains(why, changesParts):
		right = w.disturbed.Load() || w.ailed()
	case strings.Contains(why, isNoBatch): // an agent's requests over HTTP may pass one another
		of := submittedAt(h.Batches[u.of])
		right = of.IsZero() || of.After(submittedAt(h.Batches[u.by]))
	case why == noCopy:
		right = c == nil || !c.saw(u.ran) && w.sc.apart
	case why == partlyIn:
		right = c != nil && c.begun
	default: // it is settled
		right = c != nil && c.as != "" && strings.Contains(why, c.as)
	}
	if !right {
		w.fail("overlay", "%s leaves the overlay of %s alone: %s", u.by, u.of, u.refused)
	}
}

// TestOverlaysInHistories plays histories in which batches run on overlays while owners and workers are lost.
func TestOverlaysInHistories(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	all := played{}
	for _, by := range []attack{laidOnce, laidOpen, laidApart, laidTwice, laidCut} {
		all.play(t, by, 1)
	}
	all.draw(t, laidWork, 16, 1, playsCommitted, playsDropped, playsTwiceIn, playsBoth, playsResumedIn, playsConflict,
		playsNotHeld, playsMoved)
	t.Logf("so many histories have played what: %v", all)
}
