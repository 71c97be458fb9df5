package broker

import (
	"errors"
	"fmt"
	"time"
)

// Limits of what is stored and moved.
const (
	// MaxPoolBytes is the length of a pool's name.
	MaxPoolBytes = 64
	// MaxInlineBytes is how many bytes of data an event carries itself; what is longer travels as an object, and the
	// event has its dataref. Half of NATS's default payload, so that headers and any server fit.
	MaxInlineBytes = 512 << 10
	// MaxObjectBytes is how long such an object may be.
	MaxObjectBytes = 64 << 20
	// MaxChainLength is how many events of one chain are read. A batch of 10,000 exclusive calls has that many group
	// starts, and takeovers come on top.
	MaxChainLength = 20_000
	// MaxQueuedCalls is how many calls may wait in all work queues together.
	MaxQueuedCalls = 1_000_000
	// MaxOpenSubmissions is how many batches all dispatchers together may have taken and not completed.
	MaxOpenSubmissions = 50_000
	// MaxCallsInFlight is how many calls of one route all workers together may have taken and not acknowledged.
	MaxCallsInFlight = 20_000
	// MaxWaitingPulls is how many workers' slots may wait for a call of one route.
	MaxWaitingPulls = 8_192
)

// Settings are the times and sizes that all dispatchers and workers on one NATS system share. The zero Settings are
// the defaults for one node.
type Settings struct {
	// Replicas is how many servers keep each stream: 1 (the default), 3 or 5.
	Replicas int
	// Lifetime is how long a batch is kept, from its submission, waits for people included. Default 7 days.
	Lifetime time.Duration
	// Slack is how much longer than Lifetime streams keep their messages. Default 1 hour.
	Slack time.Duration
	// BatchAckWait is how long an owner may be silent before another dispatcher gets its batch. Default 1.5 s, and 10 s
	// with more than one replica, where an election of 4.5 s must not look like a death.
	BatchAckWait time.Duration
	// CallAckWait is how long a worker may be silent before its call is given to another. Default 3 s, or 10 s.
	CallAckWait time.Duration
	// WorkerTTL is how long a worker counts as alive after its last heartbeat: whole seconds. Default 3 s, or 10 s.
	WorkerTTL time.Duration
	// MaxStoreBytes is what all streams together may use on disk; they share it by fixed parts. Default 16 GiB.
	MaxStoreBytes int64
}

// Heartbeat is how often who works on a message says so, given how long it may be silent.
func Heartbeat(wait time.Duration) time.Duration { return wait / 4 }

// Lease is how long a holder may go on after its last answered heartbeat was sent: less than the wait, so that it stops
// before anyone else may act.
func Lease(wait time.Duration) time.Duration { return wait * 3 / 4 }

// WithDefaults fills in the fields that are zero.
func (s Settings) WithDefaults() Settings {
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	one := s.Replicas == 1
	pick := func(d *time.Duration, single, many time.Duration) {
		switch {
		case *d != 0:
		case one:
			*d = single
		default:
			*d = many
		}
	}
	pick(&s.Lifetime, 7*24*time.Hour, 7*24*time.Hour)
	pick(&s.Slack, time.Hour, time.Hour)
	pick(&s.BatchAckWait, 1500*time.Millisecond, 10*time.Second)
	pick(&s.CallAckWait, 3*time.Second, 10*time.Second)
	pick(&s.WorkerTTL, 3*time.Second, 10*time.Second)
	if s.MaxStoreBytes == 0 {
		s.MaxStoreBytes = 16 << 30
	}
	return s
}

// electionMax is the longest gap without publishes that was measured after a leader of three died, rounded up.
const electionMax = 4500 * time.Millisecond

// Check reports which relation between the settings does not hold.
func (s Settings) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(s.Replicas == 1 || s.Replicas == 3 || s.Replicas == 5, "replicas is %d; use 1, 3 or 5", s.Replicas)
	must(s.Lifetime >= time.Minute, "the batch lifetime is %s; use at least 1m", s.Lifetime)
	must(s.Slack >= 10*time.Second, "the slack is %s; use at least 10s", s.Slack)
	for name, wait := range map[string]time.Duration{"batch ack wait": s.BatchAckWait, "call ack wait": s.CallAckWait, "worker TTL": s.WorkerTTL} {
		must(wait >= 100*time.Millisecond, "the %s is %s; use at least 100ms", name, wait)
		must(wait < s.Lifetime, "the %s (%s) is not shorter than the batch lifetime (%s)", name, wait, s.Lifetime)
		if s.Replicas > 1 {
			must(wait > 2*electionMax, "the %s is %s; with %d replicas it must be longer than two elections (%s)", name, wait, s.Replicas, 2*electionMax)
		}
	}
	must(s.WorkerTTL%time.Second == 0, "the worker TTL is %s; use whole seconds", s.WorkerTTL)
	must(s.MaxStoreBytes >= 64<<20, "the store has %d bytes; use at least 64 MiB", s.MaxStoreBytes)
	return errors.Join(errs...)
}
