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
// A ticket can be for several groups in a row, see [Holder.Through]. It has a number for each of them. So a batch that
// is alone in its workspace keeps one ticket, and the calls of a later group still have a higher fencing token.
//
// Failure: joining and leaving name the group, and a batch's groups only go forward. So repeating either changes
// nothing, and a former owner that wakes up late can neither take the ticket of a later group nor release it. Several
// dispatchers may plan one batch and reserve tickets for it, of which one plan is stored. Nobody takes out a reserved
// ticket before: any of them may be in that plan. The plan's owner takes out the others, when it joins or leaves, and
// while it needs none.
//
// Generations: a shared ticket says which exclusive ticket was given out last before it. Two shared tickets that say
// the same have none between them, so that nothing in the workspace was changed between them either. A new key begins
// with a generation of its own: its floor.
package ticket

import (
	"errors"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
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
	// Named is together with other named tickets that want none of its names, or share them, and with shared ones if it
	// shares all of its names.
	Named Mode = "named"
)

// Modes are all modes.
var Modes = []Mode{Shared, Exclusive, Named}

// MaxLocks is how many names one ticket has at most.
const MaxLocks = 16

// writes reports whether what runs under a ticket may change something.
func writes(mode Mode, locks []tool.Lock) bool {
	return mode != Shared && (mode != Named || slices.ContainsFunc(locks, func(l tool.Lock) bool { return !l.Shared }))
}

// Conflict reports whether two tickets of different batches may not be granted together. A ticket for the whole
// workspace has all of its names: a shared one reads what a named one may change.
func Conflict(a, b Ticket) bool {
	if a.Mode == Named && b.Mode == Named {
		for _, l := range a.Locks {
			if slices.ContainsFunc(b.Locks, func(o tool.Lock) bool {
				return l.Name == o.Name && !(l.Shared && o.Shared)
			}) {
				return true
			}
		}
		return false
	}
	return writes(a.Mode, a.Locks) || writes(b.Mode, b.Locks)
}

// Holder is whose ticket it is: one group of one batch.
type Holder struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Group int              `json:"group"`
	// Through is the last group that the ticket is for, if that is not Group.
	Through int `json:"through,omitempty"`
	// Term counts the batch's owners. It identifies the caller, not the ticket: a former owner cannot release what a
	// later one holds, even if an open batch comes back to a group.
	Term int `json:"term,omitempty"`
}

// Key is the batch and the group.
func (h Holder) Key() Holder {
	h.Through, h.Term = 0, 0
	return h
}

// Last is the last group that the ticket is for.
func (h Holder) Last() int { return max(h.Group, h.Through) }

// Ticket is one position in the queue. N is its number, and the fencing token of its first group.
type Ticket struct {
	N uint64 `json:"n"`
	Holder
	Mode Mode `json:"mode"`
	// Locks are the names that a [Named] ticket takes; no other has any.
	Locks []tool.Lock `json:"locks,omitempty"`
	// After is the workspace's generation under a shared ticket: the last number of the last exclusive ticket before
	// it. 0: unknown.
	After uint64 `json:"after,omitempty"`
}

// Queue is a workspace's tickets, earliest first. The zero Queue is empty. Methods return a new queue and do not change
// the old one.
type Queue struct {
	// Last is the highest number given out so far.
	Last    uint64   `json:"last"`
	Tickets []Ticket `json:"queue"`
	// Exclusive is the last number of the last exclusive ticket that was given out; of a new key, its floor. 0:
	// unknown.
	Exclusive uint64 `json:"exclusive,omitempty"`
	// Relative says that the numbers count from the [Floor] of the revision under which the queue is stored. It is set
	// for the first revision of a key, which is unknown before it is stored. See [Queue.At].
	Relative bool `json:"relative,omitempty"`
	// Sealed says that the queue takes no more tickets: the workspace has another one, in another shard.
	Sealed bool `json:"sealed,omitempty"`
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
	q.Relative, q.Last, q.Exclusive, q.Tickets = false, q.Last+floor, q.Exclusive+floor, slices.Clone(q.Tickets)
	for i := range q.Tickets {
		t := &q.Tickets[i]
		if t.N += floor; t.Mode == Shared {
			t.After += floor
		}
	}
	return q
}

// MayGo reports whether the key of a queue, stored under a revision, may be deleted: the queue is empty, and all
// numbers of a later key, whose revision is higher, are above its own.
func (q Queue) MayGo(revision uint64) bool {
	return len(q.Tickets) == 0 && !q.Sealed && q.Last <= Floor(revision+1)
}

// One returns the queues of a workspace, the oldest first, as one queue: tickets of a later one are behind all of an
// earlier one. All but the last one are sealed, so the generation is that of the last one. floor is the last number of
// the sealed ones.
func One(queues []Queue, floor uint64) Queue {
	home := queues[len(queues)-1]
	one := Queue{Last: max(home.Last, floor), Exclusive: home.Exclusive}
	for _, q := range queues {
		one.Tickets = append(one.Tickets, q.Tickets...)
	}
	return one
}

