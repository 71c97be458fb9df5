package partition

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
)

// follow adds the calls one by one, as a dispatcher would that starts whatever it may, and reports the first broken
// promise.
func follow(strategy toolyard.Strategy, classes []toolyard.Class) error {
	whole := Groups(strategy, classes)
	p := New(strategy)
	started := 0      // groups seen as startable
	var open []int    // the open group's calls as first seen, to check that a view never changes
	var openAt, n int // its place, and its length then
	for i := 0; ; i++ {
		if so := Groups(strategy, classes[:i]); !equal(p.Groups(), so) {
			return fmt.Errorf("after %d calls: %v, at once %v", i, p.Groups(), so)
		}
		final, startable := p.Final(), p.Startable()
		switch {
		case final > startable || startable > p.Len() || startable > final+1:
			return fmt.Errorf("after %d calls: final %d, startable %d of %d", i, final, startable, p.Len())
		case startable < started:
			return fmt.Errorf("after %d calls: %d startable groups became %d", i, started, startable)
		case startable > final && !p.Group(final).Safe:
			return fmt.Errorf("after %d calls: an exclusive group is startable, and not final", i)
		}
		started = startable
		for k := range startable {
			g := p.Group(k)
			if k < final && !equal([]Group{g}, whole[k:k+1]) {
				return fmt.Errorf("after %d calls: final group %d is %v, in the end %v", i, k, g, whole[k])
			}
			if k >= len(whole) || g.Safe != whole[k].Safe || len(g.Calls) > len(whole[k].Calls) ||
				!equal([]Group{g}, []Group{{Safe: g.Safe, Calls: whole[k].Calls[:len(g.Calls)]}}) {
				return fmt.Errorf("after %d calls: startable group %d is %v, in the end %v", i, k, g, whole)
			}
			if strategy == toolyard.SafeFirst && !g.Safe {
				return fmt.Errorf("after %d calls: safe_first would start exclusive group %d before Close", i, k)
			}
		}
		if open != nil && (len(open) != n || open[0] != p.Group(openAt).Calls[0]) {
			return fmt.Errorf("after %d calls: a view that was handed out has changed", i)
		}
		if open == nil && startable > final {
			open, openAt = p.Group(final).Calls, final
			n = len(open)
		}
		if i == len(classes) {
			break
		}
		if got := p.Add(classes[i]); got != i {
			return fmt.Errorf("Add returned %d for call %d", got, i)
		}
	}
	p.Close()
	p.Close()
	if !equal(p.Groups(), whole) || p.Final() != len(whole) || p.Startable() != len(whole) {
		return fmt.Errorf("after Close: %v (final %d), at once %v", p.Groups(), p.Final(), whole)
	}
	return nil
}

func TestIncrementalIsAtOnce(t *testing.T) {
	for _, strategy := range strategies {
		for word := range words {
			if err := follow(strategy, classesOf(word)); err != nil {
				t.Fatalf("%q, %s: %v", strategy, word, err)
			}
		}
	}
}

// What is final, and what may start, is the dispatcher's licence to act: pinned here word for word.
func TestFinalAndStartable(t *testing.T) {
	for _, tc := range []struct {
		strategy         toolyard.Strategy
		word             string
		final, startable int
	}{
		{toolyard.Consecutive, "", 0, 0},
		{toolyard.Consecutive, "s", 0, 1},
		{toolyard.Consecutive, "ss", 0, 1},
		{toolyard.Consecutive, "x", 1, 1},
		{toolyard.Consecutive, "ssx", 2, 2},
		{toolyard.Consecutive, "ssxs", 2, 3},
		{toolyard.SafeFirst, "x", 0, 0},
		{toolyard.SafeFirst, "xs", 0, 1},
		{toolyard.SafeFirst, "xsxs", 0, 1},
		{toolyard.Sequential, "s", 1, 1},
		{toolyard.OrderedHalt, "sxs", 3, 3},
		{"no_such_strategy", "ss", 2, 2},
	} {
		p := New(tc.strategy)
		for _, c := range classesOf(tc.word) {
			p.Add(c)
		}
		if p.Final() != tc.final || p.Startable() != tc.startable {
			t.Errorf("%s %q: final %d, startable %d; want %d, %d",
				tc.strategy, tc.word, p.Final(), p.Startable(), tc.final, tc.startable)
		}
	}
}

func TestViewsDoNotAlias(t *testing.T) {
	for _, strategy := range []toolyard.Strategy{toolyard.Consecutive, toolyard.SafeFirst} {
		p := New(strategy)
		for range 5 { // leaves spare capacity behind the fifth
			p.Add(toolyard.ReadOnly)
		}
		view := append(p.Group(0).Calls, 99)
		p.Add(toolyard.ReadOnly)
		if view[5] != 99 || p.Group(0).Calls[5] != 5 {
			t.Errorf("%s: a caller's append and the next call share memory: %v, %v", strategy, view, p.Groups())
		}
	}
}

func TestAddAfterClosePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Add after Close did not panic")
		}
	}()
	p := New(toolyard.Consecutive)
	p.Close()
	p.Add(toolyard.ReadOnly)
}

func FuzzPartition(f *testing.F) {
	for _, word := range []string{"", "s", "x", "ssxss", "xsxsxsxs", "ssssssssssssssssssssx"} {
		for i := range strategies {
			f.Add(i, word)
		}
	}
	f.Fuzz(func(t *testing.T, strategy int, word string) {
		if len(word) > 200 {
			return // a view is checked for every prefix: keep it quadratic, not slow
		}
		s := strategies[uint(strategy)%uint(len(strategies))]
		sx := make([]byte, len(word))
		for i := range sx {
			sx[i] = "sx"[word[i]&1]
		}
		classes := classesOf(string(sx))
		if got, want := Groups(s, classes), twin(s, string(sx)); !equal(got, want) {
			t.Fatalf("Groups(%q, %s) = %v, want %v", s, sx, got, want)
		}
		if err := follow(s, classes); err != nil {
			t.Fatalf("%q, %s: %v", s, sx, err)
		}
	})
}

func ExamplePartitioner() {
	p := New(toolyard.Consecutive)
	for _, c := range []toolyard.Class{toolyard.ReadOnly, toolyard.ReadOnly, toolyard.WriteExclusive,
		toolyard.ReadOnly} {
		p.Add(c)
		fmt.Printf("%v: %d final, %d may start\n", p.Groups(), p.Final(), p.Startable())
	}
	p.Close()
	fmt.Printf("closed: %d final\n", p.Final())
	// Output:
	// [{true [0]}]: 0 final, 1 may start
	// [{true [0 1]}]: 0 final, 1 may start
	// [{true [0 1]} {false [2]}]: 2 final, 2 may start
	// [{true [0 1]} {false [2]} {true [3]}]: 2 final, 3 may start
	// closed: 3 final
}
