package shard

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestSlotsOnlyGoToNewShards: when shards are added, a slot stays or goes to one of those, and each has its part.
func TestSlotsOnlyGoToNewShards(t *testing.T) {
	t.Parallel()
	for n := 1; n <= Max; n++ {
		counts := make([]int, n)
		for s := range Slot(Slots) {
			at := s.Shard(n)
			counts[at]++
			if n > 1 && at != s.Shard(n-1) && at != n-1 {
				t.Fatalf("slot %d goes from %d to %d of %d", s, s.Shard(n-1), at, n)
			}
		}
		if least, most := slices.Min(counts), slices.Max(counts); least < Slots/n/2 || most > Slots/n*2 {
			t.Errorf("of %d shards one has %d slots and another %d", n, least, most)
		}
	}
}

// TestSlotsOfNames: names are spread evenly, and a slot never changes: other programs compute it too.
func TestSlotsOfNames(t *testing.T) {
	t.Parallel()
	counts := make([]int, 4)
	for i := range 10_000 {
		counts[OfBatch(toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint("batch-", i))}).Shard(4)]++
	}
	if least, most := slices.Min(counts), slices.Max(counts); least < 2000 || most > 3000 {
		t.Errorf("of 10,000 batches in 4 shards: %v", counts)
	}
	if got := [...]Slot{OfBatch(toolyard.BatchKey{Agent: "a", ID: "b"}), OfWorkspace("default")}; got !=
		[...]Slot{wantBatch, wantWorkspace} {
		t.Errorf("slots %v", got)
	}
	if OfBatch(toolyard.BatchKey{Agent: "a", ID: "bc"}) == OfBatch(toolyard.BatchKey{Agent: "ab", ID: "c"}) {
		t.Error("two batches look the same")
	}
}

const wantBatch, wantWorkspace = 475, 519

// TestOneShard: without a map everything is in shard 0, for ever.
func TestOneShard(t *testing.T) {
	t.Parallel()
	for s := range Slot(Slots) {
		if path := (Map{}).Path(s, time.Now(), Grace); !slices.Equal(path, []int{0}) {
			t.Fatalf("slot %d: %v", s, path)
		}
	}
	written, err := json.Marshal(Map{Epochs: []Epoch{{Shards: 4}}})
	if err != nil || string(written) != `{"epochs":[{"shards":4}]}` {
		t.Errorf("%s, %v", written, err)
	}
}

// TestPaths: a former shard is on the path until what was stored in it in time is gone.
func TestPaths(t *testing.T) {
	t.Parallel()
	m := Map{Epochs: []Epoch{{Shards: 1}, {Shards: 2, Opened: clock(10)}, {Shards: 3, Opened: clock(20)}}}
	const gone = graceTick + keptTicks
	for now, want := range map[int][]int{10 + gone: {0, 1, 2}, 11 + gone: {1, 2}, 20 + gone: {1, 2}, 21 + gone: {2}} {
		if path := m.Path(moving, clock(now), keptTicks*tick); !slices.Equal(path, want) {
			t.Errorf("at %d: %v, want %v", now, path, want)
		}
	}
}

// TestMapsThatMayBe: what a raise refuses.
func TestMapsThatMayBe(t *testing.T) {
	t.Parallel()
	two := Map{Epochs: []Epoch{{Shards: 2}}}
	for _, n := range []int{-1, 0, 1, 2, Max + 1} {
		if _, err := two.Prepare(n); err == nil {
			t.Errorf("2 shards become %d", n)
		}
	}
	if _, err := two.Open(clock(0)); err == nil {
		t.Error("opened without preparation")
	}
	raised, err := two.Prepare(4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raised.Prepare(5); err == nil {
		t.Error("two raises at once")
	}
	if raised.Shards() != 2 || raised.Served() != 4 {
		t.Errorf("%d shards, %d served", raised.Shards(), raised.Served())
	}
	if raised, err = raised.Open(clock(3)); err != nil || raised.Shards() != 4 || raised.Next != 0 {
		t.Errorf("%+v, %v", raised, err)
	}
	if raised, err = raised.Prepare(8); err == nil { // a clock that goes back
		raised, err = raised.Open(clock(1))
	}
	if err != nil || raised.Epochs[2].Opened.Before(raised.Epochs[1].Opened) {
		t.Errorf("%+v, %v", raised, err)
	}
}
