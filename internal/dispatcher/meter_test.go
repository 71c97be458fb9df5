package dispatcher

import (
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestWantedSlots: a dispatcher's load says how many slots its batches could use, of which class: as many calls as may
// run at a time, and none when they are over.
func TestWantedSlots(t *testing.T) {
	inYard(t, func(y *yard) {
		d := New(y.Broker("d"), Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()})
		y.Start(d)
		wanted := func() map[toolyard.Class]int { return d.Load().Wanted[toolyard.DefaultPool] }
		expect := func(when string, read, write int) {
			y.Helper()
			if w := wanted(); w[toolyard.ReadOnly] != read || w[toolyard.WriteExclusive] != write || len(w) != 3 {
				y.Errorf("%s: %v slots are wanted; want %d and %d", when, w, read, write)
			}
		}
		y.settle()
		expect("before anything comes", 0, 0)
		y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}, {Tool: "read"}, {Tool: "write"}}})
		y.settle()
		expect("two reads, and a write behind them", 2, 0)
		wide := toolyard.Batch{Workspace: "other", Options: toolyard.Options{MaxConcurrency: 5},
			Calls: slices.Repeat([]toolyard.Call{{Tool: "read"}}, 64)}
		many := y.submitBatch(wide)
		write := y.submitBatch(toolyard.Batch{Workspace: "third", Calls: []toolyard.Call{{Tool: "write"}}})
		y.settle()
		expect("64 reads more of which five may run at a time, and a write", 7, 1)
		y.work()
		for _, k := range []toolyard.BatchKey{many, write} {
			if !y.done(k) {
				y.Errorf("%s is not over", k)
			}
		}
		y.settle()
		expect("when all are over", 0, 0)
	})
}

// done waits until a batch is over.
func (y *yard) done(k toolyard.BatchKey) bool {
	y.Helper()
	y.Eventually("the batch is over", func() bool { return y.fold(k).Completed })
	return y.fold(k).Completed
}
