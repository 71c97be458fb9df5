package worker

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestAToolsetHasPlacesOfItsOwn: its calls neither wait for the slots of their class nor take them.
func TestAToolsetHasPlacesOfItsOwn(t *testing.T) {
	p := newPlaces(map[toolyard.Class]int{toolyard.Unsafe: 1})
	ask := func(tool string, places int, own bool) *claimant {
		c := &claimant{class: toolyard.Unsafe, agent: "a", tool: tool, cap: places, own: own}
		p.ask(c)
		return c
	}
	has := func(c *claimant) bool {
		select {
		case <-c.mine:
			return true
		default:
			return false
		}
	}
	first, second, third := ask("set", 2, true), ask("set", 2, true), ask("set", 2, true)
	plain := ask("", 0, false)
	if !has(first) || !has(second) || has(third) || !has(plain) {
		t.Fatal("two calls of the toolset and one of the class should have a place")
	}
	other := ask("", 0, false)
	if has(other) {
		t.Error("the class has one slot, and it is taken")
	}
	p.give(first)
	if !has(third) || has(other) {
		t.Error("the toolset's place is for the toolset's next call")
	}
	p.give(plain)
	if !has(other) {
		t.Error("the class's slot is for the class's next call")
	}
	p.give(second)
	p.give(third)
	p.give(other)
	if !p.take(t.Context(), ask("set", 2, true), time.Second) || p.free[toolyard.Unsafe] != 1 {
		t.Errorf("%d slots are free", p.free[toolyard.Unsafe])
	}
}
