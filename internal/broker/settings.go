package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/shard"
)

// The limits of what is stored and sent.
const (
	// MaxPoolBytes is the maximum length of a pool's name.
	MaxPoolBytes = 64
	// MaxInlineBytes is how many bytes of data an event contains itself; longer data is an object, and the event has
	// its dataref. It is half of NATS's default payload, so that headers fit, and any server works.
	MaxInlineBytes = 512 << 10
	// MaxObjectBytes is the maximum size of such an object.
	MaxObjectBytes = 64 << 20
	// MaxChainLength is how many events of one chain are read. An open batch of 10,000 calls that come one by one has
	// that many extensions and may have twice as many group starts, and then there are takeovers.
	MaxChainLength = 40_000
	// MaxQueuedCalls is how many calls may wait in all work queues together.
	MaxQueuedCalls = 1_000_000
	// MaxOpenSubmissions is how many batches all dispatchers together may have taken and not completed.
	MaxOpenSubmissions = 50_000
	// MaxCallsInFlight is how many calls of one route and lane all workers together may have taken and not
	// acknowledged.
	MaxCallsInFlight = 20_000
	// Lanes is how many lanes each route has; each agent uses one at a time.
	Lanes = 8
	// minShardLanes is how many lanes each shard has at least.
	minShardLanes = 2
	// SubmitWait is how long a submission waits for its answer, whatever its sender's own limit is: longer than an
	// election.
	SubmitWait = 30 * time.Second
	// MaxPools is how many pools may have work queues: each has a consumer for each class and lane.
	MaxPools = 256
	// MaxTags is how many tags a worker may have.
	MaxTags = 64
	// MaxWaitingPulls is how many workers may wait for a call of one route and lane.
	MaxWaitingPulls = 8_192
)

// How the NATS servers keep full blocks of the large streams on disk: [Settings.Compression].
const (
	// CompressionNone keeps them as they are.
	CompressionNone = "none"
	// CompressionS2 compresses them.
	CompressionS2 = "s2"
)

// Settings are the times and sizes that all dispatchers, workers and clients of one NATS system share. The process that
// creates the streams chooses them and stores them with the streams; all others read them. Lifetime, MaxStoreBytes
// and Compression may change later ([Settings.With]). The zero Settings are the defaults for one node.
type Settings struct {
	// Replicas is how many servers keep each stream: 1 (the default), 3 or 5.
	Replicas int `json:"replicas"`
	// Shards is how many sets of streams there are; 0 is 1. What belongs to a batch is in one of them.
	Shards int `json:"shards,omitempty"`
	// InMemory keeps the streams in the server's memory: they do not survive the server.
	InMemory bool `json:"in_memory,omitempty"`
	// Lifetime is how long a batch is kept after its submission, including waits for people. Default 3 days.
	Lifetime time.Duration `json:"lifetime_ns"`
	// Slack is how much longer than Lifetime streams keep their messages. Default 1 hour.
	Slack time.Duration `json:"slack_ns"`
	// BatchAckWait is how long an owner may be silent before another dispatcher gets its batch. Default 1.5 s, and 10 s
	// with more than one replica, where an election of 4.5 s must not be mistaken for a dead owner.
	BatchAckWait time.Duration `json:"batch_ack_wait_ns"`
	// CallAckWait is how long a worker may be silent before its call goes to another. Default 3 s, or 10 s.
	CallAckWait time.Duration `json:"call_ack_wait_ns"`
	// WorkerTTL is how long a worker counts as alive after its last heartbeat, in whole seconds. Default 3 s, or 10 s.
	WorkerTTL time.Duration `json:"worker_ttl_ns"`
	// MaxStoreBytes is what all streams together may use on disk, divided into fixed parts. Default 32 GiB.
	MaxStoreBytes int64 `json:"max_store_bytes"`
	// Compression is how the servers keep full blocks of submissions, events, replies and objects on disk:
	// [CompressionNone] (the default) or [CompressionS2]. MaxStoreBytes counts bytes before compression.
	Compression string `json:"compression,omitempty"`
}

