package natsbroker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

func sessionKey(a toolyard.Agent, s toolyard.Session) string {
	return broker.Escape(string(a)) + "." + broker.Escape(string(s))
}

// Session reads a session; one that was never changed is new. One that is damaged is a [*LostError]: it may say that
// batches are to stop.
func (b *Broker) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (broker.Session, error) {
	key := sessionKey(a, s)
	v, _, revision, err := load[broker.Session](ctx, b.sessions, key)
	if err == nil && revision == 0 {
		var there bool
		there, err = b.fresh.check(key, b.Reconnects(),
			func() (bool, error) { return b.keyLost(ctx, bucketSession, key) })
		if there {
			v, _, revision, err = load[broker.Session](ctx, b.sessions, key)
		}
	}
	if revision > 0 {
		b.fresh.forget(key)
	}
	if err != nil {
		return v, fmt.Errorf("read session %s of %s: %w", s, a, err)
	}
	return v, nil
}

// maxFresh is how many sessions a process knows to be new.
const maxFresh = 4_096

// fresh are keys of sessions that were not there when somebody looked what the server counts, over one connection: most
// sessions are never changed, and are read for each of their batches. What is stored later is read from the server's
// memory, or was read before, until the server is started again.
type fresh struct {
	mu         sync.Mutex
	reconnects uint64
	keys       map[string]bool
}

// check returns what lost says of a key that reads as missing, unless it is known that there is none.
func (f *fresh) check(key string, reconnects uint64, lost func() (there bool, err error)) (there bool, err error) {
	f.mu.Lock()
	known := f.reconnects == reconnects && f.keys[key]
	f.mu.Unlock()
	if known {
		return false, nil
	}
	if there, err = lost(); there || err != nil {
		return there, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil || f.reconnects != reconnects || len(f.keys) >= maxFresh {
		f.reconnects, f.keys = reconnects, map[string]bool{}
	}
	f.keys[key] = true
	return false, nil
}

// forget forgets a key that is there.
func (f *fresh) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, key)
}

// ChangeSession changes a session with a compare-and-set; change may be called several times. A change that exceeds a
// limit wraps [ErrFull], and is not stored.
func (b *Broker) ChangeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session,
	change func(*broker.Session)) (broker.Session, error) {
	v, _, err := swap(ctx, b, b.sessions, sessionKey(a, s), seen[broker.Session]{}, false,
		func(v broker.Session) (broker.Session, error) {
			before := v.Changed
			v.Changed = time.Time{}
			change(&v)
			v.Changed = before
			if err := v.Check(); err != nil {
				return v, err
			}
			v.Changed = time.Now().UTC()
			return v, nil
		})
	if err != nil {
		return v, fmt.Errorf("change session %s of %s: %w", s, a, err)
	}
	return v, nil
}
