package sandbox

import (
	"context"
	"sync"
)

// Stamp collects what isolated the commands that ran under a context. Backends write it themselves, so that no tool can
// forget to, or claim isolation that it did not use. The zero Stamp says that nothing was isolated.
type Stamp struct {
	mu  sync.Mutex
	ran map[string]bool
}

type stampKey struct{}

// WithStamp returns a context in which every command that runs marks the stamp.
func WithStamp(ctx context.Context) (context.Context, *Stamp) {
	s := &Stamp{}
	return context.WithValue(ctx, stampKey{}, s), s
}

// Mark records that a command was started, and what isolates it. Backends call it, and tests that act as one.
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

// Isolation is the word for the result: a backend's name if every command ran in it, otherwise [IsolationNone].
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
