package sim

import (
	"maps"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/verdict"
)

// checkTasks: a call that begins again gives a server outside the same key, so that the server finds the task that it
// has made of it, whichever worker follows it now. No other call gives that key.
func (w *world) checkTasks(r *report) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	keys := map[verdict.Call]string{}
	for _, key := range slices.Sorted(maps.Keys(w.book.tasks)) {
		var first verdict.Call
		workers := map[int]bool{}
		for n, line := range w.book.tasks[key] {
			l := w.book.lines[line]
			c := verdict.Call{BatchKey: toolyard.BatchKey{Agent: l.Agent, ID: l.Batch}, Index: l.Index}
			if n == 0 {
				first = c
			}
			if c != first {
				w.fail("tasks", "%s and %s give the same key", first, c)
			}
			if other, ok := keys[c]; ok && other != key {
				w.fail("tasks", "%s gives another key when it begins again: a server would make a second task of it", c)
			}
			keys[c], workers[l.Worker] = key, true
		}
		r.saw(playsFound, len(workers) > 1)
	}
}
