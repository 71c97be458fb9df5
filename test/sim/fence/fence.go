// Package fence says which fences of the protocol are taken away in a simulation. Only the mutated copies of the code
// that the simulation's test of its teeth builds ask it: nothing else of the repository imports it.
package fence

import (
	"maps"
	"sync"
)

var (
	mu    sync.Mutex
	off   = map[string]bool{}
	asked = map[string]bool{}
)

// Off reports whether a fence is taken away. A mutation asks where the fence makes a difference, and nowhere else.
func Off(name string) bool {
	mu.Lock()
	defer mu.Unlock()
	asked[name] = true
	return off[name]
}

// Take takes fences away, puts all others back, and forgets which were asked for.
func Take(names ...string) {
	mu.Lock()
	defer mu.Unlock()
	clear(off)
	clear(asked)
	for _, n := range names {
		off[n] = true
	}
}

// Asked returns the fences that made a difference since the last Take, or would have.
func Asked() map[string]bool {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(asked)
}
