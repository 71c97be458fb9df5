package broker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/shard"
)

// Dispatcher is what a dispatcher says about itself when it is asked.
type Dispatcher struct {
	ID          string `json:"id"`
	Version     string `json:"version"`
	WireVersion int    `json:"wire_version"`
	// Shards is how many shards it knows of, and Only those that it takes batches of; nil: all.
	Shards int       `json:"shards"`
	Only   shard.Set `json:"only_shards,omitempty"`
}

// Serves reports whether a dispatcher takes batches of a shard.
func (d *Dispatcher) Serves(n int) bool { return n < d.Shards && d.Only.Has(n) }

// Serves reports whether a worker takes calls of a shard.
func (w *Worker) Serves(n int) bool { return n < max(1, w.Shards) && w.Only.Has(n) }

// ServedShard is who serves a shard: how many dispatchers, and how many workers of each pool that has a live worker.
type ServedShard struct {
	Shard       int
	Dispatchers int
	Workers     map[toolyard.Pool]int
}

// ServedShards is who serves each of the first n shards.
func ServedShards(dispatchers []Dispatcher, workers []Worker, n int) []ServedShard {
	out := make([]ServedShard, n)
	for i := range out {
		s := &out[i]
		s.Shard, s.Workers = i, map[toolyard.Pool]int{}
		for _, d := range dispatchers {
			if d.Serves(i) {
				s.Dispatchers++
			}
		}
		for _, w := range workers {
			if s.Workers[w.Pool] += 0; w.Serves(i) {
				s.Workers[w.Pool]++
			}
		}
	}
	return out
}

// Gaps says of each shard by whom it is not served: by no dispatcher, or by no worker of a pool that has live workers.
func Gaps(shards []ServedShard) (out []string) {
	for _, s := range shards {
		if s.Dispatchers == 0 {
			out = append(out, fmt.Sprintf("no dispatcher takes batches of shard %d", s.Shard))
		}
		for _, pool := range slices.Sorted(maps.Keys(s.Workers)) {
			if s.Workers[pool] == 0 {
				out = append(out, fmt.Sprintf("no worker of pool %s takes calls of shard %d", pool, s.Shard))
			}
		}
	}
	return out
}

// UnservedAfter is for how long a shard must have had no dispatcher before new batches of it are refused: one that is
// started again is back before that, and what came meanwhile has waited for it.
const UnservedAfter = 15 * time.Second

// Silence is since when no dispatcher has taken the batches of a shard, as one process hears it in its roll calls. A
// shard that somebody serves is not in it.
type Silence map[int]time.Time

// Hear is what is known after one more roll call. What is not heard of at all, because the roll call failed, is not
// known any more: a process that hears nothing must not say that others are silent.
func (s Silence) Hear(served []ServedShard, now time.Time) Silence {
	out := Silence{}
	for _, h := range served {
		if h.Dispatchers > 0 {
			continue
		}
		if out[h.Shard] = now; !s[h.Shard].IsZero() {
			out[h.Shard] = s[h.Shard]
		}
	}
	return out
}

// Refuses is why a new batch of a shard is refused now; "" when it is not.
func (s Silence) Refuses(shard int, now time.Time) string {
	since, silent := s[shard]
	if silent = silent && now.Sub(since) >= UnservedAfter; !silent {
		return ""
	}
	return fmt.Sprintf("no dispatcher has taken batches of shard %d, where this one belongs, for %s (--serve-shards)",
		shard, now.Sub(since).Truncate(time.Second))
}
