package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections counts the open ones, by the agent whose token they have shown last.
type connections struct {
	mu   sync.Mutex
	all  map[net.Conn]connection
	each map[string]int // "": those that have shown no token yet
}

// connection is whose one is, and since when it is open.
type connection struct {
	owner string
	since time.Time
}

func newConnections() *connections {
	return &connections{all: map[net.Conn]connection{}, each: map[string]int{}}
}

type connKey struct{}

// ConnContext is for the field of [http.Server], with ConnState: then the server bounds its connections.
func (s *Server) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnState is for the field of [http.Server]. A connection that is too much is closed.
func (s *Server) ConnState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if over := s.conns.add(c, time.Now()); over != nil {
			_ = over.Close() // nobody was promised anything
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.remove(c)
	}
}

// add counts a connection, and returns the one that is too much; nil if there is none. Where strangers have all of
// their places, the one that has had its place for the longest gives it up, if it had the time to show a token: it may
// hold a connection as long as it likes by requests that need none.
func (cs *connections) add(c net.Conn, now time.Time) (over net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all[c] = connection{since: now}
	cs.each[""]++
	if cs.each[""] <= MaxStrangers && len(cs.all) <= MaxConnections {
		return nil
	}
	over = c
	for other, of := range cs.all {
		if of.owner == "" && now.Sub(of.since) >= HeaderTimeout && of.since.Before(cs.all[over].since) {
			over = other
		}
	}
	if over != c { // it is counted no more, whenever the server gets to know that it is closed
		delete(cs.all, over)
		cs.drop("")
	}
	return over
}

func (cs *connections) remove(c net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if of, ok := cs.all[c]; ok {
		delete(cs.all, c)
		cs.drop(of.owner)
	}
}

func (cs *connections) drop(owner string) {
	if cs.each[owner]--; cs.each[owner] == 0 {
		delete(cs.each, owner)
	}
}

// own gives a request's connection to who asks, and says why it has too many.
func (cs *connections) own(r *http.Request, who caller) *Problem {
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok { // nobody counts them
		return nil
	}
	owner, most := Operator, MaxConnections
	if !who.any {
		owner, most = string(who.agent), MaxAgentConnections
		if who.grant.connections > 0 {
			most = who.grant.connections
		}
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	before, ok := cs.all[c]
	if !ok || before.owner == owner {
		return nil
	}
	if cs.each[owner] >= most {
		p := newProblem(http.StatusTooManyRequests, "",
			"%d connections of agent %s are open, the most that its token may have; use those, or close some",
			cs.each[owner], owner).again()
		p.closes = true
		return p
	}
	cs.drop(before.owner)
	cs.all[c] = connection{owner, before.since}
	cs.each[owner]++
	return nil
}

// whenRevoked calls stop when the token is not in force any more, until what it returns is called.
func (c caller) whenRevoked(stop func()) (unneeded func()) {
	if !c.expires.IsZero() {
		t := time.AfterFunc(time.Until(c.expires), stop)
		return func() { t.Stop() }
	}
	if c.revoked == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-c.revoked:
			stop()
		case <-done:
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}
