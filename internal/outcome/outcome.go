// Package outcome says what may be said of a call's effects when it ends without a result of its tool's own.
//
// Authority: the evidence, which comes from the log or from the worker that ran the call. Whoever ends a call, the
// owner or a worker, and for whatever reason, says the same of the same evidence: that it did not run only where that
// is known, and that it may have taken effect only where it may.
package outcome

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Evidence is what is known of a call. The zero Evidence is of a call that never ran.
type Evidence struct {
	Tool      string
	Judgement tool.Judgement
	// Started is how many executions of its tool were started.
	Started int
	// MayHaveStarted says that a worker may have started one that nobody knows of.
	MayHaveStarted bool
	// StillRuns says that the tool was told to stop and has not returned.
	StillRuns bool
}

// Ran reports whether the tool may have been started.
func (e Evidence) Ran() bool { return e.Started > 0 || e.MayHaveStarted || e.StillRuns }

// MayRepeat reports whether somebody may make the same call again, as another one, and no more happens. A call that may
// run twice is such a call, but for a start of a background call: that one finds what it has started, and another start
// starts another.
func MayRepeat(name string, j tool.Judgement) bool {
	return j.Idempotent && name != toolyard.BackgroundStart
}

// The sentences, each with the space before it.
const (
	didNotRun  = " The call did not run."
	onlyReads  = "" // what changes nothing leaves no question open
	lookBefore = " It may or may not have taken effect: check before trying again."
	stillRuns  = " Its tool was told to stop and has not returned: it may still act."
)

// Sentence is what the model is told of the call's effects, behind what else there is to say. An idempotent tool may be
// so by the call's idempotency key, which is another one in the model's next call: the model is to check there too.
func (e Evidence) Sentence() string {
	s := lookBefore
	switch {
	case !e.Ran():
		return didNotRun
	case e.Judgement.ReadOnly:
		s = onlyReads
	}
	if e.StillRuns {
		s += stillRuns
	}
	return s
}
