package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

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

// TestSilence: a shard is refused when roll call after roll call finds no dispatcher for it, for long enough. One that
// answers again, or a roll call that fails, begins the time anew.
func TestSilence(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	served := func(first, second int) []ServedShard {
		return []ServedShard{{Shard: 0, Dispatchers: first}, {Shard: 1, Dispatchers: second}}
	}
	both, one, none := served(1, 2), served(1, 0), served(0, 0)
	const step = UnservedAfter / 3
	for name, c := range map[string]struct {
		heard [][]ServedShard // one a step
		want  []bool          // by shard: it is refused
	}{
		"nothing was heard":          {nil, []bool{false, false}},
		"all are served":             {[][]ServedShard{both, both, both, both}, []bool{false, false}},
		"one is silent":              {[][]ServedShard{one, one, one, one}, []bool{false, true}},
		"not for long enough":        {[][]ServedShard{one, one, one}, []bool{false, false}},
		"it answers in between":      {[][]ServedShard{one, both, one, one}, []bool{false, false}},
		"a roll call fails":          {[][]ServedShard{one, nil, one, one}, []bool{false, false}},
		"the last roll call fails":   {[][]ServedShard{none, none, none, nil}, []bool{false, false}},
		"a shard that is added late": {[][]ServedShard{none[:1], none[:1], none[:1], none}, []bool{true, false}},
	} {
		now, s := start, Silence(nil)
		for i, h := range c.heard {
			now = start.Add(time.Duration(i) * step)
			s = s.Hear(h, now)
		}
		for n, want := range c.want {
			if got := s.Refuses(n, now); (got != "") != want || want && !strings.Contains(got, "for 15s") {
				t.Errorf("%s: shard %d is refused because %q", name, n, got)
			}
		}
	}
}