// What a worker may do, and when others may act in its place, are fractions of one wait: the worker TTL for its
// registry entry, the call ack wait for a delivery. All of them count from when the last answered heartbeat was sent,
// or from the last sign of life that others received.
//
//	0      1/4    1/2    3/4    7/8     11/8      3/2
//	beat   beat   beat   lease  stop    stopped   patience: others may act
//
// They have an eighth of the wait as margin: see TestLeasesFitTogether.

// Heartbeat is the interval of heartbeats for a message, given the permitted silence.
func Heartbeat(wait time.Duration) time.Duration { return wait / 4 }

// Lease is how long a holder may start and commit after its last answered heartbeat was sent. After that it must prove
// in the log that its claim is still valid.
func Lease(wait time.Duration) time.Duration { return wait * 3 / 4 }

// Stop is when a holder that could not prove that stops its tool.
func Stop(wait time.Duration) time.Duration { return wait * 7 / 8 }

// MaxStopGrace is the maximum of [StopGrace].
const MaxStopGrace = 2 * time.Second

// StopGrace is how long a tool that is told to stop has to return, before its call ends without it.
func StopGrace(wait time.Duration) time.Duration { return min(wait/2, MaxStopGrace) }

// Patience is how long a holder must have been silent before others act in its place.
func Patience(wait time.Duration) time.Duration { return wait * 3 / 2 }

// MaxRoundTrip is the longest round trip to NATS for a worker with such a wait: a heartbeat must be answered well
// before the lease ends that it renews.
func MaxRoundTrip(wait time.Duration) time.Duration { return wait / 4 }

// WithDefaults sets the zero fields to their defaults.
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
	pick(&s.Lifetime, 3*24*time.Hour, 3*24*time.Hour)
	pick(&s.Slack, time.Hour, time.Hour)
	pick(&s.BatchAckWait, 1500*time.Millisecond, 10*time.Second)
	pick(&s.CallAckWait, 3*time.Second, 10*time.Second)
	pick(&s.WorkerTTL, 3*time.Second, 10*time.Second)
	if s.MaxStoreBytes == 0 {
		s.MaxStoreBytes = 32 << 30
	}
	if s.Compression == "" {
		s.Compression = CompressionNone
	}
	return s
}

// KeptFor is how long anything of a batch may stand somewhere: the streams' age, and the slack for clocks that differ.
func (s Settings) KeptFor() time.Duration { return s.Lifetime + 2*s.Slack }

// ShardCount is how many sets of streams there are.
func (s Settings) ShardCount() int { return max(1, s.Shards) }

// PartBytes is the part of the store that each shard has.
func (s Settings) PartBytes() int64 { return s.MaxStoreBytes / int64(s.ShardCount()) }

// ShardOf is the shard of a batch that is submitted now.
func (s Settings) ShardOf(k toolyard.BatchKey) int { return shard.OfBatch(k).Shard(s.ShardCount()) }

// ShardLanes is how many lanes a route has in a shard of a system that was made with so many shards, or raised to so
// many when the shard was made. Together they have as many as a system of one shard, as long as each has two, so that
// what an idle worker asks does not grow with the shards.
func ShardLanes(shards int) int { return max(minShardLanes, Lanes/shards) }

// WithAckWait sets the three waits: for a worker, its registry entry, and a dispatcher, which on one server may be
// silent for half as long. 0 leaves them unchanged.
func (s Settings) WithAckWait(wait time.Duration) Settings {
	if wait == 0 {
		return s
	}
	s.CallAckWait, s.WorkerTTL, s.BatchAckWait = wait, wait, wait
	if s.Replicas <= 1 {
		s.BatchAckWait = wait / 2
	}
	return s
}

// WithReplicas is what a system with these settings becomes on so many servers. Waits that are the defaults of the
// former number become those of the new one; others are as if its call ack wait had been asked for there. 0 leaves all
// as it is.
func (s Settings) WithReplicas(n int) Settings {
	if n == 0 || n == s.Replicas {
		return s
	}
	usual := Settings{Replicas: s.Replicas}.WithDefaults()
	s.Replicas = n
	if s.BatchAckWait == usual.BatchAckWait && s.CallAckWait == usual.CallAckWait && s.WorkerTTL == usual.WorkerTTL {
		s.BatchAckWait, s.CallAckWait, s.WorkerTTL = 0, 0, 0
		return s.WithDefaults()
	}
	return s.WithAckWait(s.CallAckWait)
}

