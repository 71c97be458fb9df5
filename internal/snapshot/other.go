//go:build !linux

package snapshot

import (
	"context"
	"errors"

	"github.com/toolyard/toolyard/internal/place"
)

var errSystem = errors.New("snapshots need Linux")

// Take needs Linux.
func (s *Store) Take(context.Context, *place.Root, Key) (Info, error) {
	return Info{}, unable(errSystem, "the worker's system has none")
}

// After needs Linux.
func (s *Store) After(context.Context, *place.Root, Key) error { return errSystem }

// Restore needs Linux.
func (s *Store) Restore(context.Context, *place.Root, Wish) (Report, error) {
	return Report{}, notNow("the worker's system has no snapshots")
}

// Sweep has nothing to sweep.
func (s *Store) Sweep(context.Context) error { return nil }
