// Package breaker stops calls to a dependency that is down: after a few infrastructure failures in a row it refuses
// calls at once instead of trying them, and lets one probe through after some time.
//
// Each worker has its own breakers and decides about them. The others learn a worker's findings from a snapshot
// ([Breakers.OpenUntil]) in its heartbeat. They impose it ([Breakers.Impose]) until its time has passed, and then probe
// for themselves. A worker's snapshot does not contain states that were imposed on it: otherwise two workers would keep
// each other's breakers open forever.
//
// State machine of one dependency: closed, open (tripped here, or imposed), half-open (one probe at a time). gobreaker,
// which uses its own clock, makes the transitions of a trip.
package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Defaults and limits.
const (
	DefaultTripAfter       = 5                // infrastructure failures in a row
	DefaultOpenFor         = 30 * time.Second // from the trip to the first probe
	DefaultMaxDependencies = 1_024            // dependencies watched at once
	MaxSnapshot            = 64               // open breakers in a snapshot
	DefaultProbeRetryAfter = time.Second      // retryAfter while a probe is running
)

// Options are the settings. The zero value means the defaults.
type Options struct {
	// TripAfter is how many infrastructure failures in a row trip a breaker. 0: [DefaultTripAfter].
	TripAfter uint32
	// OpenFor is how long a tripped breaker refuses everything. It also bounds what other workers can impose, so that a
	// wrong clock cannot close a dependency for long. 0: [DefaultOpenFor].
	OpenFor time.Duration
	// MaxDependencies bounds the memory: past it the least recently used breaker is dropped, a closed one if there is
	// one. Calls to a dropped dependency are tried again. 0: [DefaultMaxDependencies].
	MaxDependencies int
	// Now is the clock of snapshots, of imposed states and of retryAfter. gobreaker has no such option: [time.Now]
	// decides when a tripped breaker becomes half-open. Nil: [time.Now].
	Now func() time.Time
}

// Outcome is what a call reveals about its dependency.
type Outcome string

// The outcomes.
const (
	// Answered: the dependency worked. It resets the count and closes a half-open breaker.
	Answered Outcome = "answered"
	// Failed: an infrastructure failure. Only these count towards a trip.
	Failed Outcome = "failed"
	// Unrelated: the call reveals nothing, because it was canceled, refused, or the model's own mistake. Another probe
	// may start.
	Unrelated Outcome = "unrelated"
)

// ErrOpen is wrapped by [Breakers.Allow] while a dependency counts as down.
var ErrOpen = errors.New("the circuit breaker is open")

// Breakers are the circuit breakers of one worker, by the name of the dependency. They are safe for concurrent use.
type Breakers struct {
	opts Options

	mu   sync.Mutex
	deps map[string]*dependency
	tick uint64
}

type dependency struct {
	cb *gobreaker.TwoStepCircuitBreaker[struct{}]
	// openUntil is when the breaker's own trip ends. gobreaker's callback writes it under mu of Breakers.
	openUntil time.Time
	// imposed is until when other workers consider the dependency to be down. It stays set after that time until a
	// probe has succeeded.
	imposed time.Time
	probing bool
	// trip makes the next failure trip the breaker, whatever the count.
	trip bool
	used uint64
}

