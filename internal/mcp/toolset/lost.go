package toolset

import (
	"sync"
	"time"
)

// lost says when the list is read again because a server may have said something between two streams. A server may end
// each stream at once. So that is no more often than every [lastingAfter]; but behind the last stream it is read again,
// however soon that came, since nothing else would tell of what was lost.
type lost struct {
	mu   sync.Mutex
	last time.Time // when it was read again
	due  bool
}

// follows notes that a stream is there, and not the first, and returns in how long the list is to be read again for it.
// ok is false while a reading is due.
func (l *lost) follows(now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due {
		return 0, false
	}
	l.due = true
	if l.last.IsZero() {
		return 0, true
	}
	return max(0, lastingAfter-now.Sub(l.last)), true
}

// read notes that the list is read again.
func (l *lost) read(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.due = now, false
}

// missed has the list read again when a stream is there that follows another one.
func (s *sender) missed() {
	wait, ok := s.lost.follows(time.Now())
	if !ok {
		return
	}
	again := func() {
		s.lost.read(time.Now())
		if s.session.Err() == nil {
			s.relist()
		}
	}
	if wait == 0 {
		again()
		return
	}
	time.AfterFunc(wait, again)
}
