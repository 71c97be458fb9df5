package broker

import (
	"time"
)

// MaxRoundTrip is how long the way to NATS and back may be for a worker in a system with such a wait: a heartbeat, and its answer,
// must come well before the lease ends that it renews.
func MaxRoundTrip(wait time.Duration) time.Duration { return wait / 4 }

// WatchState says how far what a watch has told can be trusted.
type WatchState string

// The states of a watch.
const (
	// WatchDeaf: the connection is lost, or the watch is begun anew. What it told may be out of date, and what it did not
	// tell means nothing.
	WatchDeaf WatchState = "deaf"
	// WatchCaughtUp: all that was there when the watch began, or began anew, was told.
	WatchCaughtUp WatchState = "caught up"
)
