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

// freshFor is how old the map of a dispatcher may be when a submission is stored that it takes. Less than [Grace]: no
// raise that the dispatcher has not seen can have made the submission late.
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

// Shards is how many shards there are.
func (m Map) Shards() int {
	if len(m.Epochs) == 0 {
		return 1
	}
	return m.Epochs[len(m.Epochs)-1].Shards
}

// Served is how many shards dispatchers and workers serve.
func (m Map) Served() int { return max(m.Shards(), m.Next) }

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
