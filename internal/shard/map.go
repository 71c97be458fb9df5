package shard

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Grace is how long after a raise submissions with the former map are still taken. It is longer than any process that
// works goes without reading the map.
const Grace = time.Minute

// freshFor is how old a map may be that is relied on. It is less than [Grace]: no raise that a dispatcher has not seen
// can have made a submission late, and a raise that a reader has not seen is not opened yet.
const freshFor = Grace / 2

// Epoch is the time in which a system has one number of shards.
type Epoch struct {
	Shards int `json:"shards"`
	// Opened is when it began, by the clock of the server that leads the map; zero for the first one.
	Opened time.Time `json:"opened,omitzero"`
}

// Map says how many shards a system has and had. It is one key, changed by compare-and-set alone. The zero Map is one
// shard.
type Map struct {
	Epochs []Epoch `json:"epochs"`
	// Next is how many shards there will be; 0 if that does not change. They are served, and nothing is stored in new
	// ones.
	Next int `json:"next,omitempty"`
}

// Check returns an error for a map that no raise has made.
func (m Map) Check() error {
	for i, e := range m.Epochs {
		if e.Shards < 1 || e.Shards > Max || i > 0 && e.Shards <= m.Epochs[i-1].Shards {
			return fmt.Errorf("epoch %d of %d has %d shards", i, len(m.Epochs), e.Shards)
		}
	}
	if m.Next != 0 && (m.Next <= m.Shards() || m.Next > Max) {
		return fmt.Errorf("%d shards are prepared where there are %d", m.Next, m.Shards())
	}
	return nil
}

// Shards is how many shards there are.
func (m Map) Shards() int {
	if len(m.Epochs) == 0 {
		return 1
	}
	return m.Epochs[len(m.Epochs)-1].Shards
}

// Served is how many shards dispatchers and workers serve.
func (m Map) Served() int { return max(m.Shards(), m.Next) }

// MadeWith is how many shards there were, or were prepared, when one of them was made.
func (m Map) MadeWith(shard int) int {
	for _, e := range m.Epochs {
		if shard < e.Shards {
			return e.Shards
		}
	}
	return m.Served()
}

// Current says that a map that was read at a time is still the newest one as far as batches go: a raise is announced
// for at least [Grace] before it is opened, and this map has none. Who looks for a batch need not read it again.
func (m Map) Current(read, now time.Time) bool { return m.Next == 0 && Young(read, now) }

// Young says that a map that was read at a time need not be read again before it is used. Whoever finds with it that
// there is nothing asks [Map.Current] too. The clock that went on for longer counts: the monotonic one stands still
// while a machine is suspended, and a raise may be over by then.
func Young(read, now time.Time) bool {
	return max(now.Sub(read), now.Round(0).Sub(read.Round(0))) <= freshFor
}

// Home is the shard of what is new.
func (m Map) Home(s Slot) int { return s.Shard(m.Shards()) }

// stay is how long a slot was in a shard: until left, which is zero for its home.
type stay struct {
	shard int
	left  time.Time
}

// stays are the shards of a slot, oldest first. None comes twice, since a slot only goes to new shards.
func (m Map) stays(s Slot) (out []stay) {
	if len(m.Epochs) == 0 {
		return []stay{{shard: s.Shard(1)}}
	}
	for _, e := range m.Epochs {
		at := s.Shard(e.Shards)
		if n := len(out); n > 0 {
			if out[n-1].shard == at {
				continue
			}
			out[n-1].left = e.Opened
		}
		out = append(out, stay{shard: at})
	}
	return out
}

// Path is the shards in which something of a slot may stand, oldest first; the last one is its home. kept is how long
// messages are kept, at least [Grace]. What stands in a former shard was stored at most Grace after the slot had left
// it, or means nothing.
func (m Map) Path(s Slot, now time.Time, kept time.Duration) (path []int) {
	for _, t := range m.stays(s) {
		if t.left.IsZero() || !now.After(t.left.Add(Grace+kept)) {
			path = append(path, t.shard)
		}
	}
	return path
}

// Left is the former shards of a slot that are no longer on its path: nothing of it that counts stands there.
func (m Map) Left(s Slot, now time.Time, kept time.Duration) (left []int) {
	path := m.Path(s, now, kept)
	for _, t := range m.stays(s) {
		if !slices.Contains(path, t.shard) {
			left = append(left, t.shard)
		}
	}
	return left
}

// Prepare returns the map in which n shards are served.
func (m Map) Prepare(n int) (Map, error) {
	switch {
	case n <= m.Shards():
		return m, fmt.Errorf("the system has %d shards; their number only grows", m.Shards())
	case n > Max:
		return m, fmt.Errorf("%d shards are too many; use at most %d", n, Max)
	case m.Next != 0 && m.Next != n:
		return m, fmt.Errorf("the number of shards is being raised to %d; finish that first", m.Next)
	}
	m.Next = n
	return m, nil
}

// Open returns the map in which what is new goes to the shards that are prepared, from a time on.
func (m Map) Open(at time.Time) (Map, error) {
	if m.Next == 0 {
		return m, errors.New("no shards are prepared")
	}
	epochs := slices.Clone(m.Epochs)
	if len(epochs) == 0 {
		epochs = []Epoch{{Shards: 1}}
	}
	if last := epochs[len(epochs)-1].Opened; at.Before(last) { // by the clock of another server
		at = last
	}
	return Map{Epochs: append(epochs, Epoch{Shards: m.Next, Opened: at})}, nil
}
