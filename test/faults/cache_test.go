//go:build unix

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// takenCalls is how many messages of the work queue workers have.
func (s *system) takenCalls() (n int) {
	s.t.Helper()
	stream, err := s.js.Stream(s.context(), "TY_CALL")
	must.OK(s.t, err)
	consumers := stream.ListConsumers(s.context())
	for c := range consumers.Info() {
		n += c.NumAckPending
	}
	must.OK(s.t, consumers.Err())
	return n
}

// beginnings are those of a tool, by the ledger.
func (s *system) beginnings(tool string) (out []ledger.Line) {
	s.t.Helper()
	lines, err := ledger.Read(s.ledger())
	must.OK(s.t, err)
	for _, l := range lines {
		if l.Tool == tool && l.Kind == ledger.Begin {
			out = append(out, l)
		}
	}
	return out
}

// TestWhoWaitsForAKilledWorker (W9): three agents' equal calls share an execution. The worker is killed while two wait
// there for the third, and the dispatcher that owns them a moment later. Each gets its result from the next worker.
func TestWhoWaitsForAKilledWorker(t *testing.T) {
	cell(t, "W9", func(s *system) rules {
		s.basic()
		victim, owner := s.worker("victim", ""), s.dispatcher("owner", "")
		l := &load{s: s}
		s.mu.Lock()
		s.loads = append(s.loads, l)
		s.mu.Unlock()
		const agents = 3
		subs := make([]*verdict.Submission, agents)
		var all []func()
		for n := range subs {
			all = append(all, func() {
				subs[n] = l.extra(toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("agent", n)), ID: "look",
					Workspace: "w", Calls: repeated("shared_look", 1, map[string]any{"work_ms": 4_000})})
			})
		}
		s.together(append(all, func() {
			for s.takenCalls() < agents || len(s.beginnings("shared_look")) == 0 {
				if s.t.Failed() {
					return
				}
				time.Sleep(look)
			}
			victim.kill()
			if n := len(s.beginnings("shared_look")); n != 1 {
				s.t.Errorf("%d executions were begun before the worker was killed, want 1", n)
			}
			s.together(func() { s.worker("successor", "") }, func() { s.dispatcher("next", "") })
			owner.kill()
			s.faultOver()
		})...)
		uses := map[toolyard.CacheUse]int{}
		for _, sub := range subs {
			r := sub.Results[0]
			uses[r.Cache]++
			if r.IsError || r.Output != "looked" || r.Worker == victim.said("id") {
				s.t.Errorf("the result of %s is %s: %s", sub.Key(), r.Code, r.Text())
			}
		}
		if uses[toolyard.CacheMiss] == 0 || uses[""] > 0 {
			s.t.Errorf("the calls used the cache so: %v", uses)
		}
		if n := len(s.beginnings("shared_look")); n != 1+uses[toolyard.CacheMiss] {
			s.t.Errorf("%d executions for %v", n, uses)
		}
		return rules{harmed: []*process{victim, owner}}
	})
}
