package natsbroker

import (
	"sync"

	"github.com/toolyard/toolyard"
)

// maxWhere is how many batches a process remembers the shards of, in each of two generations.
const maxWhere = 32_768

// where remembers in which shards batches are. A batch stays where it is, so what is remembered is never wrong. It is
// used while batches may be in former shards.
type where struct {
	mu       sync.Mutex
	now, was map[toolyard.BatchKey]int
}

func (w *where) get(k toolyard.BatchKey) (shard int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if shard, ok = w.now[k]; !ok {
		if shard, ok = w.was[k]; ok {
			w.put(k, shard)
		}
	}
	return shard, ok
}

func (w *where) note(k toolyard.BatchKey, shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(k, shard)
}

// put notes under the mutex.
func (w *where) put(k toolyard.BatchKey, shard int) {
	if len(w.now) >= maxWhere {
		w.was, w.now = w.now, nil
	}
	if w.now == nil {
		w.now = map[toolyard.BatchKey]int{}
	}
	w.now[k] = shard
}
