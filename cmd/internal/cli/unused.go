package cli

import (
	"net"
	"net/http"
	"sync"
)

// CloseUnused has s close the connections that have had no request yet when it is shut down. Clients make such
// connections in advance, and [http.Server.Shutdown] waits for each until it is five seconds old. Call it after
// s.ConnState is set, and before s serves.
func CloseUnused(s *http.Server) {
	u := &unused{conns: map[net.Conn]struct{}{}, next: s.ConnState}
	s.ConnState = u.state
	s.RegisterOnShutdown(u.end)
}

// unused are the connections of a server that have had no request yet.
type unused struct {
	next  func(net.Conn, http.ConnState)
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

func (u *unused) state(c net.Conn, state http.ConnState) {
	if u.next != nil {
		u.next(c, state)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.ended: // it was accepted while the server closed its listener
		go c.Close() //nolint:errcheck // nobody was promised anything
	default:
		u.conns[c] = struct{}{}
	}
}

func (u *unused) end() {
	u.mu.Lock()
	u.ended = true
	conns := u.conns
	u.conns = map[net.Conn]struct{}{}
	u.mu.Unlock()
	for c := range conns {
		_ = c.Close() // nobody was promised anything
	}
}
