package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// twin is the dumb way: it writes the groups as text, one letter a call, and reads them back. "s" is a safe call, "x"
// any other. It shares no idea with [Groups].
func twin(strategy toolyard.Strategy, word string) []Group {
	order := make([]int, 0, len(word))
	for i := range word {
		order = append(order, i)
	}
	var cut func(prev, next byte) bool // is there a border between neighbours?
	switch strategy {
	case toolyard.SafeFirst:
		slices.SortStableFunc(order, func(a, b int) int { return int(word[a]) - int(word[b]) }) // "s" < "x"
		cut = func(prev, next byte) bool { return next == 'x' }
	case toolyard.Consecutive:
		cut = func(prev, next byte) bool { return prev == 'x' || next == 'x' }
	default:
		cut = func(prev, next byte) bool { return true }
	}
	var groups []Group
	for at, i := range order {
		if at == 0 || cut(word[order[at-1]], word[i]) {
			groups = append(groups, Group{Safe: word[i] == 's'})
		}
		g := &groups[len(groups)-1]
		g.Calls = append(g.Calls, i)
	}
	return groups
}

// classesOf turns a word into classes; the exclusive ones take turns through everything that is not READ_ONLY.
func classesOf(word string) []toolyard.Class {
	exclusive := []toolyard.Class{toolyard.WriteExclusive, toolyard.Unsafe, "", "read_only", " READ_ONLY", "PARALLEL"}
	var cs []toolyard.Class
	for i, letter := range word {
		if letter == 's' {
			cs = append(cs, toolyard.ReadOnly)
		} else {
			cs = append(cs, exclusive[i%len(exclusive)])
		}
	}
	return cs
}

func words(yield func(string) bool) {
	const maxLen = 12
	for n := 0; n <= maxLen; n++ {
		for bits := range 1 << n {
			var b strings.Builder
			for i := range n {
				b.WriteByte("sx"[bits>>i&1])
			}
			if !yield(b.String()) {
				return
			}
		}
	}
}

func equal(a, b []Group) bool {
	return slices.EqualFunc(a, b, func(a, b Group) bool { return a.Safe == b.Safe && slices.Equal(a.Calls, b.Calls) })
}

// checkInvariants says what is wrong with the groups of a whole batch, without knowing how they were made.
func checkInvariants(strategy toolyard.Strategy, classes []toolyard.Class, groups []Group) error {
	seen := make([]bool, len(classes))
	var flat []int
	for k, g := range groups {
		if len(g.Calls) == 0 {
			return fmt.Errorf("group %d is empty", k)
		}
		if !slices.IsSorted(g.Calls) {
			return fmt.Errorf("group %d is out of order", k)
		}
		for _, i := range g.Calls {
			if i < 0 || i >= len(classes) || seen[i] {
				return fmt.Errorf("group %d: index %d is out of range or comes twice", k, i)
			}
			seen[i] = true
			if g.Safe != (classes[i] == toolyard.ReadOnly) {
				return fmt.Errorf("group %d: safe=%v holds a call of class %q", k, g.Safe, classes[i])
			}
		}
		if len(g.Calls) > 1 && (!g.Safe || strategy != toolyard.Consecutive && strategy != toolyard.SafeFirst) {
			return fmt.Errorf("group %d has %d calls, and may have one", k, len(g.Calls))
		}
		flat = append(flat, g.Calls...)
	}
	if len(flat) != len(classes) {
		return fmt.Errorf("%d of %d calls are in groups", len(flat), len(classes))
	}
	if strategy != toolyard.SafeFirst && !slices.IsSorted(flat) {
		return fmt.Errorf("flattened order %v is not emission order", flat)
	}
	return nil
}

var strategies = append([]toolyard.Strategy{"", "no_such_strategy"}, toolyard.Strategies...)

func TestGroupsAgainstTwin(t *testing.T) {
	for _, strategy := range strategies {
		for word := range words {
			classes := classesOf(word)
			got := Groups(strategy, classes)
			if want := twin(strategy, word); !equal(got, want) {
				t.Fatalf("Groups(%q, %s) = %v, want %v", strategy, word, got, want)
			}
			if err := checkInvariants(strategy, classes, got); err != nil {
				t.Fatalf("Groups(%q, %s): %v", strategy, word, err)
			}
		}
	}
}

func TestUnknownStrategyIsSequential(t *testing.T) {
	classes := classesOf("ssxs")
	for _, strategy := range []toolyard.Strategy{"", "no_such_strategy", "Consecutive", toolyard.OrderedHalt} {
		if got, want := Groups(strategy, classes), Groups(toolyard.Sequential, classes); !equal(got, want) {
			t.Errorf("Groups(%q) = %v, want %v", strategy, got, want)
		}
	}
}

func FuzzGroups(f *testing.F) {
	for _, word := range []string{"", "s", "x", "ssxss", "xsxsxsxs", "ssssssssssssssssssssx"} {
		for i := range strategies {
			f.Add(i, word)
		}
	}
	f.Fuzz(func(t *testing.T, strategy int, word string) {
		s := strategies[uint(strategy)%uint(len(strategies))]
		sx := make([]byte, len(word))
		for i := range sx {
			sx[i] = "sx"[word[i]&1]
		}
		if got, want := Groups(s, classesOf(string(sx))), twin(s, string(sx)); !equal(got, want) {
			t.Fatalf("Groups(%q, %s) = %v, want %v", s, sx, got, want)
		}
	})
}

func ExampleGroups() {
	r, w := toolyard.ReadOnly, toolyard.WriteExclusive
	for _, strategy := range toolyard.Strategies {
		fmt.Println(strategy, Groups(strategy, []toolyard.Class{r, r, w, r, r}))
	}
	// Output:
	// consecutive [{true [0 1]} {false [2]} {true [3 4]}]
	// safe_first [{true [0 1 3 4]} {false [2]}]
	// sequential [{true [0]} {true [1]} {false [2]} {true [3]} {true [4]}]
	// ordered_halt [{true [0]} {true [1]} {false [2]} {true [3]} {true [4]}]
}
