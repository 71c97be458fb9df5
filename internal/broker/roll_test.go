package broker

import (
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/shard"
)

// TestGaps: a shard is served where somebody knows of it and has it in its set, by each pool for itself.
func TestGaps(t *testing.T) {
	t.Parallel()
	all, some := Dispatcher{Shards: 4}, Dispatcher{Shards: 4, Only: shard.Set{0, 2}}
	late := Dispatcher{Shards: 2}
	in := func(pool string, shards int, only ...int) Worker {
		return Worker{Pool: toolyard.Pool(pool), Shards: shards, Only: only}
	}
	for name, c := range map[string]struct {
		dispatchers []Dispatcher
		workers     []Worker
		want        []string
	}{
		"all":       {[]Dispatcher{all}, []Worker{in("a", 4)}, nil},
		"no worker": {[]Dispatcher{all}, nil, nil},
		"some together": {[]Dispatcher{some, {Shards: 4, Only: shard.Set{1, 3}}},
			[]Worker{in("a", 4, 0, 1), in("a", 4, 2, 3)}, nil},
		"nobody": {nil, nil, []string{"no dispatcher takes batches of shard 0",
			"no dispatcher takes batches of shard 1", "no dispatcher takes batches of shard 2",
			"no dispatcher takes batches of shard 3"}},
		"some": {[]Dispatcher{some, late}, nil, []string{"no dispatcher takes batches of shard 3"}},
		"a pool for another": {[]Dispatcher{all}, []Worker{in("a", 4), in("b", 4, 1, 2, 3)},
			[]string{"no worker of pool b takes calls of shard 0"}},
		"who knows of one only": {[]Dispatcher{all}, []Worker{in("a", 4, 0, 1, 2), in("a", 0)},
			[]string{"no worker of pool a takes calls of shard 3"}},
	} {
		if got := Gaps(ServedShards(c.dispatchers, c.workers, 4)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
