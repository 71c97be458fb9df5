package natsd

import (
	"errors"
	"fmt"
	"time"
)

// How much of the disk is kept when [Options.Reserve] does not say: a hundredth of it, within these bounds.
const (
	// MinReserve is the least that is kept by default: what is under way needs it to finish.
	MinReserve = 64 << 20
	// MaxReserve is the most that is kept by default: a large disk with a gigabyte left is not full.
	MaxReserve = 1 << 30
)

// The rhythm of [Server.Keep].
const (
	// lookEvery is how often the store is looked at.
	lookEvery = 250 * time.Millisecond
	// firstRestart is how long a server that stalled again soon after a restart is left alone, and lastRestart the
	// longest pause: each is twice the one before.
	firstRestart = time.Second
	lastRestart  = 30 * time.Second
	// steady is how long a server must store before it counts as well.
	steady = time.Minute
	// restartWithin is how long a server that has room may fail to start again before it is given up.
	restartWithin = time.Minute
)

// Room is how much room a server's disk has.
type Room struct {
	// Dir is the store directory. Free is what is left of the disk under it, and Reserve what of that is kept for what
	// is under way.
	Dir           string
	Free, Reserve int64
	// Full says that nothing new should be begun.
	Full bool
	// Stalled is why the server stores nothing at all; nil when it does.
	Stalled error
}

// String says how the room is, and what to do when there is none.
func (r Room) String() string {
	disk := fmt.Sprintf("the disk under %s has %s free", r.Dir, size(r.Free))
	switch {
	case r.Stalled != nil && r.Free < r.resume():
		return fmt.Sprintf("%s, and nothing more can be stored (%v); free %s", disk, r.Stalled, size(r.resume()-r.Free))
	case r.Stalled != nil:
		return fmt.Sprintf("nothing can be stored under %s (%v)", r.Dir, r.Stalled)
	case r.Full:
		return fmt.Sprintf("%s, and %s are kept for what is under way; free %s", disk, size(r.Reserve),
			size(max(0, r.resume()-r.Free)))
	}
	return disk
}

// resume is how much must be free before new things begin again: more than the reserve, or each one would be the last.
func (r Room) resume() int64 { return r.Reserve + r.Reserve/4 }

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// reserveOf is what is kept of a disk.
func reserveOf(option, total int64) int64 {
	if option > 0 {
		return option
	}
	return min(max(total/100, MinReserve), MaxReserve)
}

// sight is what was seen of a store at one time.
type sight struct {
	at time.Time
	// gone is why the store is no more; stalled why the server stores nothing.
	gone, stalled error
	free          int64
}

// deed is what is done about a store.
type deed int

const (
	nothing deed = iota
	restart      // the server stalled, and what it stalled for is over
	giveUp
)

// keeper decides what is done about a store, from what is seen of it.
type keeper struct {
	room Room
	// at is when the server was last restarted, or could not be; next when it may be again, after a pause that grows
	// until the server was well for a while.
	at, next time.Time
	pause    time.Duration
	// failing is since when it could not be started.
	failing time.Time
}

// see takes in a look at the store.
func (k *keeper) see(s sight) deed {
	k.room.Free, k.room.Stalled = s.free, s.stalled
	low := s.free < k.room.Reserve || k.room.Full && s.free < k.room.resume()
	k.room.Full = low || s.stalled != nil
	switch {
	case s.gone != nil:
		k.room.Full, k.room.Stalled = true, s.gone
		return giveUp
	case s.stalled != nil && !low && !s.at.Before(k.next):
		return restart
	case s.stalled == nil && s.at.Sub(k.at) > steady:
		k.pause = 0
	}
	return nothing
}

// tried takes in what became of a restart.
func (k *keeper) tried(at time.Time, err error) deed {
	k.pause = min(max(2*k.pause, firstRestart), lastRestart)
	k.at, k.next = at, at.Add(k.pause)
	switch {
	case err == nil, errors.Is(err, errNotWritable): // whatever keeps it from being written to may pass
		k.failing = time.Time{}
	case k.failing.IsZero():
		k.failing = at
	case at.Sub(k.failing) > restartWithin:
		return giveUp
	}
	return nothing
}

// errNotWritable is wrapped when a server was not restarted since nothing can be written.
var errNotWritable = errors.New("nothing can be written")

// Disk says how many bytes of the disk under a directory this user can write, and how many it has.
func Disk(dir string) (free, total int64, err error) { return disk(dir) }
