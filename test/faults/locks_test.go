//go:build unix

package faults

import (
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// TestDispatcherDiesWithANamedLock (D11): the dispatcher of a batch is killed while that holds the lock of one file,
// and a batch that needs the same file waits behind it. The next dispatcher keeps the lock until the change is over,
// and only then gives it on. It also gives a batch the lock of another file.
func TestDispatcherDiesWithANamedLock(t *testing.T) {
	cell(t, "D11", func(s *system) rules {
		s.basic()
		s.together(func() { s.worker("worker-a", "") }, func() { s.worker("worker-b", "") })
		victim := s.dispatcher("dispatcher-a", "")
		edit := func(id, file string, ms int) toolyard.Batch {
			return toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan",
				Options: toolyard.Options{NamedLocks: true}, Calls: []toolyard.Call{{ID: "call_" + id, Tool: "edit",
					Input: raw(map[string]any{"file": file, "work_ms": ms})}}}
		}
		l := s.load(mix{quiet: true})
		if r := l.extra(edit("before", "one", 1)).Results[0]; r.IsError {
			s.t.Fatalf("%s %s", r.Code, r.Error)
		}
		first, second := make(chan *verdict.Submission, 1), make(chan *verdict.Submission, 1)
		go func() { first <- l.extra(edit("first", "one", 10_000)) }()
		s.until(faultWait, "the first change has begun", func() bool { return s.lineOf("first", ledger.Begin) != nil })
		go func() { second <- l.extra(edit("second", "one", 10)) }()
		s.until(faultWait, "the second batch is in line", func() bool {
			q, err := s.b.Tickets(s.context(), "dan")
			return err == nil && len(q.Tickets) == 2
		})
		victim.kill()
		s.faultOver()
		s.dispatcher("dispatcher-b", "")
		if r := l.extra(edit("other", "two", 10)).Results[0]; r.IsError {
			s.t.Errorf("the change of another file: %s %s", r.Code, r.Error)
		}
		for _, done := range []chan *verdict.Submission{first, second} {
			if r := (<-done).Results[0]; r.IsError || r.Attempts != 1 {
				s.t.Errorf("attempt %d: %s %s", r.Attempts, r.Code, r.Error)
			}
		}
		l.finish()
		if s.lineOf("second", ledger.Begin).Wall < s.lineOf("first", ledger.End).Wall {
			s.t.Error("the second change began before the end of the first")
		}
		return rules{}
	})
}

// lineOf is the first line of a kind in the ledger of a batch of dan's; nil: there is none.
func (s *system) lineOf(id toolyard.BatchID, k ledger.Kind) *ledger.Line {
	lines, err := ledger.Read(s.ledger())
	i := slices.IndexFunc(lines, func(l ledger.Line) bool { return l.Agent == "dan" && l.Batch == id && l.Kind == k })
	if err != nil || i < 0 {
		return nil
	}
	return &lines[i]
}
