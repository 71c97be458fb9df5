//go:build linux

package faults

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// TestWorkerDiesInACommit (W14): another worker commits the overlay to the end, and before that nothing was changed.
func TestWorkerDiesInACommit(t *testing.T) {
	cell(t, "W14", func(s *system) rules {
		s.basic()
		u := s.undoable()
		var victim *process
		armed := fmt.Sprintf("%s=kill@%d", failpoint.CommitPartly, 1+s.rand.IntN(u.files))
		s.together(func() { victim = u.worker(armed) }, func() { s.worker("worker", "") })
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		b := u.writes("writes")
		b.Options = toolyard.Options{Overlay: true}
		for i, r := range l.extra(b).Results {
			if r.IsError || r.Overlay == nil || r.Overlay.Changed != i+1 {
				s.t.Errorf("call %d: %s %s %v", i, r.Code, r.Error, r.Overlay)
			}
		}
		u.is("before", nil)
		commit := toolyard.Batch{Agent: "dan", ID: "commit", Workspace: "dan", Options: toolyard.Options{Undo: true},
			Calls: []toolyard.Call{{Tool: toolyard.OverlayTool,
				Input: raw(map[string]any{"batch": "writes", "action": "commit"})}}}
		done := make(chan toolyard.Result, 1)
		go func() { done <- l.extra(commit).Results[0] }()
		s.killedAt(victim, failpoint.CommitPartly)
		s.faultOver()
		u.worker("")
		if r := <-done; r.IsError || r.Attempts != 2 {
			s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
		}
		u.is("after", nil)
		l.finish()
		return rules{harmed: []*process{victim}}
	})
}
