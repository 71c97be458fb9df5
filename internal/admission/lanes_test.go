package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestLanes: an agent keeps its lane while it has a running batch, and gets one without a flood if there is one.
func TestLanes(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 1 + r.IntN(8)
		home := func(a toolyard.Agent) int { return len(a) * 7 % n }
		l := NewLanes(n, home)
		runs := map[toolyard.Agent]int{}
		load := func(lane int) (sum int) {
			for a, batches := range runs {
				if l.Of(a, toolyard.Interactive) == lane {
					sum += batches
				}
			}
			return sum
		}
		for range 200 {
			a := toolyard.Agent(fmt.Sprint("agent", r.IntN(12)))
			if runs[a] > 0 && r.IntN(2) == 0 {
				was := l.Of(a, toolyard.Interactive)
				l.Leave(a, toolyard.Interactive)
				if runs[a]--; runs[a] > 0 && l.Of(a, toolyard.Interactive) != was {
					t.Fatalf("seed %d: %s changed its lane while it runs", seed, a)
				}
				if runs[a] == 0 {
					delete(runs, a)
				}
				continue
			}
			before := make([]int, n)
			for lane := range before {
				before[lane] = load(lane)
			}
			was := l.Of(a, toolyard.Interactive)
			l.Enter(a, toolyard.Interactive)
			lane := l.Of(a, toolyard.Interactive)
			if runs[a] > 0 && lane != was {
				t.Fatalf("seed %d: %s changed its lane while it runs", seed, a)
			}
			for other, batches := range before {
				if runs[a] == 0 && (batches < before[lane] || batches == before[lane] && other == home(a) &&
					lane != other) {
					t.Fatalf("seed %d: %s, at home in lane %d, got lane %d of loads %v", seed, a, home(a), lane, before)
				}
			}
			runs[a]++
		}
		for a, batches := range runs {
			for range batches {
				l.Leave(a, toolyard.Interactive)
			}
		}
		for lane, batches := range l.load {
			if batches != 0 || len(l.assigned) != 0 {
				t.Fatalf("seed %d: lane %d has %d batches of nobody", seed, lane, batches)
			}
		}
	}
}

// TestBulkHasOneLane: bulk batches share the last lane, and interactive ones go elsewhere as long as another lane has
// fewer.
func TestBulkHasOneLane(t *testing.T) {
	l := NewLanes(4, func(toolyard.Agent) int { return 3 })
	for n := range 10 {
		a := toolyard.Agent(fmt.Sprint("bulk", n))
		l.Enter(a, toolyard.Bulk)
		if got := l.Of(a, toolyard.Bulk); got != 3 {
			t.Errorf("a bulk batch is in lane %d", got)
		}
	}
	for n := range 9 {
		a := toolyard.Agent(fmt.Sprint("bulk", n))
		l.Enter(a, toolyard.Interactive)
		if got := l.Of(a, toolyard.Interactive); got == 3 || l.Of(a, toolyard.Bulk) != 3 {
			t.Errorf("agent %d, whose bulk batches run too, has lane %d", n, got)
		}
	}
	for n := range 10 {
		l.Leave(toolyard.Agent(fmt.Sprint("bulk", n)), toolyard.Bulk)
	}
	if l.load[3] != 0 {
		t.Errorf("%d batches are in the last lane", l.load[3])
	}
	l.Enter("late", toolyard.Interactive)
	if got := l.Of("late", toolyard.Interactive); got != 3 {
		t.Errorf("without bulk batches an agent does not get its lane, but %d", got)
	}
}
