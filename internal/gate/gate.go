// Package gate is a lock that may be held while the network is waited for.
//
// Authority: none. Ordering: whoever asks first gets it first. Failure: whoever does not give it back keeps all others
// out, as with a mutex.
package gate

import (
	"context"
	"sync"
)

// Gate is such a lock. The zero Gate is open. Who waits for it waits on a channel, so that testing/synctest sees that
// nothing of it runs; of a goroutine that waits for a mutex it does not, and a simulation stands still for ever.
type Gate struct {
	once sync.Once
	in   chan struct{}
}

func (g *Gate) ready() { g.once.Do(func() { g.in = make(chan struct{}, 1) }) }

// Lock takes it.
func (g *Gate) Lock() {
	g.ready()
	g.in <- struct{}{}
}

// LockWithin takes it, unless the context ends before: then it returns the context's cause, and has not taken it.
func (g *Gate) LockWithin(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.ready()
	select {
	case g.in <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock gives it back.
func (g *Gate) Unlock() { <-g.in }
