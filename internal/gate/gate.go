// Package gate is a lock that may be held while the network is waited for.
//
// Authority: none. Ordering: whoever asks first gets it first. Failure: whoever does not give it back keeps all others
// out, as with a mutex.
package gate

import "sync"

// Gate is such a lock. The zero Gate is open. Who waits for it waits on a channel, so that testing/synctest sees that
// nothing of it runs; of a goroutine that waits for a mutex it does not, and a simulation stands still for ever.
type Gate struct {
	once sync.Once
	in   chan struct{}
}

// Lock takes it.
func (g *Gate) Lock() {
	g.once.Do(func() { g.in = make(chan struct{}, 1) })
	g.in <- struct{}{}
}

// Unlock gives it back.
func (g *Gate) Unlock() { <-g.in }
