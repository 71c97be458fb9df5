package broker

import (
	"slices"
	"testing"
	"time"
)

// TestYoungest: one worker of each pool speaks for it, whatever order they are listed in.
func TestYoungest(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 23, 8, minute, 0, 0, time.UTC) }
	live := []Worker{{ID: "a", Pool: "p", Started: at(1)}, {ID: "c", Pool: "p", Started: at(2)},
		{ID: "b", Pool: "p", Started: at(2)}, {ID: "z", Pool: "default", Started: at(0)}}
	for range 2 {
		got := Youngest(slices.Values(live))
		if len(got) != 2 || got[0].ID != "z" || got[1].ID != "c" {
			t.Errorf("%+v", got)
		}
		slices.Reverse(live)
	}
	if got := Youngest(slices.Values([]Worker(nil))); len(got) != 0 {
		t.Errorf("%+v of none", got)
	}
}
