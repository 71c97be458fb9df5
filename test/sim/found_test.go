package sim

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// TestFound plays small histories of what drawn ones have found. They need no seed: what matters is when the one thing
// happens that goes wrong.
func TestFound(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	write := toolyard.Call{ID: "c0", Tool: "write", Input: raw(input{WorkMS: 6_000, Commits: 1})}
	for deaf := time.Second; deaf < 6*time.Second; deaf += 250 * time.Millisecond {
		// A worker lost the lease of a write that it had begun, and could not store that. When it was delivered again
		// the worker had no right to act yet: it gave the call up and said that it was not started. It ran again.
		t.Run(fmt.Sprintf("a worker is deaf for %s while a write runs, and then the server is gone", deaf),
			func(t *testing.T) {
				r := inMemory(t, 1, options{calm: true, scenario: oneOfEach(write), script: func(w *world) {
					w.disturbed.Store(true)
					w.await(ledger.Begin)
					s := w.bus.server()
					s.Deafen("w1")
					time.Sleep(deaf)
					s.Stop()
					s.Heal("w1")
					time.Sleep(5 * time.Second)
					s.Start()
				}})
				if len(r.problems) > 0 {
					t.Error(r)
				}
			})
	}
}

// oneOfEach is a scenario with one batch, and one of everybody.
func oneOfEach(calls ...toolyard.Call) *scenario {
	b := &batchSpec{first: len(calls), batch: toolyard.Batch{ID: "b1", Agent: "a1", Session: "s", Workspace: "ws1",
		Calls: calls, Options: toolyard.Options{Partition: toolyard.Consecutive, OnError: toolyard.Continue,
			MaxConcurrency: 1, TimeoutMS: longWait.Milliseconds()}}}
	return &scenario{
		focus: anything, dispatchers: 1, workers: []workerSpec{{classes: toolyard.Classes, slots: 1}},
		agents:     []agentSpec{{name: "a1", batches: []*batchSpec{b}}},
		workspaces: []toolyard.Workspace{"ws1"}, approvalWait: longWait,
	}
}

// await returns when a tool has written a line of a kind, or the history is broken.
func (w *world) await(k ledger.Kind) {
	for {
		w.book.mu.Lock()
		there := slices.ContainsFunc(w.book.lines, func(l ledger.Line) bool { return l.Kind == k })
		w.book.mu.Unlock()
		if there {
			return
		}
		select {
		case <-w.broken:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
