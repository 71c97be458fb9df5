package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/toolyard/toolyard/internal/events"
)

// TestInterruptsAtOnce: of two interrupts each may have read another shard later. Whichever is noted last, what one of
// them stops is stopped, and an earlier one changes nothing.
func TestInterruptsAtOnce(t *testing.T) {
	at := func(reason string, shards ...uint64) Interrupt {
		return Interrupt{Through: shards[0], Others: shards[1:], Interrupted: events.Interrupted{Reason: reason}}
	}
	for i, tt := range []struct{ first, second, want Interrupt }{
		{at("a", 5, 3), at("b", 4, 6), at("b", 5, 6)},
		{at("b", 4, 6), at("a", 5, 3), at("a", 5, 6)},
		{at("a", 1, 9, 2), at("b", 2), at("b", 2, 9, 2)}, // by who does not know the other shards
		{at("a", 2), at("b", 1, 9, 2), at("b", 2, 9, 2)},
		{at("a", 5, 6, 7), at("b", 5, 6, 7), at("a", 5, 6, 7)},
		{at("a", 5, 6), at("b", 4, 6), at("a", 5, 6)},
		{at("a", 5, 6), at("b", 6, 7), at("b", 6, 7)},
	} {
		var s Session
		s.Interrupt(tt.first)
		second := fmt.Sprint(tt.second)
		s.Interrupt(tt.second)
		if got, want := fmt.Sprint(*s.Interrupted), fmt.Sprint(tt.want); got != want {
			t.Errorf("%d: %v and then %v are %s, want %s", i, tt.first, tt.second, got, want)
		}
		if now := fmt.Sprint(tt.second); now != second {
			t.Errorf("%d: the interrupt %s became %s", i, second, now)
		}
	}
}

// TestLowerInterrupt: an interrupt of a restored system names no submission that is not there, in any shard.
func TestLowerInterrupt(t *testing.T) {
	for i, tt := range []struct {
		through, newest []uint64
		want            string
		lowered         bool
	}{
		{[]uint64{5}, []uint64{5}, "[5]", false},
		{[]uint64{5}, []uint64{7}, "[5]", false},
		{[]uint64{9}, []uint64{7}, "[7]", true},
		{[]uint64{9, 4, 6}, []uint64{9, 5, 2}, "[9 4 2]", true},
		{[]uint64{9}, []uint64{10, 0, 0}, "[9]", false}, // the other shards were made later
	} {
		others := slices.Clone(tt.through[1:])
		s := Session{Interrupted: &Interrupt{Through: tt.through[0], Others: others}}
		lowered := s.LowerInterrupt(tt.newest)
		if got := fmt.Sprint(append([]uint64{s.Interrupted.Through}, s.Interrupted.Others...)); got != tt.want ||
			lowered != tt.lowered || !slices.Equal(others, tt.through[1:]) {
			t.Errorf("%d: it is %s, %t; want %s, %t", i, got, lowered, tt.want, tt.lowered)
		}
	}
	if (&Session{}).LowerInterrupt([]uint64{1}) {
		t.Error("a session without an interrupt has one that is lowered")
	}
}
