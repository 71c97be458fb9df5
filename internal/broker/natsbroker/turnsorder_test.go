package natsbroker

import (
	"slices"
	"testing"
)

// TestThoseWhoWaitTakeTurns: nobody has more than a share under way, the others' is for others, and whoever waits comes
// once in a round.
func TestThoseWhoWaitTakeTurns(t *testing.T) {
	turns := newTurns(4, 2, 3, 100)
	var began []string
	want := func(who string, bytes int) bool {
		return turns.enter(who, bytes, func() { began = append(began, who) })
	}
	for n, ok := range []bool{true, true, true, true, true, false} { // two at once, and three wait
		if want("a", 1) != ok {
			t.Errorf("question %d is taken: %t", n, !ok)
		}
	}
	for n, b := range []int{1, 1, 1, 60} {
		if who := []string{"b", "b", "b", "c"}[n]; !want(who, b) {
			t.Errorf("%d bytes of %s are not taken", b, who)
		}
	}
	if want("c", 60) {
		t.Error("more bytes are taken than may wait")
	}
	if !slices.Equal(began, []string{"a", "a", "b", "b"}) {
		t.Errorf("under way are %q", began)
	}
	began = nil
	turns.leave("a")
	turns.leave("b")
	turns.leave("a")
	turns.leave("a")
	turns.leave("b")
	if !slices.Equal(began, []string{"a", "b", "c", "a", "a"}) {
		t.Errorf("then begin %q", began)
	}
	for _, who := range []string{"b", "c", "a", "a"} {
		turns.leave(who)
	}
	if turns.running != 0 || len(turns.each) != 0 || len(turns.order) != 0 {
		t.Errorf("at the end %d run, %v and %q are kept", turns.running, turns.each, turns.order)
	}
}
