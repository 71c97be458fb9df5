package batch

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAnOpenBatchIsOpenBeforeItsPlan: until it is closed, or refused.
func TestAnOpenBatchIsOpenBeforeItsPlan(t *testing.T) {
	s := State{Submission: &toolyard.Batch{Open: true}}
	if got := s.Status(); got != toolyard.StatusOpen {
		t.Errorf("opened, it is %q", got)
	}
	s.InputClosed = true
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("closed, it is %q", got)
	}
	s.Plan = &events.Planned{}
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("closed, and its owner has not seen it, it is %q", got)
	}
	s = State{Submission: &toolyard.Batch{}}
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("handed in whole, it is %q", got)
	}
}
