package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// What histories are to play, beside each fault. Each is found in what is left of a history: what was only meant to
// happen does not count.
const (
	playsApproved    = "a person allows a call"
	playsEdited      = "a person changes an input"
	playsDenied      = "a person denies a call"
	playsExpired     = "nobody answers"
	playsSuperseded  = "a session goes on without an answer"
	playsRecalled    = "a session remembers what was allowed"
	playsParked      = "a batch is parked"
	playsWoken       = "a parked batch goes on"
	playsTakenOver   = "a batch gets another owner"
	playsInterrupted = "an interrupt ends a call"
	playsCanceled    = "a cancel ends a call"
	playsAllCanceled = "a cancel ends a batch"
	playsAppended    = "an agent appends calls"
	playsIdle        = "an owner closes a batch"
	playsAgain       = "an attempt is repeated"
	playsUnknown     = "nobody knows how a call ended"
	playsLate        = "a batch runs out of time"
	playsSibling     = "a call ends with its sibling"
	playsHalted      = "a batch halts"
	playsLacked      = "a tool is nowhere"
	playsHTTP        = "an agent comes over HTTP"
	playsResumed     = "an agent over HTTP goes on where the API has died"
	playsNewer       = "a batch is for the next version only"
	playsTwice       = "results are read twice"
	playsArchived    = "a batch is archived"
	playsStaying     = "a batch is not archived, where others are"
	playsScript      = "a script calls a tool"
	playsOrphan      = "a script's call ends with it"
	playsBackground  = "a call goes on behind its batch"
	playsHandle      = "a batch hears how a call behind it ended"
	playsAnswered    = "a tool goes on with what a person has answered"
	playsInquiries   = "a call asks twice"
	playsMended      = "a call runs with an input that a worker has mended"
	playsMalformed   = "an input cannot be mended"
	playsInTime      = "a command is over before it goes on behind its batch"
	playsOutlived    = "a command goes on behind its batch"
	playsLeft        = "a start that has failed leaves its background call, which is stopped"
	playsSpent       = "a budget is used up"
	playsLimited     = "a call does not get its turn"
	playsFound       = "another worker finds what a call has begun outside"
	playsUndone      = "a workspace is set back"
	playsNotUndone   = "a workspace is not set back, for what others have changed"
	playsCommitted   = "an overlay is committed"
	playsDropped     = "an overlay with changes is dropped"
	playsTwiceIn     = "an overlay is committed twice"
	playsBoth        = "an overlay is to be committed and dropped"
	playsResumedIn   = "a commit goes on with what another run has begun"
	playsConflict    = "an overlay is not committed, for what others have changed"
	playsNotHeld     = "a call does not run that an overlay does not hold"
	playsDivided     = "batches are in several shards"
	playsRaised      = "batches are in the shards from before and in those that were added"
	playsMoved       = "the calls of a batch run on an overlay with several workers"
)

var plays = []string{playsApproved, playsEdited, playsDenied, playsExpired, playsSuperseded, playsRecalled, playsParked,
	playsWoken, playsTakenOver, playsInterrupted, playsCanceled, playsAllCanceled, playsAppended, playsIdle, playsAgain,
	playsUnknown, playsLate, playsSibling, playsHalted, playsLacked, playsHTTP, playsResumed, playsNewer,
	playsAnswered, playsInquiries, playsMended, playsMalformed, playsTwice, playsArchived, playsStaying, playsScript,
	playsOrphan, playsBackground, playsHandle, playsInTime, playsOutlived, playsLeft, playsSpent, playsLimited,
	playsFound, playsUndone, playsNotUndone, playsCommitted, playsDropped, playsTwiceIn, playsBoth, playsNotHeld,
	playsMoved, playsDivided, playsRaised}

// rare are plays that histories which are drawn need not have: [TestOverlaysInHistories] has them.
var rare = []string{playsResumedIn, playsConflict}

// So many histories play all of that, and so many at least two thirds of it.
const playAll, playMost = 500, 40

// played is how many histories have played what.
type played map[string]int

// add counts what one history has played.
func (all played) add(r *report) {
	for what := range r.plays {
		all[what]++
	}
}

// play plays one history of an attack.
func (all played) play(t *testing.T, by attack, seed uint64) {
	t.Helper()
	r := inMemory(t, seed, options{attack: by})
	if len(r.problems) > 0 {
		t.Errorf("%s: %s", by, r)
	}
	all.add(r)
}

