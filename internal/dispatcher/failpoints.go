// What the fault tests must know of a place in the code to say which one it is; see package failpoint.

package dispatcher

import (
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// starts reports whether an append starts a group that is not the first.
func starts(e batch.Append) bool {
	s, ok := e.Body.(events.Started)
	return ok && s.Group > 0
}

// replies reports whether an append is a reply, the last one or another.
func replies(e batch.Append, last bool) bool {
	b, ok := e.Body.(events.Reply)
	return ok && b.Completed == last
}

// someIn reports whether a record is the result of one call of several that are in flight.
func (r *runner) someIn(rec batch.Record) bool {
	_, ok := rec.Body.(events.Finished)
	return ok && len(r.m.InFlight()) > 1
}
