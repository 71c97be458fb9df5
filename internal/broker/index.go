package broker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
)

// MaxListed is how many batches one page of the index has.
const MaxListed = 1_000

// Index finds batches by agent, session and status. A batch is in it from its plan on, for as long as its submission is
// kept. It is written by the batch's owner and may be behind the log by one change: whoever needs the truth folds the
// log.
//
// Of two entries of one batch, the one that says that the batch is over is right, and else the one with the higher
// revision, whichever was written last. So a former owner that writes late changes nothing that is listed.
type Index interface {
	// Add puts in a batch that was just planned, of which nothing was put in before. When it returns nil the entry is
	// stored.
	Add(ctx context.Context, e Entry) error
	// Change puts in where a batch stands now, and takes out what it makes obsolete.
	Change(ctx context.Context, e Entry) error
	// Page returns batches in the order of their submission, the newest first, and whether there are more.
	Page(ctx context.Context, f Filter) (page []Entry, more bool, err error)
}

// Indexed is what has an index of batches.
type Indexed interface {
	Index() Index
}

// Entry is a batch in the index.
type Entry struct {
	ID        toolyard.BatchID
	Agent     toolyard.Agent
	Session   toolyard.Session
	Workspace toolyard.Workspace
	Status    toolyard.Status
	Calls     int
	// Submitted and Changed are kept to the millisecond.
	Submitted time.Time
	Changed   time.Time
	// Place is the sequence of the batch's submission. It names the batch, never changes, and is what a next page
	// begins behind.
	Place uint64
	// Revision is the last event of the batch's own chain that the writer knew.
	Revision uint64
}

// Key is the batch's identity.
func (e *Entry) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: e.Agent, ID: e.ID} }

// Live reports whether the batch was not complete when the entry was written.
func (e *Entry) Live() bool { return IsLive(e.Status) }

// IsLive reports whether a batch of this status is not complete.
func IsLive(s toolyard.Status) bool {
	return s != toolyard.StatusCompleted && s != toolyard.StatusCanceled
}

// Beats reports whether this entry is right where both are of one batch.
func (e *Entry) Beats(other *Entry) bool {
	switch {
	case e.Live() != other.Live():
		return other.Live()
	case e.Revision != other.Revision:
		return e.Revision > other.Revision
	}
	return e.Changed.After(other.Changed)
}

// Filter says which batches of the index are wanted. What is empty does not matter.
type Filter struct {
	Agent   toolyard.Agent
	Session toolyard.Session
	Status  toolyard.Status
	// Live wants those that are not complete.
	Live bool
	// After is the place of the last batch of the page before; 0 begins with the newest. Limit is at most [MaxListed],
	// which 0 means.
	After uint64
	Limit int
}

// Wants reports whether an entry passes the filter.
func (f *Filter) Wants(e *Entry) bool {
	return (f.Agent == "" || e.Agent == f.Agent) && (f.Session == "" || e.Session == f.Session) &&
		(f.Status == "" || e.Status == f.Status) && (!f.Live || e.Live())
}
