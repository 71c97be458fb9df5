//go:build !linux

package snapshot

import (
	"context"
	"errors"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
)

var errSystem = errors.New("snapshots need Linux")

// Take needs Linux.
func (s *Store) Take(context.Context, *place.Root, Key) (Info, error) {
	return Info{}, unable(errSystem, "the worker's system has none")
}

// After needs Linux.
func (s *Store) After(context.Context, *place.Root, Key, func() error) error { return errSystem }

// Restore needs Linux.
func (s *Store) Restore(context.Context, *place.Root, Wish) (Report, error) {
	return Report{}, notNow("the worker's system has no snapshots")
}

// Overlay needs Linux.
func (s *Store) Overlay(context.Context, *place.Root, Key, string, []Ran) (*place.Root, error) {
	return nil, unable(errSystem, "the worker's system has no overlays")
}

// Standing needs Linux.
func (s *Store) Standing(context.Context, *place.Root, Key, []Ran) (*place.Root, error) {
	return nil, errSystem
}

// Changes needs Linux.
func (s *Store) Changes(context.Context, *place.Root, Key) (*toolyard.Overlay, error) {
	return nil, errSystem
}

// Diff needs Linux.
func (s *Store) Diff(context.Context, *place.Root, Commit, Differ) (*toolyard.Overlay, string, error) {
	return nil, "", notNow("the worker's system has no overlays")
}

// Commit needs Linux.
func (s *Store) Commit(context.Context, *place.Root, Commit) (*toolyard.Overlay, error) {
	return nil, notNow("the worker's system has no overlays")
}

// Drop needs Linux.
func (s *Store) Drop(context.Context, *place.Root, Commit) error {
	return notNow("the worker's system has no overlays")
}

// Sweep has nothing to sweep.
func (s *Store) Sweep(context.Context) error { return nil }
