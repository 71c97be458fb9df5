package sim

import (
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	seed   = flag.Uint64("seed", 0, "the history that TestSeed plays")
	seeds  = flag.Uint64("seeds", histories, "how many histories TestSimulation plays")
	chatty = flag.Bool("chatter", false,
		"TestSeed also prints the steps of which nothing comes: pulls, heartbeats, polls")
	without = flag.String("without", "",
		"TestSeed takes these fences away: numbers with commas between, see the constants of type Fence")
	focus = flag.Int("focus", 0,
		"the focus of the history that TestSeed plays, see type Focus; 0 draws it by the seed")
)

// TestSeed plays one history and prints it.
func TestSeed(t *testing.T) {
	opt := Options{Trace: true, Chatter: *chatty, Focus: Focus(*focus)}
	for _, f := range strings.FieldsFunc(*without, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 || n >= int(fenceCount) {
			t.Fatalf("there is no fence %q", f)
		}
		opt.Without = append(opt.Without, Fence(n))
	}
	r := Run(*seed, opt)
	t.Log("\n" + r.String())
	if r.Failure != nil {
		t.Fail()
	}
}

// TestSimulation plays many histories: all invariants hold in all of them.
func TestSimulation(t *testing.T) {
	sum := Report{Codes: map[string]int{}}
	for n := range *seeds {
		r := Run(n, Options{})
		if r.Failure != nil {
			t.Fatalf("\n%s", Run(n, Options{Trace: true}))
		}
		sum.Steps += r.Steps
		sum.Batches += r.Batches
		sum.Calls += r.Calls
		sum.Executions += r.Executions
		sum.Faults += r.Faults
		sum.Takeovers += r.Takeovers
		sum.Parked += r.Parked
		for c, n := range r.Codes {
			sum.Codes[c] += n
		}
	}
	t.Logf("%d histories: %d batches, %d calls, %d executions, %d faults, %d takeovers, %d times parked, %d steps",
		*seeds, sum.Batches, sum.Calls, sum.Executions, sum.Faults, sum.Takeovers, sum.Parked, sum.Steps)
	for _, c := range slices.Sorted(maps.Keys(sum.Codes)) {
		t.Logf("%8d %s", sum.Codes[c], c)
	}
}
