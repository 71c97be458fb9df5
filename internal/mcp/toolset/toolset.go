// Package toolset offers the tools of an MCP server as ours.
//
// A [Toolset] keeps one server available: it starts it or connects to it, lists its tools, makes declarations from
// them, and lists them again when the server says that they have changed. A call goes to the current session; without
// one, it ends as dependency_unavailable at once.
//
// Authority: the operator's manifest. A server's annotations are used only if the manifest trusts the server; otherwise
// a tool has the strictest flags. A server can only offer tools: its own requests (sampling, roots) are declined, and
// so is elicitation unless the manifest allows it (elicit.go).
//
// Failure: whatever a server does wrong affects only its own session and its own calls. Lists, messages, their rate and
// every wait have limits (limits.go). A broken session is restarted, with a growing pause.
package toolset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// Options say which server it is, and how to reach it.
type Options struct {
	Server manifest.Server
	// Dir is the working directory of a started server, unless the manifest names one. Empty: the worker's.
	Dir string
	// Lookup finds an environment variable of the worker: a credential, or one that every program gets. Required.
	Lookup func(name string) (string, bool)
	// Version is our version in the handshake. Empty: "dev".
	Version string
	// MinPause and MaxPause are the shortest and the longest pause before a session is restarted. 0: [DefaultMinPause]
	// and [DefaultMaxPause].
	MinPause, MaxPause time.Duration
	// Log gets errors. Nil: [slog.Default].
	Log *slog.Logger
}

// Toolset is the tools of one server. Make it with [New].
type Toolset struct {
	o       Options
	log     *slog.Logger
	changed chan struct{}
	settled chan struct{}
	settle  func()
	// healthyAfter is [healthyAfter], but in tests.
	healthyAfter time.Duration

	mu      sync.Mutex
	session *session // nil while there is none
	offered offered
	down    error     // why there is no session
	retryAt time.Time // when the next one is tried
	// startTook is how long the session before took to have its tools.
	startTook time.Duration
}

// New makes a toolset. It fails if a credential is missing or a setting is out of bounds. It does not contact the
// server yet.
func New(o Options) (*Toolset, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Version = cmp.Or(o.Version, "dev")
	o.MinPause, o.MaxPause = cmp.Or(o.MinPause, DefaultMinPause), cmp.Or(o.MaxPause, DefaultMaxPause)
	if o.Lookup == nil {
		return nil, errors.New("toolset: Lookup is nil")
	}
	for _, name := range o.Server.Credentials {
		if v, ok := o.Lookup(name); !ok || v == "" {
			return nil,
				fmt.Errorf("server %s: the credential %s is not in the environment; set it, or take it out of the "+
					"manifest", o.Server.Name, name)
		}
	}
	t := &Toolset{
		o: o, log: o.Log.With("server", o.Server.Name), changed: make(chan struct{}, 1), settled: make(chan struct{}),
		down: errors.New("it was not started yet"), healthyAfter: healthyAfter,
	}
	t.settle = sync.OnceFunc(func() { close(t.settled) })
	return t, nil
}

// Name is the server's.
func (t *Toolset) Name() string { return t.o.Server.Name }

// Origin is [registry.MCP]: a tool of any other origin wins where names collide.
func (t *Toolset) Origin() registry.Origin { return registry.MCP }

// Slots is how many calls may run on the server at a time.
func (t *Toolset) Slots() int { return t.o.Server.MaxInFlight }

// Settled is closed when the first session has its tools, or the first attempt has failed.
func (t *Toolset) Settled() <-chan struct{} { return t.settled }

// Changed receives a value when the tools may have changed.
func (t *Toolset) Changed() <-chan struct{} { return t.changed }

// Tools are those that the server listed last, nil before the first list. They stay while it is down; their calls then
// say so.
func (t *Toolset) Tools() []tool.Tool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offered.tools
}

// Remarks say which of the listed tools are left out or altered, and why.
func (t *Toolset) Remarks() []registry.Remark {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offered.remarks
}

// Down says why there is no session; nil while there is one.
func (t *Toolset) Down() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}

// Run begins sessions, one after the other, until ctx ends.
func (t *Toolset) Run(ctx context.Context) {
	defer t.settle()
	pause := t.o.MinPause
	for attempt := 0; ctx.Err() == nil; attempt++ {
		// A server of an older revision may not answer the newest handshake at all, so every other attempt uses the
		// older one.
		offered, err := t.runSession(ctx, attempt%2 == 1)
		if ctx.Err() != nil {
			return
		}
		if !offered.IsZero() && time.Since(offered) > t.healthyAfter {
			pause, attempt = t.o.MinPause, -1
		}
		t.setDown(err, pause)
		t.settle() // callers that wait get the reason
		t.log.Warn("an MCP server has no session; it is tried again", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, t.o.MaxPause)
	}
}

// runSession runs one session, from its start until it breaks. It returns since when the session had its tools, the
// zero time if it had none, and why it ended.
func (t *Toolset) runSession(ctx context.Context, legacy bool) (offered time.Time, err error) {
	began := time.Now()
	s, err := t.open(ctx, legacy)
	if err != nil {
		return offered, err
	}
	defer func() {
		if end := s.close(); !errors.Is(err, end) { // which may have been the reason already
			err = errors.Join(err, end)
		}
	}()
	tools, err := s.list(ctx)
	if err != nil {
		return offered, err
	}
	offered = time.Now()
	t.started(offered.Sub(began))
	t.offer(s, tools)
	t.settle()
	var again <-chan time.Time // when a list is read again that could not be read
	retry := relistPause
	for {
		select {
		case <-ctx.Done():
			return offered, context.Cause(ctx)
		case <-s.life.Done():
			return offered, context.Cause(s.life)
		case <-s.relist:
		case <-again:
		}
		tools, err := s.list(ctx)
		if err != nil {
			t.log.Warn("the changed list of tools could not be read; the one before stands, and it is tried again",
				"error", err, "pause", retry)
			again, retry = time.After(retry), min(2*retry, DefaultMaxPause)
		} else {
			again, retry = nil, relistPause
			t.offer(s, tools)
		}
		select { // a server whose list changes all the time
		case <-time.After(relistPause):
		case <-s.life.Done():
		case <-ctx.Done():
		}
	}
}

// offer publishes a session's tools.
func (t *Toolset) offer(s *session, list offered) {
	t.mu.Lock()
	known := slices.Equal(t.offered.remarks, list.remarks) // the same list may be read again and again
	t.session, t.offered, t.down = s, list, nil
	t.mu.Unlock()
	if !known {
		list.log(t.log)
	}
	select {
	case t.changed <- struct{}{}:
	default: // whoever looks will see these
	}
}

func (t *Toolset) started(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startTook = took
}

func (t *Toolset) setDown(err error, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session, t.down, t.retryAt = nil, err, time.Now().Add(pause)
}

// current returns the session for calls, or the failure of a call without one.
func (t *Toolset) current() (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session != nil && t.session.life.Err() == nil && !t.session.isBroken() {
		return t.session, nil
	}
	down, next := t.down, t.retryAt
	if t.session != nil { // its process may not have ended yet
		down, next = cmp.Or(context.Cause(t.session.life), errEnded), time.Now().Add(t.o.MinPause)
	}
	e := tool.AsError(tool.Unavailable(down, "The MCP server %q is not there; the call was not made.", t.o.Server.Name))
	// No sooner than a session can be there that begins now, or is beginning: failures at once would open the breaker.
	e.RetryAfterMS = max(1, t.o.MinPause.Milliseconds(), (time.Until(next) + t.startTook).Milliseconds())
	return nil, e
}