// Split is the inverse of [One]: the queues as they become by a change of them as one. New tickets are in the last one.
func (q Queue) Split(queues []Queue) []Queue {
	out := slices.Clone(queues)
	home, left := len(queues)-1, q.Tickets
	for i := range out[:home] {
		n := 0
		for n < len(left) && left[n].N <= queues[i].Last {
			n++
		}
		out[i].Tickets, left = slices.Clone(left[:n]), left[n:]
	}
	out[home].Last, out[home].Exclusive, out[home].Tickets = q.Last, q.Exclusive, slices.Clone(left)
	return out
}

// Number is the ticket's number for a group, and the fencing token of the group's calls.
func (t Ticket) Number(group int) uint64 { return t.N + uint64(group-t.Group) }

// Join returns the ticket of h's group in a mode. If there is none, it appends one, which is for all of h's groups. It
// removes the batch's other tickets, which are of earlier groups or of plans that were not stored. So going from one
// group to the next is one change. Only the owner of a planned batch may call it.
//
// An owner that joins for a later group than its ticket begins with gives the ticket up: others wait for it. A later
// owner keeps it, since calls may run under it.
func (q Queue) Join(h Holder, mode Mode, locks ...tool.Lock) (Queue, Ticket, error) {
	return q.join(h, mode, locks, false)
}

// Reserve is [Queue.Join] for a batch that is not planned yet, as far as its caller knows. It removes and changes
// nothing.
func (q Queue) Reserve(h Holder, mode Mode, locks ...tool.Lock) (Queue, Ticket, error) {
	return q.join(h, mode, locks, true)
}

func (q Queue) join(h Holder, mode Mode, locks []tool.Lock, reserve bool) (Queue, Ticket, error) {
	next := Queue{Last: q.Last, Tickets: make([]Ticket, 0, len(q.Tickets)+1), Exclusive: q.Exclusive,
		Relative: q.Relative}
	var own *Ticket
	for _, t := range q.Tickets {
		switch {
		case own == nil && t.isFor(h, mode, locks) && (t.Group == h.Group || t.Term != h.Term || reserve):
			if !reserve {
				t.N, t.Group, t.Term = t.Number(h.Group), h.Group, max(t.Term, h.Term)
			}
			own = &t
		// Of a later owner. One of the same or an earlier term is of a plan that was not stored, and had other groups.
		case t.sameBatch(h) && t.Group > h.Group && (reserve || t.Term > h.Term):
			return q, Ticket{}, fmt.Errorf("%w: group %d stands in the queue, not %d", ErrPassed, t.Group, h.Group)
		case t.sameBatch(h) && !reserve:
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
	if h.Through <= h.Group {
		h.Through = 0
	}
	t := Ticket{N: next.Last + 1, Holder: h, Mode: mode, Locks: locks}
	next.Last = t.Number(t.Holder.Last())
	if mode == Shared {
		t.After = q.Exclusive
	} else if writes(mode, locks) {
		next.Exclusive = next.Last
	}
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

// isFor reports whether a ticket is for h's group, in a mode and with the same names.
func (t Ticket) isFor(h Holder, mode Mode, locks []tool.Lock) bool {
	return t.Mode == mode && slices.Equal(t.Locks, locks) && t.sameBatch(h) && t.Group <= h.Group &&
		h.Group <= t.Holder.Last()
}

// Find returns the ticket of h's group in a mode, with the same names.
func (q Queue) Find(h Holder, mode Mode, locks ...tool.Lock) (Ticket, bool) {
	i := q.find(h, mode, locks)
	if i < 0 {
		return Ticket{}, false
	}
	return q.Tickets[i], true
}

func (q Queue) find(h Holder, mode Mode, locks []tool.Lock) int {
	return slices.IndexFunc(q.Tickets, func(t Ticket) bool { return t.isFor(h, mode, locks) })
}

// Blocking returns the tickets for which that of h's group in a mode waits, earliest first, and so many at most.
func (q Queue) Blocking(h Holder, mode Mode, most int, locks ...tool.Lock) (out []Ticket) {
	own, ok := q.Find(h, mode, locks...)
	if !ok {
		return nil
	}
	for _, t := range q.Tickets {
		if t.N >= own.N || len(out) == most {
			break
		}
		if !t.sameBatch(h) && Conflict(t, own) {
			out = append(out, t)
		}
	}
	return out
}

// Granted returns the ticket of h's group in a mode, if no earlier ticket conflicts with it.
func (q Queue) Granted(h Holder, mode Mode, locks ...tool.Lock) (Ticket, bool) {
	i := q.find(h, mode, locks)
	if i < 0 || slices.ContainsFunc(q.Tickets[:i], func(t Ticket) bool { return Conflict(t, q.Tickets[i]) }) {
		return Ticket{}, false
	}
	return q.Tickets[i], true
}
