package batch

import (
	"testing"

	"github.com/toolyard/toolyard"
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
	s = State{Submission: &toolyard.Batch{}}
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("handed in whole, it is %q", got)
	}
}