// draw plays histories of an attack: at least so many, and more until each play is in so many of all. With a change
// elsewhere other histories have what is rare.
func (all played) draw(t *testing.T, by attack, least, each int, plays ...string) {
	t.Helper()
	const most = 300
	lacks := func(what string) bool { return all[what] < each }
	for seed := range most {
		if seed >= least && !slices.ContainsFunc(plays, lacks) {
			return
		}
		all.play(t, by, uint64(seed))
	}
	for _, what := range plays {
		if lacks(what) {
			t.Errorf("%d histories play that %s", all[what], what)
		}
	}
}

// check tells how many histories have played what, and fails where none has that should have.
func (all played) check(t *testing.T, histories uint64) {
	t.Helper()
	wanted := slices.Concat(plays, rare)
	for _, f := range slices.Concat(ofParties, ofServer, []fault{closed}) {
		wanted = append(wanted, string(f))
	}
	var lines, never []string
	for _, what := range wanted {
		lines = append(lines, fmt.Sprintf("%5d %s", all[what], what))
		if all[what] == 0 && !slices.Contains(rare, what) {
			never = append(never, what)
		}
	}
	slices.Sort(lines)
	if histories >= playAll && len(never) > 0 || histories >= playMost && len(never)*3 > len(wanted) {
		t.Errorf("no history has played: %s", strings.Join(never, ", "))
	}
	t.Logf("so many histories have played:\n%s", strings.Join(lines, "\n"))
	for what := range maps.Keys(all) {
		if !slices.Contains(wanted, what) {
			t.Errorf("%q is played and not asked for", what)
		}
	}
}

// saw notes what a history has played.
func (r *report) saw(what string, when bool) {
	if when {
		r.plays[what] = true
	}
}

// plays looks for what the history has played.
func (w *world) plays(r *report, h *verdict.History) {
	for k, rec := range h.Batches {
		w.playsOf(r, k, rec)
		r.saw(playsNewer, w.versions.isOnly(k, rec))
	}
	for _, l := range h.Ledger {
		k, _ := kindOf(l.Tool)
		r.saw(playsRecalled, l.Kind == ledger.Begin && k.asks && logOf(h.Batches[l.Key()], l.Index).asked == nil)
	}
	for _, a := range w.sc.agents {
		for _, b := range a.batches {
			whole, pieces := 0, 0
			for _, reading := range w.seen[b.batch.Key()].results {
				if reading.whole {
					whole++
				} else if len(reading.results) > 0 {
					pieces++
				}
			}
			r.saw(playsTwice, whole > 1)
			r.saw(playsHTTP, a.http && whole > 0)
			r.saw(playsResumed, a.http && whole > 0 && pieces > 0)
		}
	}
	if w.fate != nil {
		w.fate.mu.Lock()
		defer w.fate.mu.Unlock()
		for k := range w.fate.had {
			r.saw(string(k), true)
		}
	}
}

// playsOf looks for what was played of one batch.
func (w *world) playsOf(r *report, k toolyard.BatchKey, rec *verdict.Batch) {
	parked, all := false, false
	for _, e := range rec.Log {
		switch body := e.Body.(type) {
		case events.Parked:
			parked = true
			r.saw(playsParked, true)
		case events.Adopted:
			r.saw(playsWoken, parked)
			r.saw(playsTakenOver, !parked)
			parked = false
		case events.Decided:
			r.saw(playsSuperseded, body.Decision == events.Supersede)
			r.saw(playsDenied, body.Decision == events.Reject)
			r.saw(playsEdited, body.Edited != "" && !body.Answers)
			r.saw(playsApproved, body.Decision == events.Approve && body.Edited == "")
		case events.Appended:
			r.saw(playsAppended, true)
		case events.Closed:
			r.saw(playsIdle, body.By == "owner")
		case events.AttemptFailed:
			r.saw(playsAgain, true)
		case events.Canceled:
			all = all || len(body.Calls) == 0
		}
	}
	for i, res := range rec.Results() {
		log := logOf(rec, i)
		r.saw(playsCanceled, res.Code == toolyard.Canceled && len(log.canceled) > 0)
		r.saw(playsAllCanceled, res.Code == toolyard.Canceled && all)
		r.saw(playsInterrupted, res.Code == toolyard.Canceled && len(log.canceled) == 0)
		r.saw(playsExpired, res.Code == toolyard.ApprovalExpired && log.decided == nil)
		r.saw(playsUnknown, res.Code == toolyard.OutcomeUnknown)
		r.saw(playsLate, res.Code == toolyard.DeadlineExceeded)
		r.saw(playsSibling, res.Code == toolyard.SiblingCanceled)
		r.saw(playsHalted, res.Code == toolyard.Skipped)
		r.saw(playsLimited, res.Code == toolyard.RateLimited)
		r.saw(playsLacked, res.Code == toolyard.UnknownTool && w.seen[k].spec.batch.Calls[i].Tool != absent)
	}
}
