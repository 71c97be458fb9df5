package worker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/snapshot"
)

// Broker is what a worker needs of the store.
type Broker interface {
	broker.Log
	broker.Queue
	broker.Registry
	broker.Blobs
	broker.Asking
	broker.Children
	broker.Signals
	broker.Backgrounds
	broker.Link
}

// Snapshots is where a worker keeps what workspaces were: a [snapshot.Store]. The root of a workspace for which the
// worker has no directory is nil.
type Snapshots interface {
	Keep(d time.Duration)
	Dir() string
	Take(ctx context.Context, root *place.Root, k snapshot.Key) (snapshot.Info, error)
	After(ctx context.Context, root *place.Root, k snapshot.Key, act func() error) error
	Overlay(ctx context.Context, root *place.Root, k snapshot.Key, by string, ran []snapshot.Ran) (*place.Root, error)
	Standing(ctx context.Context, root *place.Root, k snapshot.Key, ran []snapshot.Ran) (*place.Root, error)
	Changes(ctx context.Context, root *place.Root, k snapshot.Key) (*toolyard.Overlay, error)
	Sweep(ctx context.Context) error
}
