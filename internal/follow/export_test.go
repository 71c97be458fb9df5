package follow

import (
	"runtime"

	"github.com/toolyard/toolyard"
)

// AwaitListeners waits until so many listen to the progress of a batch.
func (r *Reader) AwaitListeners(k toolyard.BatchKey, n int) {
	for {
		r.reported.mu.Lock()
		t := r.reported.all[k]
		there := t != nil && t.users == n
		r.reported.mu.Unlock()
		if there {
			return
		}
		runtime.Gosched()
	}
}
