// Package ticket is the workspace lock as a value: a queue of tickets, first come, first served.
//
// Authority: the queue of a workspace is one key in the broker, changed only by compare-and-set; this package defines
// each change. A ticket belongs to a batch's group, not to a process. So no lease can expire while a paused dispatcher
// still acts under it, and a dispatcher that takes over a batch finds its ticket in the queue.
//
//	head                                          tail
//	[shared 7] [shared 8] [exclusive 9] [shared 10]
//	 granted    granted    waits          waits
//
// A ticket is granted if no earlier one conflicts with it: shared tickets are granted together, an exclusive one alone.
// Since a later shared ticket never passes an earlier exclusive one, writers do not starve. Numbers only grow, and a
// ticket's number is the fencing token of the calls that run under it.
//
// The key of an empty queue may be deleted without resetting the numbers: the first change of a new key stores numbers
// that count from the [Floor] of the revision that it gets. The server assigns revisions, so no dispatcher can begin a
// queue at a number that it read too early.
//
// Failure: joining and leaving name the group, and a batch's groups only go forward. So repeating either changes
// nothing, and a former owner that wakes up late can neither take the ticket of a later group nor release it.
package ticket

import (
	"errors"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
)

// MaxQueue bounds the tickets in one workspace's queue, holders included.
const MaxQueue = 4096

// ErrFull is wrapped by [Queue.Join] if the queue has [MaxQueue] tickets.
var ErrFull = errors.New("the workspace's queue is full")

// ErrPassed is wrapped by [Queue.Join] if a later group of the same batch is in the queue: the caller is a former owner
// that does not know it yet.
var ErrPassed = errors.New("the batch has passed that group")

// Mode says which tickets can be granted together.
type Mode string

// The modes.
const (
	Shared    Mode = "shared"    // together with other shared tickets
	Exclusive Mode = "exclusive" // alone
)

// Holder is whose ticket it is: one group of one batch.
type Holder struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Group int              `json:"group"`
	// Term counts the batch's owners. It identifies the caller, not the ticket: a former owner cannot release what a
	// later one holds, even if an open batch comes back to a group.
	Term int `json:"term,omitempty"`
}

// Key is the holder without its term, which identifies the ticket.
func (h Holder) Key() Holder {
	h.Term = 0
	return h
}

// Ticket is one position in the queue. N is its number, and the fencing token.
type Ticket struct {
	N uint64 `json:"n"`
	Holder
	Mode Mode `json:"mode"`
}

// Queue is a workspace's tickets, earliest first. The zero Queue is empty. Methods return a new queue and do not change
// the old one.
type Queue struct {
	// Last is the highest number given out so far.
	Last    uint64   `json:"last"`
	Tickets []Ticket `json:"queue"`
	// Relative says that the numbers count from the [Floor] of the revision under which the queue is stored. It is set
	// for the first revision of a key, which is unknown before it is stored. See [Queue.At].
	Relative bool `json:"relative,omitempty"`
}

// NumbersPerRevision is the difference between the floors of two consecutive revisions. One change uses more numbers
// only if more batches join at once; the queue's key then stays until its revision has passed its numbers.
const NumbersPerRevision = MaxQueue

// Floor is the number above which a queue begins that is first stored under a revision. Revisions of all keys come from
// one growing sequence, so of two keys of a workspace the later one has the higher floor.
func Floor(revision uint64) uint64 { return revision * NumbersPerRevision }

// At returns the queue with absolute numbers, as stored under a revision of its key. The zero Queue represents a
// missing key, and becomes the beginning of a new one.
func (q Queue) At(revision uint64) Queue {
	if !q.Relative {
		q.Relative = q.Last == 0 && len(q.Tickets) == 0
		return q
	}
	floor := Floor(revision)
	q.Relative, q.Last, q.Tickets = false, q.Last+floor, slices.Clone(q.Tickets)
	for i := range q.Tickets {
		q.Tickets[i].N += floor
	}
	return q
}

// MayGo reports whether the key of a queue, stored under a revision, may be deleted: the queue is empty, and all
// numbers of a later key, whose revision is higher, are above its own.
func (q Queue) MayGo(revision uint64) bool { return len(q.Tickets) == 0 && q.Last <= Floor(revision+1) }

// Join appends a ticket for h and returns it. It removes those of the batch's earlier groups, so that going from one
// group to the next is one change. A holder that is in the queue already keeps its position.
func (q Queue) Join(h Holder, mode Mode) (Queue, Ticket, error) {
	next := Queue{Last: q.Last, Tickets: make([]Ticket, 0, len(q.Tickets)+1), Relative: q.Relative}
	var own *Ticket
	for _, t := range q.Tickets {
		switch {
		case t.Key() == h.Key():
			t.Term = max(t.Term, h.Term)
			own = &t
		case t.sameBatch(h) && t.Group > h.Group:
			return q, Ticket{}, fmt.Errorf("%w: group %d stands in the queue, not %d", ErrPassed, t.Group, h.Group)
		case t.sameBatch(h):
			continue
		}
		next.Tickets = append(next.Tickets, t)
	}
	if own != nil {
		return next, *own, nil
	}
	if len(next.Tickets) >= MaxQueue {
		return q, Ticket{}, fmt.Errorf("%w: %d tickets stand in it", ErrFull, len(next.Tickets))
	}
	next.Last++
	t := Ticket{N: next.Last, Holder: h, Mode: mode}
	next.Tickets = append(next.Tickets, t)
	return next, t, nil
}

// Leave removes the tickets of h's batch up to h's group, except those that a later owner has joined with.
func (q Queue) Leave(h Holder) Queue {
	return q.without(func(t Ticket) bool { return t.sameBatch(h) && t.Group <= h.Group && t.Term <= h.Term })
}

// Remove removes one ticket, by its number.
func (q Queue) Remove(n uint64) Queue { return q.without(func(t Ticket) bool { return t.N == n }) }

func (q Queue) without(out func(Ticket) bool) Queue {
	if !slices.ContainsFunc(q.Tickets, out) {
		return q
	}
	q.Tickets = slices.DeleteFunc(slices.Clone(q.Tickets), out)
	return q
}

func (t Ticket) sameBatch(h Holder) bool { return t.Agent == h.Agent && t.Batch == h.Batch }

// Find returns h's ticket.
func (q Queue) Find(h Holder) (Ticket, bool) {
	for _, t := range q.Tickets {
		if t.Key() == h.Key() {
			return t, true
		}
	}
	return Ticket{}, false
}

// Granted reports whether h's ticket is in the queue and no earlier one conflicts with it.
func (q Queue) Granted(h Holder) (Ticket, bool) {
	for i, t := range q.Tickets {
		if t.Key() == h.Key() {
			return t, i == 0 || t.Mode == Shared
		}
		if t.Mode != Shared {
			return Ticket{}, false
		}
	}
	return Ticket{}, false
}
