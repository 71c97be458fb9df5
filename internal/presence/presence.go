// Package presence judges whether a silent worker can still act.
//
// Authority: a worker acts under a lease, which it renews by storing its entry in the registry. The patience is the
// longest time that a lease can last after the entry was stored, plus the time for stopping. A worker that has stored
// nothing for a patience cannot act any more. That a dispatcher hears nothing does not prove this: the watch may be
// dead, the connection may be cut, or an answer may be lost. Three things count:
//
//   - the entry itself, read from the leader of its stream: its content, and how long it has been known;
//   - signs of life: a new revision of the entry, a claim or another event, an answer;
//   - the watch: nothing is concluded from silence while it is deaf, and for a patience after it has caught up, since
//     workers that were cut off together with us need time to come back.
//
// Ordering: times are those of one monotonic clock and are arguments. A sign counts from when it was received, which is
// never before it was sent.
//
// Failure: missing knowledge makes a worker count as alive for longer. Its claims then wait; they are never taken from
// a worker that may act.
package presence

import "time"

// Limit bounds the workers that are remembered. Past it those without an entry are dropped, and must wait a patience
// again.
const Limit = 10_000

// Kind is the result of reading a worker's entry.
type Kind string

// The kinds.
const (
	Present Kind = "present" // the entry
	Expired Kind = "expired" // the marker of an expired entry: nothing was stored for a TTL before it
	Removed Kind = "removed" // the mark of an entry that somebody has removed
	Missing Kind = "missing" // nothing
)

// Reading is the last message of a worker's entry, read from the leader of its stream.
type Reading struct {
	Kind Kind
	Seq  uint64 // 0 if it is missing
}

// Verdict is the conclusion from a reading.
type Verdict string

// The verdicts.
const (
	// Alive: the worker has stored its entry since the last sign of life, and the watch has missed that.
	Alive Verdict = "alive"
	// Unproven: it may have a lease.
	Unproven Verdict = "unproven"
	// Silent: it has no lease, and what it ran has ended or was abandoned.
	Silent Verdict = "silent"
)

// Book is what one dispatcher knows about the workers. It is not safe for concurrent use.
type Book struct {
	ttl, patience time.Duration
	// hearing says that the watch has caught up, and since when.
	hearing bool
	since   time.Time
	workers map[string]*worker
}

// worker is what is known about one worker.
type worker struct {
	sign time.Time // when the last sign of life was received
	// last is the entry when it was last reported or read, and known the time since when it is known.
	last  Reading
	known time.Time
	// entered says that the worker has an entry, according to the watch.
	entered bool
	// unread says that the registry must be read: nothing is known, or the watch has reported that the entry is gone.
	unread bool
}

// New returns an empty book. An entry expires a TTL after it was stored. patience is how long a worker must have been
// silent before others act in its place; it is longer than the TTL.
func New(ttl, patience time.Duration) *Book {
	return &Book{ttl: ttl, patience: patience, workers: map[string]*worker{}}
}

// Deaf records that the watch reports nothing from now on, or has reported nothing for an unknown time.
func (b *Book) Deaf() { b.hearing = false }

// CaughtUp records that the watch has reported everything in the registry.
func (b *Book) CaughtUp(now time.Time) {
	if !b.hearing {
		b.hearing, b.since = true, now
	}
}

// Hearing reports whether the watch reports all changes.
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
		w = &worker{sign: now, unread: true} // nothing is known about it: its patience begins now
		b.workers[id] = w
	}
	return w
}

// Sign records a sign of life from outside the registry.
func (b *Book) Sign(id string, now time.Time) { b.worker(id, now).sign = now }

// Entry records an entry that the watch has reported. A known revision is not a sign of life, because a restarted watch
// reports it again.
func (b *Book) Entry(id string, revision uint64, now time.Time) {
	w := b.worker(id, now)
	if r := (Reading{Present, revision}); w.last != r {
		w.sign, w.known, w.last = now, now, r
	}
	w.entered, w.unread = true, false
}

// Gone records that, according to the watch, an entry is gone, or did not exist when the watch restarted.
func (b *Book) Gone(id string, now time.Time) {
	w := b.worker(id, now)
	w.entered, w.unread = false, true
}

// Entered reports whether a worker has an entry, according to the watch.
func (b *Book) Entered(id string) bool { return b.workers[id] != nil && b.workers[id].entered }

// Overdue returns the workers with an entry that gave no sign for longer than a TTL. Their entries must be read: either
// they should have expired, or the watch has missed something.
func (b *Book) Overdue(now time.Time) (ids []string) {
	for id, w := range b.workers {
		if w.entered && now.Sub(w.sign) > b.ttl {
			ids = append(ids, id)
		}
	}
	return ids
}

// ToRead reports whether a worker's entry must be read now: because nothing is known about it, or because the reading
// may show that the worker is silent.
func (b *Book) ToRead(id string, now time.Time) bool {
	return b.worker(id, now).unread || b.patient(id, now)
}

// patient reports whether a worker gave no sign for a patience in which the watch could have reported one.
func (b *Book) patient(id string, now time.Time) bool {
	return b.hearing && now.Sub(b.since) >= b.patience && now.Sub(b.worker(id, now).sign) >= b.patience
}

// Read judges a worker by its entry in the registry.
func (b *Book) Read(id string, r Reading, now time.Time) Verdict {
	w := b.worker(id, now)
	w.unread = false
	if r.Kind == Present && r != w.last {
		w.sign, w.known, w.last, w.entered = now, now, r, true
		return Alive
	}
	// The marker of an expired entry expires too. Its absence then has the same meaning.
	if r != w.last && !(r.Kind == Missing && w.last.Kind == Expired) {
		w.known, w.last = now, r
	}
	if r.Kind != Present {
		w.entered = false
	}
	wait := b.patience
	if w.last.Kind == Expired { // the last entry was stored a TTL earlier
		wait -= b.ttl
	}
	if b.patient(id, now) && now.Sub(w.known) >= wait {
		return Silent
	}
	return Unproven
}

// Forget treats the entry of a silent worker as gone although it exists: a restarted server may have lost its expiry
// time.
func (b *Book) Forget(id string) {
	if w := b.workers[id]; w != nil {
		w.entered = false
	}
}
