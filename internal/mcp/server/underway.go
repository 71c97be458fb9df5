package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
)

// errSessionOver is why a call ends whose client has ended its session.
var errSessionOver = errors.New("the client has ended its session")

// underWay are the calls of the sessions that are waited for: ending a session ends them. The library waits for them
// instead.
type underWay struct {
	mu    sync.Mutex
	calls map[heldSession]map[*context.CancelCauseFunc]bool
	// ending counts the requests that end a session and are not answered: what comes beside them ends at once.
	ending map[heldSession]int
}

// heldSession is a session of an agent. Of another agent's nothing is ended.
type heldSession struct {
	agent toolyard.Agent
	id    string
}

// enter returns a context for a call of a session, which ends with the session; leave is for when the call is over. A
// request that stands alone has no session.
func (u *underWay) enter(ctx context.Context, agent toolyard.Agent, id string) (of context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if id == "" {
		return ctx, func() { cancel(nil) }
	}
	k := heldSession{agent, id}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[heldSession]map[*context.CancelCauseFunc]bool{}
	}
	if u.calls[k] == nil {
		u.calls[k] = map[*context.CancelCauseFunc]bool{}
	}
	u.calls[k][&cancel] = true
	if u.ending[k] > 0 {
		cancel(errSessionOver)
	}
	return ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if delete(u.calls[k], &cancel); len(u.calls[k]) == 0 {
			delete(u.calls, k)
		}
		cancel(nil)
	}
}

// end ends the calls of a session, and those that come until ended is called: the library knows the session until then,
// and waits for them.
func (u *underWay) end(agent toolyard.Agent, id string) (ended func()) {
	k := heldSession{agent, id}
	u.mu.Lock()
	defer u.mu.Unlock()
	for cancel := range u.calls[k] {
		(*cancel)(errSessionOver)
	}
	if u.ending == nil {
		u.ending = map[heldSession]int{}
	}
	u.ending[k]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.ending[k]--; u.ending[k] == 0 {
			delete(u.ending, k)
		}
	}
}

// unanswered counts the requests over HTTP whose answers are on their way.
type unanswered struct {
	mu    sync.Mutex
	count int
	// none is closed when there are none any more; nil: nobody waits for that.
	none chan struct{}
}

// enter counts a request until leave is called, once.
func (u *unanswered) enter() (leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.count--; u.count == 0 && u.none != nil {
			close(u.none)
			u.none = nil
		}
	}
}

// wait waits until there are none, for a time at most.
func (u *unanswered) wait(atMost time.Duration) {
	u.mu.Lock()
	if u.count == 0 {
		u.mu.Unlock()
		return
	}
	if u.none == nil {
		u.none = make(chan struct{})
	}
	none := u.none
	u.mu.Unlock()
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
	}
}
