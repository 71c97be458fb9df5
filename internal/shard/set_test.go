package shard

import (
	"slices"
	"testing"
)

func TestSets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		set  Set
		says string
	}{
		"":          {nil, "all"},
		"0":         {Set{0}, "0"},
		"3,0-1,1":   {Set{0, 1, 3}, "0-1,3"},
		"0,2-3":     {Set{0, 2, 3}, "0,2-3"},
		"15":        {Set{15}, "15"},
		"14-15,0-1": {Set{0, 1, 14, 15}, "0-1,14-15"},
	} {
		s, err := ParseSet(text)
		if err != nil || !slices.Equal(s, want.set) || (s == nil) != (want.set == nil) || s.String() != want.says {
			t.Errorf("%q: %v %q, %v; want %v %q", text, []int(s), s, err, []int(want.set), want.says)
		}
	}
	for _, text := range []string{",", "0,", "-1", "1-", "2-1", "16", "0-16", "all", " 1", "1;2"} {
		if s, err := ParseSet(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}

func TestWhatASetHas(t *testing.T) {
	t.Parallel()
	for n := range Max {
		if !(Set)(nil).Has(n) {
			t.Errorf("all shards are without %d", n)
		}
		if got, want := (Set{0, 2}).Has(n), n == 0 || n == 2; got != want {
			t.Errorf("shard %d of 0,2: %t", n, got)
		}
	}
	for _, c := range []struct {
		set    Set
		shards int
		ok     bool
	}{
		{nil, 1, true}, {Set{0}, 1, true}, {Set{1}, 1, false}, {Set{0, 3}, 4, true}, {Set{0, 4}, 4, false},
		{Set{}, 4, false},
	} {
		if err := c.set.Check(c.shards); (err == nil) != c.ok {
			t.Errorf("%v of %d shards: %v", []int(c.set), c.shards, err)
		}
	}
}