// electionMax is the longest measured gap without publishes after one of three leaders died, rounded up.
const electionMax = 4500 * time.Millisecond

// Check returns an error for relations between the settings that are violated.
func (s Settings) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(s.Replicas == 1 || s.Replicas == 3 || s.Replicas == 5, "replicas is %d; use 1, 3 or 5", s.Replicas)
	must(s.Shards >= 0 && s.Shards <= shard.Max, "shards is %d; use 1 to %d", s.Shards, shard.Max)
	must(s.Lifetime >= time.Minute, "the batch lifetime is %s; use at least 1m", s.Lifetime)
	must(s.Slack >= 10*time.Second, "the slack is %s; use at least 10s", s.Slack)
	for name, wait := range map[string]time.Duration{"batch ack wait": s.BatchAckWait, "call ack wait": s.CallAckWait,
		"worker TTL": s.WorkerTTL} {
		must(wait >= 100*time.Millisecond, "the %s is %s; use at least 100ms", name, wait)
		must(wait < s.Lifetime, "the %s (%s) is not shorter than the batch lifetime (%s)", name, wait, s.Lifetime)
		if s.Replicas > 1 {
			must(wait > 2*electionMax, "the %s is %s; with %d replicas it must be longer than two elections (%s)", name,
				wait, s.Replicas, 2*electionMax)
		}
	}
	must(s.WorkerTTL%time.Second == 0, "the worker TTL is %s; use whole seconds", s.WorkerTTL)
	must(s.MaxStoreBytes >= int64(s.ShardCount())*(64<<20),
		"the store has %d bytes; use at least 64 MiB for each shard", s.MaxStoreBytes)
	must(s.Compression == CompressionNone || s.Compression == CompressionS2, "the compression is %q; use %s or %s",
		s.Compression, CompressionNone, CompressionS2)
	return errors.Join(errs...)
}

// Agree returns an error for wanted settings that differ from those of the system. Zero fields are not compared.
func (s Settings) Agree(want Settings) error {
	var errs []error
	differ := func(name string, have, want any, or string) {
		errs = append(errs, fmt.Errorf("%s: the system was made with %v, not %v: use that, or %s", name, have, want,
			or))
	}
	const (
		remake    = "delete its streams"
		move      = "make it anew from a backup (dispatcher restore --replicas N)"
		moveWaits = "make it anew from a backup (dispatcher restore --ack-wait D)"
	)
	if want.Shards != 0 && want.ShardCount() != s.ShardCount() {
		differ("shards", s.ShardCount(), want.ShardCount(), "change the system (dispatcher settings shards=…)")
	}
	if want.Replicas != 0 && want.Replicas != s.Replicas {
		differ("replicas", s.Replicas, want.Replicas, move)
	}
	for _, d := range []struct {
		name       string
		have, want time.Duration
		or         string
	}{
		{"batch lifetime", s.Lifetime, want.Lifetime, "change the system (dispatcher settings batch-lifetime=…)"},
		{"slack", s.Slack, want.Slack, remake},
		{"batch ack wait", s.BatchAckWait, want.BatchAckWait, moveWaits},
		{"call ack wait", s.CallAckWait, want.CallAckWait, moveWaits},
		{"worker TTL", s.WorkerTTL, want.WorkerTTL, moveWaits},
	} {
		if d.want != 0 && d.want != d.have {
			differ(d.name, d.have, d.want, d.or)
		}
	}
	if want.MaxStoreBytes != 0 && want.MaxStoreBytes != s.MaxStoreBytes {
		differ("bytes of store", s.MaxStoreBytes, want.MaxStoreBytes,
			"change the system (dispatcher settings max-store-bytes=…)")
	}
	if want.Compression != "" && want.Compression != s.Compression {
		differ("compression", s.Compression, want.Compression,
			"change the system (dispatcher settings store-compression=…)")
	}
	return errors.Join(errs...)
}
