package worker

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestAToolsetHasPlacesOfItsOwn: its calls neither wait for the slots of their class nor take them.
func TestAToolsetHasPlacesOfItsOwn(t *testing.T) {
	p := newSlots(map[toolyard.Class]int{toolyard.Unsafe: 1})
	ask := func(tool string, places int, own bool) *waiter {
		c := &waiter{class: toolyard.Unsafe, agent: "a", tool: tool, cap: places, ofToolset: own}
		p.enqueue(c)
		return c
	}
	has := func(c *waiter) bool {
		select {
		case <-c.granted:
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
	p.release(first)
	if !has(third) || has(other) {
		t.Error("the toolset's place is for the toolset's next call")
	}
	p.release(plain)
	if !has(other) {
		t.Error("the class's slot is for the class's next call")
	}
	p.release(second)
	p.release(third)
	p.release(other)
	if !p.await(t.Context(), ask("set", 2, true), time.Second) || p.free[toolyard.Unsafe] != 1 {
		t.Errorf("%d slots are free", p.free[toolyard.Unsafe])
	}
}
