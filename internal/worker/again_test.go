package worker

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// TestABatchWithTheIDOfAnExpiredOne: what became of the calls of an earlier batch with an id says nothing of those of a
// later one, also where the worker has noted nothing in between.
func TestABatchWithTheIDOfAnExpiredOne(t *testing.T) {
	key := toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "nightly"}
	for name, note := range map[string]func(w *Worker, k callKey, at time.Time){
		"a canceled call": func(w *Worker, k callKey, at time.Time) { w.aborts.add(k, pipeline.ErrCanceled, at) },
		"a call that another worker has ended": func(w *Worker, k callKey, at time.Time) {
			w.begun.note(attemptKey{k, 1}, at, w.b.Settings())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				y.w.mu.Lock()
				note(y.w, callKey{key, 0}, time.Now().Add(-y.b.Settings().KeptFor()-time.Second))
				y.w.mu.Unlock()
				q := y.queueAs(key, 0, 1, "write", 1)
				if r := q.result(); r.Code != toolyard.OK || r.Output != "done" {
					y.Errorf("its call ends as %q: %s", r.Code, r.Error)
				}
			})
		})
	}
}