// New makes breakers that are all closed.
func New(opts Options) *Breakers {
	if opts.TripAfter == 0 {
		opts.TripAfter = DefaultTripAfter
	}
	if opts.OpenFor <= 0 {
		opts.OpenFor = DefaultOpenFor
	}
	if opts.MaxDependencies <= 0 {
		opts.MaxDependencies = DefaultMaxDependencies
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Breakers{opts: opts, deps: map[string]*dependency{}}
}

// Allow reports whether a call to the dependency may be tried. If it may, the caller must call done exactly once when
// it knows the outcome. Calling done again does nothing; never calling it blocks a half-open breaker. If the call may
// not be tried, err wraps [ErrOpen], and retryAfter, more than 0, says how long to wait.
func (b *Breakers) Allow(dep string) (done func(Outcome), retryAfter time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.find(dep)
	now := b.opts.Now()
	probe := false
	if !d.imposed.IsZero() {
		if wait := d.imposed.Sub(now); wait > 0 {
			return nil, wait, fmt.Errorf("%s: %w, as another worker found", dep, ErrOpen)
		}
		if d.probing {
			return nil, DefaultProbeRetryAfter, fmt.Errorf("%s: %w, a probe is out", dep, ErrOpen)
		}
		probe = true
	}
	report, err := d.cb.Allow()
	switch {
	case errors.Is(err, gobreaker.ErrTooManyRequests):
		return nil, DefaultProbeRetryAfter, fmt.Errorf("%s: %w, a probe is out", dep, ErrOpen)
	case err != nil:
		return nil, max(d.openUntil.Sub(now), time.Millisecond), fmt.Errorf("%s: %w", dep, ErrOpen)
	}
	d.probing = d.probing || probe
	reported := false
	return func(o Outcome) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if reported {
			return
		}
		reported = true
		if probe {
			d.probing = false
			switch o {
			case Answered:
				d.imposed = time.Time{}
			case Failed: // the others were right: from here on it is this worker's own trip
				d.imposed, d.trip = time.Time{}, true
			}
		}
		switch o {
		case Answered:
			report(nil)
		case Failed:
			report(errFailed)
		default: // what nobody can read proves nothing
			report(errExcluded)
		}
		d.trip = false
	}, 0, nil
}

// errExcluded tells gobreaker to ignore a call, errFailed that it failed.
var (
	errExcluded = errors.New("unrelated")
	errFailed   = errors.New("infrastructure failure")
)

// find returns the dependency's state, and creates it if needed. b.mu is held.
func (b *Breakers) find(dep string) *dependency {
	b.tick++
	if d, ok := b.deps[dep]; ok {
		d.used = b.tick
		return d
	}
	if len(b.deps) >= b.opts.MaxDependencies {
		b.evict()
	}
	d := &dependency{used: b.tick}
	d.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        dep,
		MaxRequests: 1, // half-open: one probe
		Timeout:     b.opts.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return d.trip || c.ConsecutiveFailures >= b.opts.TripAfter },
		IsExcluded:  func(err error) bool { return errors.Is(err, errExcluded) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			d.openUntil = time.Time{}
			if to == gobreaker.StateOpen {
				d.openUntil = b.opts.Now().Add(b.opts.OpenFor)
			}
		},
	})
	b.deps[dep] = d
	return d
}

// evict drops the least recently used breaker: a closed one if there is one, otherwise an open one. Names may come
// from a model, and many dead ones must not prevent others from being tried. b.mu is held.
func (b *Breakers) evict() {
	closed, open := "", ""
	for name, d := range b.deps {
		oldest := &open
		if d.imposed.IsZero() && d.cb.State() == gobreaker.StateClosed {
			oldest = &closed
		}
		if *oldest == "" || d.used < b.deps[*oldest].used {
			*oldest = name
		}
	}
	delete(b.deps, cmp.Or(closed, open))
}

// OpenUntil is the snapshot for the other workers: the dependencies that this worker itself found to be down, and until
// when it tries none of them. If there are more than [MaxSnapshot], it has those whose time ends last. It is empty, not
// nil, if there are none.
func (b *Breakers) OpenUntil() map[string]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := map[string]time.Time{}
	now := b.opts.Now()
	for name, d := range b.deps {
		if d.openUntil.After(now) {
			open[name] = d.openUntil
		}
	}
	if len(open) <= MaxSnapshot {
		return open
	}
	names := slices.SortedFunc(maps.Keys(open), func(x, y string) int {
		return cmp.Or(open[y].Compare(open[x]), cmp.Compare(x, y))
	})
	for _, name := range names[MaxSnapshot:] {
		delete(open, name)
	}
	return open
}

// Impose applies what another worker found: calls are refused until then, at most for [Options.OpenFor] from now, and
// after that one probe at a time until one succeeds. A time that has passed changes nothing.
func (b *Breakers) Impose(dep string, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.opts.Now()
	if !until.After(now) {
		return
	}
	if limit := now.Add(b.opts.OpenFor); until.After(limit) {
		until = limit
	}
	if d := b.find(dep); until.After(d.imposed) {
		d.imposed = until
	}
}
