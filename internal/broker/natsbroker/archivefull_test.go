package natsbroker_test

import (
	"errors"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// TestAFullArchiveGoesOnWithRoom: while the archive is full, batches stay in the streams. All of them are archived when
// it has room again, however many there were meanwhile.
func TestAFullArchiveGoesOnWithRoom(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		for _, id := range []string{"one", "two"} {
			archivedShapes["answered at plan"](y, y.submit(id))
		}
		y.acknowledge(2)
		a := y.archiver(y.b, always)
		natsbroker.LeaveAsManyAsFit(a)
		limit := func(bytes int64) (before int64) {
			s, err := y.js.Stream(y.Context(), "TY_ARCHIVE")
			if err != nil {
				y.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			before, cfg.MaxBytes = cfg.MaxBytes, bytes
			if _, err := y.js.UpdateStream(y.Context(), cfg); err != nil {
				y.Fatal(err)
			}
			return before
		}
		room := limit(1)
		for range 2 {
			if r, err := y.round(a); !errors.Is(err, broker.ErrFull) || r.Batches != 0 {
				y.Fatalf("a full archive: %+v, %v", r, err)
			}
		}
		limit(room)
		if r, err := y.round(a); err != nil || r.Batches != 2 {
			y.Errorf("with room again it archived %d batches, want 2: %v", r.Batches, err)
		}
	})
}
