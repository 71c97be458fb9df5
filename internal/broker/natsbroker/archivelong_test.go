package natsbroker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// longBatch is a batch that is over, and whose log has about so many halves of a MiB.
func longBatch(y *archiveYard, id string, halves int) {
	y.Helper()
	sub := y.submit(id)
	archivedShapes["answered at plan"](y, sub)
	last := uint64(0)
	for range halves {
		last = y.append(sub.Key(), batch.ChainControl, 0, last, events.Canceled{By: "x",
			Reason: strings.Repeat("a long reason ", 36_000)})
	}
}

// TestARoundHoldsNoMoreThanAnObject: what is read of batches is stored when it fills an object, before more is read. A
// round with many long batches needs no memory for all of them, and one that is cut off has archived some.
func TestARoundHoldsNoMoreThanAnObject(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		for _, id := range []string{"one", "two", "three"} {
			longBatch(y, id, 20)
		}
		y.acknowledge(3)
		var taken []string
		a := y.archiver(y.b, func(what string) error { taken = append(taken, what); return nil })
		r, err := y.round(a)
		if err != nil || r.Batches != 3 {
			y.Fatalf("%+v, %v", r, err)
		}
		first := slices.Index(taken, "object")
		if !slices.ContainsFunc(taken[first:], func(what string) bool {
			return strings.HasPrefix(what, string(events.ChainEnded)) && strings.Contains(what, ".three.")
		}) {
			y.Errorf("all batches were read before the first one was stored: %q", taken)
		}
	})
}

// TestATooLongLogIsNotTouched: a batch whose log fits into no object gets no fences, and does not keep others from
// being archived.
func TestATooLongLogIsNotTouched(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		longBatch(y, "long", 36)
		longBatch(y, "short", 1)
		y.acknowledge(2)
		a := y.archiver(y.b, func(what string) error {
			if strings.Contains(what, ".long.") {
				y.Errorf("%s", what)
			}
			return nil
		})
		r, err := y.round(a)
		if err != nil || r.Batches != 1 {
			y.Errorf("%+v, %v", r, err)
		}
		if s, err := y.b.Look(y.Context(), keyOf("long")); err != nil || !s.Completed {
			y.Errorf("it is read as %+v, %v", s, err)
		}
	})
}
