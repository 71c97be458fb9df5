package broker

import (
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestPoolsOfTags: each set of tags has a pool of its own, whatever their order, and its name is one.
func TestPoolsOfTags(t *testing.T) {
	long := func(last byte) (out []toolyard.Tag) {
		for n := range MaxTags {
			tag := slices.Repeat([]byte{'x'}, toolyard.MaxTagBytes)
			tag[10], tag[len(tag)-1] = byte('0'+n), last
			out = append(out, toolyard.Tag(tag))
		}
		return out
	}
	pools := map[toolyard.Pool][]toolyard.Tag{}
	for _, tags := range [][]toolyard.Tag{
		nil, {"default"}, {"gpu"}, {"region=eu"}, {"region-eu"}, {"region/eu"}, {"gpu", "region=eu"}, {"gpu_region-eu"},
		{"gpu_region=eu"}, {"a", "b"}, {"a_b"}, {"a-b"}, {"ab"}, long('a'), long('b'),
	} {
		p := PoolOf(tags)
		if err := CheckPool(p); err != nil {
			t.Errorf("%q: %v", tags, err)
		}
		if other, ok := pools[p]; ok {
			t.Errorf("%q and %q both have the pool %s", tags, other, p)
		}
		pools[p] = tags
		turned := slices.Clone(tags)
		slices.Reverse(turned)
		if again := PoolOf(turned); again != p {
			t.Errorf("%q: %s in one order and %s in another", tags, p, again)
		}
	}
	for p, tag := range map[toolyard.Pool]toolyard.Tag{"gpu": "gpu", "region-eu": "region-eu"} {
		if got := pools[p]; len(got) != 1 || got[0] != tag {
			t.Errorf("the pool %s is that of %q", p, got)
		}
	}
}
