//go:build !nextversion

package batch

import "github.com/toolyard/toolyard/internal/events"

// applyNext folds what only the next version writes on the batch chain.
func (s *State) applyNext(events.Body) (known bool) { return false }
