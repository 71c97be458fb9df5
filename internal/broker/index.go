package broker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
)

// IndexAfter is how long a batch runs before it is in the index. Most are over by then, and are written once.
const IndexAfter = 250 * time.Millisecond

// MaxListed bounds the batches on one page of the index.
const MaxListed = 1_000

// Index finds batches by agent, session and status. A batch is in it when it is over or parked, or has run for
// [IndexAfter], and for as long as its submission is kept. The batch's owner writes it, and it may be one change behind
// the log; the log decides.
//
// Of two entries of one batch, the one that says that the batch is completed is right, otherwise the one with the
// higher revision, whichever was written last. So a late write of a former owner does not change what is listed.
type Index interface {
	// Add adds a batch without earlier entries. If it returns nil, the entry is stored.
	Add(ctx context.Context, e Entry) error
	// Change writes the current state of a batch, and removes entries that it makes obsolete. Its place may be that of
	// an entry of a page.
	Change(ctx context.Context, e Entry) error
	// Page returns batches in the order of their submission, newest first, and whether there are more.
	Page(ctx context.Context, f Filter) (page []Entry, more bool, err error)
}

// Indexed provides an index of batches.
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
	// Submitted and Changed have a precision of a millisecond.
	Submitted time.Time
	Changed   time.Time
	// Place is the sequence of the batch's submission. It identifies the batch, never changes, and is the cursor for
	// the next page.
	Place uint64
	// Revision is the last event of the batch chain that the writer knew.
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

// Beats reports whether this entry is right, if both are of one batch.
func (e *Entry) Beats(other *Entry) bool {
	switch {
	case e.Live() != other.Live():
		return other.Live()
	case e.Revision != other.Revision:
		return e.Revision > other.Revision
	}
	return e.Changed.After(other.Changed)
}

// Filter selects batches of the index. Empty fields match everything.
type Filter struct {
	Agent   toolyard.Agent
	Session toolyard.Session
	Status  toolyard.Status
	// Live selects batches that are not complete.
	Live bool
	// After is the place of the last batch of the previous page; 0 begins with the newest. Limit is at most
	// [MaxListed], which is also the default.
	After uint64
	Limit int
}

// Wants reports whether an entry matches the filter.
func (f *Filter) Wants(e *Entry) bool {
	return (f.Agent == "" || e.Agent == f.Agent) && (f.Session == "" || e.Session == f.Session) &&
		(f.Status == "" || e.Status == f.Status) && (!f.Live || e.Live())
}
