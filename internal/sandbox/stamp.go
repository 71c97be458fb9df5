package sandbox

import (
	"context"
	"sync"
)

// Stamp collects what stood around the commands that ran under a context. Backends write it themselves, so that no
// tool can forget to, or claim what it only could have had. The zero Stamp says that nothing did.
type Stamp struct {
	mu  sync.Mutex
	ran map[string]bool
}

type stampKey struct{}

// WithStamp returns a context under which every command that is run leaves its mark on the stamp.
func WithStamp(ctx context.Context) (context.Context, *Stamp) {
	s := &Stamp{}
	return context.WithValue(ctx, stampKey{}, s), s
}

// Mark notes that a command was started, and what stands around it. Backends call it, and tests that stand for one.
func Mark(ctx context.Context, isolation string) {
	if s, ok := ctx.Value(stampKey{}).(*Stamp); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ran == nil {
			s.ran = map[string]bool{}
		}
		s.ran[isolation] = true
	}
}

// Isolation is the word for the result: a backend's name when every command ran in it, else [IsolationNone].
func (s *Stamp) Isolation() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ran) == 1 {
		for name := range s.ran {
			return name
		}
	}
	return IsolationNone
}
