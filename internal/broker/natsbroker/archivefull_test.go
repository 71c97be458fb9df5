package natsbroker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// limit sets how many bytes a stream may have, and returns how many it could have before.
func (y *archiveYard) limit(stream string, bytes int64) (before int64) {
	y.Helper()
	s, err := y.js.Stream(y.Context(), stream)
	must.OK(y, err)
	cfg := s.CachedInfo().Config
	before, cfg.MaxBytes = cfg.MaxBytes, bytes
	if _, err := y.js.UpdateStream(y.Context(), cfg); err != nil {
		y.Fatal(err)
	}
	return before
}

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
		room := y.limit("TY_ARCHIVE", 1)
		for range 2 {
			if r, err := y.round(a); !errors.Is(err, broker.ErrFull) || r.Batches != 0 {
				y.Fatalf("a full archive: %+v, %v", r, err)
			}
		}
		y.limit("TY_ARCHIVE", room)
		if r, err := y.round(a); err != nil || r.Batches != 2 {
			y.Errorf("with room again it archived %d batches, want 2: %v", r.Batches, err)
		}
	})
}

// TestAnObjectIsStoredOnce: while there is no room for the records of batches whose object is stored, each try stores
// the same object in the place of the one before. Others would have no record, and would fill the archive.
func TestAnObjectIsStoredOnce(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		for _, id := range []string{"one", "two"} {
			archivedShapes["answered at plan"](y, y.submit(id))
		}
		y.acknowledge(2)
		key, err := nkeys.CreateUser()
		must.OK(y, err)
		signer, err := archive.NewSigner(key, "d1")
		must.OK(y, err)
		room := int64(0)
		a := y.archiver(y.b, func(what string) error {
			if what == "object" && room == 0 {
				room = y.limit("TY_EVENT", 1)
			}
			return nil
		})
		natsbroker.SignWith(a, signer)
		objects := func() uint64 {
			s, err := y.js.Stream(y.Context(), "TY_ARCHIVE")
			must.OK(y, err)
			return s.CachedInfo().State.Msgs
		}
		const hour = 360 // rounds
		for range hour {
			if r, err := a.Round(y.Context()); r.Batches != 0 || room > 0 && err == nil {
				y.Fatalf("without room for records: %+v, %v", r, err)
			}
			time.Sleep(10 * time.Second)
		}
		if n := objects(); n > 2 {
			y.Errorf("%d objects are stored of two batches", n)
		}
		y.limit("TY_EVENT", room)
		if r, err := y.round(a); err != nil || r.Batches != 2 {
			y.Errorf("with room again it archived %d batches, want 2: %v", r.Batches, err)
		}
	})
}
