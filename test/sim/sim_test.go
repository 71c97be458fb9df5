package sim

import (
	"bytes"
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	from  = flag.Uint64("from", 0, "the first history that TestSimulation plays")
	seeds = flag.Uint64("seeds", histories, "how many histories TestSimulation plays")
	twice = flag.Uint64("twice", playedTwice, "how many of them it plays twice")
)

// compare plays one history twice and shows where the two part.
func compare(t *testing.T, seed uint64) {
	t.Helper()
	var a, b bytes.Buffer
	first := inMemory(t, seed, options{calm: *calm, about: about(), trace: &a})
	if second := inMemory(t, seed, options{calm: *calm, about: about(), trace: &b}); second.hash == first.hash {
		return
	}
	one, two := strings.SplitAfter(a.String(), "\n"), strings.SplitAfter(b.String(), "\n")
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			t.Fatalf("after %d lines:\n%s\nthe first time:\n%s\nthe second time:\n%s", i,
				strings.Join(one[max(0, i-15):i], ""),
				strings.Join(one[i:min(i+6, len(one))], ""), strings.Join(two[i:min(i+6, len(two))], ""))
		}
	}
}

// alike is how many of a hundred seeds are the same history each time, at least. Not all are: the runtime chooses at
// random among the cases of a select that are ready at once, and lets a goroutine stand back that has run for ten
// milliseconds, which on a busy machine any may have.
const alike = 60

// TestSimulation plays many histories: all invariants hold in all of them, and most seeds are the same history each
// time.
func TestSimulation(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines that are ready at one instant run in their order
	opt := options{calm: *calm, about: about()}
	steps, lines, same, all, began := 0, 0, 0, played{}, time.Now()
	for n := range *seeds {
		r := inMemory(t, *from+n, opt)
		if len(r.problems) > 0 {
			t.Error(r)
		}
		steps, lines = steps+r.steps, lines+r.lines
		all.add(r)
		if n < *twice {
			if again := inMemory(t, *from+n, opt); again.hash == r.hash {
				same++
			} else {
				t.Logf("seed %d has the hashes %s and %s, with %d and %d steps", r.seed, r.hash, again.hash, r.steps,
					again.steps)
			}
		}
	}
	t.Logf("%d histories: %d lines in the ledger, %d steps, in %s", *seeds, lines, steps, time.Since(began))
	if !*calm && *aboutFlag == "" {
		all.check(t, *seeds)
	}
	if played := min(*seeds, *twice); played > 0 && same*100 < int(played)*alike {
		t.Errorf("%d of %d seeds are the same history each time; at least %d%% should be", same, played, alike)
	}
}
