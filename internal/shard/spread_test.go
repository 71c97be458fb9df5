package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var threeServers = []string{"n1", "n2", "n3"}

// leading are streams of some kinds in each of some shards, led as of says.
func leading(shards, kinds int, of func(shard, kind int) string) (all []Led) {
	for n := range shards {
		for k := range kinds {
			all = append(all, Led{fmt.Sprint("TY", n, "_", k), n, fmt.Sprint("TY_", k), of(n, k), threeServers})
		}
	}
	return all
}

// moved applies moves, and fails if one is not of a leader that there is.
func moved(t *testing.T, all []Led, moves []Move) {
	t.Helper()
	for _, m := range moves {
		done := false
		for i := range all {
			if all[i].Stream == m.Stream && all[i].Leader == m.From && m.From != m.To {
				all[i].Leader, done = m.To, true
			}
		}
		if !done {
			t.Fatalf("%+v moves nothing", m)
		}
	}
}

// TestLeadersAreSpread: however they begin, the leaders of a kind are on as many servers as there are, each leads about
// as many as the others, and then nothing moves any more.
func TestLeadersAreSpread(t *testing.T) {
	t.Parallel()
	const kinds = 8
	random := rand.New(rand.NewPCG(1, 2))
	for shards := 1; shards <= Max; shards++ {
		for _, of := range []func(int, int) string{
			func(int, int) string { return "n1" },
			func(n, _ int) string { return threeServers[n%3] },
			func(int, int) string { return threeServers[random.IntN(3)] },
		} {
			all := leading(shards, kinds, of)
			moved(t, all, Spread(all))
			byKind, total := map[[2]string]int{}, map[string]int{}
			for _, l := range all {
				byKind[[2]string{l.Leader, l.Kind}]++
				total[l.Leader]++
			}
			for k := range kinds {
				for _, s := range threeServers {
					if n := byKind[[2]string{s, fmt.Sprint("TY_", k)}]; n < shards/3 || n > (shards+2)/3 {
						t.Errorf("of %d shards %s leads %d streams of kind %d", shards, s, n, k)
					}
				}
			}
			for _, s := range threeServers {
				if n, even := total[s], shards*kinds/3; n < even-1 || n > even+1 {
					t.Errorf("of %d streams %s leads %d", shards*kinds, s, n)
				}
			}
			if again := Spread(all); len(again) > 0 {
				t.Errorf("again: %v", again)
			}
			if homes := Homes(all); len(homes) < shards-shards%3 {
				t.Errorf("of %d shards these are led by one server: %v", shards, homes)
			}
		}
	}
}

// TestLeadersMoveToTheirOwnServers: a stream goes only where it may.
func TestLeadersMoveToTheirOwnServers(t *testing.T) {
	t.Parallel()
	all := []Led{{"TY_A", 0, "TY_A", "n1", []string{"n1"}}, {"TY1_A", 1, "TY_A", "n1", []string{"n1", "n2"}},
		{"TY2_A", 2, "TY_A", "n1", []string{"n1"}}}
	if m := Spread(all); len(m) != 1 || m[0] != (Move{Stream: "TY1_A", From: "n1", To: "n2"}) {
		t.Errorf("%v", m)
	}
	if m := Spread(nil); m != nil {
		t.Errorf("of nothing: %v", m)
	}
}

// TestConsumersJoinTheirStreams: each consumer is led where its stream is led in the end, and one whose stream's leader
// is not known stays.
func TestConsumersJoinTheirStreams(t *testing.T) {
	t.Parallel()
	all := []Led{{"TY_A", 0, "TY_A", "n1", threeServers}, {"TY_B", 0, "TY_B", "n2", threeServers}}
	led := After(all, []Move{{Stream: "TY_A", From: "n1", To: "n3"}})
	got := Join(led, []Consumer{{"TY_A", "moves", "n1"}, {"TY_A", "stays", "n3"}, {"TY_B", "stays", "n2"},
		{"TY_B", "moves", "n3"}, {"TY_C", "unknown", "n3"}})
	if want := []Move{{"TY_A", "moves", "n1", "n3"}, {"TY_B", "moves", "n3", "n2"}}; !slices.Equal(got, want) {
		t.Errorf("%v, and want %v", got, want)
	}
}
