// Package presence judges whether a worker of which one dispatcher hears nothing can still act.
//
// Authority: a worker acts under a lease, which it renews by storing its entry in the registry. So a worker that has
// stored nothing for as long as the longest lease can last, and then some for stopping (the patience), acts no more.
// That a dispatcher does not hear of it is no evidence of that: the watch may be dead, or the connection, or an answer
// lost. Three things count:
//
//   - the entry itself, read through the leader of its stream: what stands there, and for how long that is known;
//   - signs of life: a new revision of the entry, a claim or another event, an answer;
//   - the watch: while it is deaf nothing is concluded from silence, and for a patience after it has caught up,
//     since who was
//     cut off with us needs time to come back.
//
// Ordering: times are those of one monotonic clock, and come in as arguments. A sign counts from when it was heard,
// which is never before it was given.
//
// Failure: whatever is not known makes a worker look alive for longer. Its claims wait then; they are never taken from
// one that may act.
package presence

import "time"

// Limit bounds the workers that are remembered. Past it those that have no entry are forgotten, and wait a second time.
const Limit = 10_000

// Kind is what a reading of a worker's entry has found.
type Kind string

// The kinds.
const (
	Present Kind = "present" // the entry
	Expired Kind = "expired" // the mark of an entry that has expired: nothing was stored for a TTL before it
	Removed Kind = "removed" // the mark of an entry that somebody has removed
	Missing Kind = "missing" // nothing
)

// Reading is the last message of a worker's entry, read through the leader of its stream.
type Reading struct {
	Kind Kind
	Seq  uint64 // 0 when it is missing
}

// Verdict is what a reading shows.
type Verdict string

// The verdicts.
const (
	// Alive: the worker has stored its entry since it was last heard of. The watch has missed that.
	Alive Verdict = "alive"
	// Unproven: it may have a lease.
	Unproven Verdict = "unproven"
	// Silent: it has no lease, and whatever it ran has ended or was left behind.
	Silent Verdict = "silent"
)

// Book is what one dispatcher knows of the workers. It is not safe for concurrent use.
type Book struct {
	ttl, patience time.Duration
	// hearing says that the watch has caught up, and since when.
	hearing bool
	since   time.Time
	workers map[string]*worker
}

// worker is what is known of one.
type worker struct {
	sign time.Time // when the last sign of life was heard
	// last is what stood there when it was last told or read, and known since when that is known.
	last  Reading
	known time.Time
	// entered says that the entry stands, as far as was told.
	entered bool
	// unread says that the registry has to be read: nothing is known, or the watch has told that the entry is gone.
	unread bool
}

// New returns an empty book. An entry expires a TTL after it was stored; patience is how long a worker must have been
// silent before others act in its place, and longer than the TTL.
func New(ttl, patience time.Duration) *Book {
	return &Book{ttl: ttl, patience: patience, workers: map[string]*worker{}}
}

// Deaf says that the watch tells nothing from now on, or has told nothing for an unknown time.
func (b *Book) Deaf() { b.hearing = false }

// CaughtUp says that the watch has told everything that stands in the registry.
func (b *Book) CaughtUp(now time.Time) {
	if !b.hearing {
		b.hearing, b.since = true, now
	}
}

// Hearing reports whether the watch tells what is there.
func (b *Book) Hearing() bool { return b.hearing }

func (b *Book) worker(id string, now time.Time) *worker {
	w := b.workers[id]
	if w == nil {
		if len(b.workers) >= Limit {
			for other, o := range b.workers {
				if !o.entered {
					delete(b.workers, other)
				}
			}
		}
		w = &worker{sign: now, unread: true} // nothing is known of it: its patience begins here
		b.workers[id] = w
	}
	return w
}

// Sign notes a sign of life that is none of the registry.
func (b *Book) Sign(id string, now time.Time) { b.worker(id, now).sign = now }

// Entry notes an entry that the watch has told. A revision that is known is no sign of life: a watch that begins anew
// tells it again.
func (b *Book) Entry(id string, revision uint64, now time.Time) {
	w := b.worker(id, now)
	if r := (Reading{Present, revision}); w.last != r {
		w.sign, w.known, w.last = now, now, r
	}
	w.entered, w.unread = true, false
}

// Gone notes that the watch has told that an entry is gone, or was not there when the watch began anew.
func (b *Book) Gone(id string, now time.Time) {
	w := b.worker(id, now)
	w.entered, w.unread = false, true
}

// Entered reports whether a worker has an entry, as far as was told.
func (b *Book) Entered(id string) bool { return b.workers[id] != nil && b.workers[id].entered }

// Overdue returns the workers with an entry that gave no sign for longer than a TTL. Their entries are to be read:
// either they should have expired, or the watch has missed something.
func (b *Book) Overdue(now time.Time) (ids []string) {
	for id, w := range b.workers {
		if w.entered && now.Sub(w.sign) > b.ttl {
			ids = append(ids, id)
		}
	}
	return ids
}

// ToRead reports whether a worker's entry is to be read now: because nothing is known of it, or because the reading may
// show that the worker is silent.
func (b *Book) ToRead(id string, now time.Time) bool {
	return b.worker(id, now).unread || b.patient(id, now)
}

// patient reports whether a worker gave no sign for a patience, in which the watch could hear one.
func (b *Book) patient(id string, now time.Time) bool {
	return b.hearing && now.Sub(b.since) >= b.patience && now.Sub(b.worker(id, now).sign) >= b.patience
}

// Read judges a worker by what stands in the registry now.
func (b *Book) Read(id string, r Reading, now time.Time) Verdict {
	w := b.worker(id, now)
	w.unread = false
	if r.Kind == Present && r != w.last {
		w.sign, w.known, w.last, w.entered = now, now, r, true
		return Alive
	}
	// The mark of an expired entry expires too, and says as much when it is gone.
	if r != w.last && !(r.Kind == Missing && w.last.Kind == Expired) {
		w.known, w.last = now, r
	}
	if r.Kind != Present {
		w.entered = false
	}
	wait := b.patience
	if w.last.Kind == Expired { // the last that was stored is older by a TTL
		wait -= b.ttl
	}
	if b.patient(id, now) && now.Sub(w.known) >= wait {
		return Silent
	}
	return Unproven
}

// Forget takes the entry of a silent worker for gone, though it stands: a server that was restarted may have lost its
// time to live.
func (b *Book) Forget(id string) {
	if w := b.workers[id]; w != nil {
		w.entered = false
	}
}
