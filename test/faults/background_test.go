//go:build unix

package faults

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// background starts a background call of a tool that works so long, and returns its batch as it is stored when the
// tool has begun.
func (s *system) background(l *load, ms int) toolyard.Batch {
	s.t.Helper()
	r := l.extra(toolyard.Batch{Agent: "dan", ID: "starts", Workspace: "dan", Calls: []toolyard.Call{{
		Tool: toolyard.BackgroundStart,
		Input: raw(map[string]any{"tool": "write", "workspace": true, "timeout_ms": batchTimeout.Milliseconds(),
			"input": map[string]any{"work_ms": ms}})}}}).Results[0]
	var said struct{ Handle toolyard.BatchID }
	if err := json.Unmarshal(r.Structured, &said); err != nil || r.IsError {
		s.t.Fatalf("%s %s: %v", r.Code, r.Error, err)
	}
	s.until(faultWait, "the background call has begun", func() bool {
		lines, err := ledger.Read(s.ledger())
		return err == nil && slices.ContainsFunc(lines, func(l ledger.Line) bool {
			return l.Batch == said.Handle && l.Kind == ledger.Begin
		})
	})
	state, err := s.b.Look(s.context(), toolyard.BatchKey{Agent: "dan", ID: said.Handle})
	if err != nil {
		s.t.Fatal(err)
	}
	return *state.Submission
}

// TestDispatcherDiesBehindABackgroundCall (D10): the dispatcher of a background call is killed while that runs. It goes
// on, and has its result.
func TestDispatcherDiesBehindABackgroundCall(t *testing.T) {
	cell(t, "D10", func(s *system) rules {
		s.basic()
		s.worker("worker", "")
		victim := s.dispatcher("dispatcher-a", "")
		l := s.load(mix{quiet: true})
		call := s.background(l, 4_000)
		victim.kill()
		s.faultOver()
		s.dispatcher("dispatcher-b", "")
		if r := l.extra(call).Results[0]; r.IsError || r.Attempts != 1 { // the same batch again is that batch
			s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
		}
		l.finish()
		return rules{}
	})
}

// TestWorkerDiesInABackgroundCall (W11): the worker of a background call is killed in the middle of it. It ends as
// outcome_unknown, and its workspace is free.
func TestWorkerDiesInABackgroundCall(t *testing.T) {
	cell(t, "W11", func(s *system) rules {
		s.basic()
		victim := s.worker("worker-a", "")
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		call := s.background(l, 60_000)
		victim.kill()
		s.faultOver()
		s.worker("worker-b", "")
		if r := l.extra(call).Results[0]; r.Code != toolyard.OutcomeUnknown || r.Attempts != 1 {
			s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
		}
		l.finish()
		return rules{harmed: []*process{victim}}
	})
}
