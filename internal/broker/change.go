package broker

import (
	"errors"
	"fmt"
	"time"
)

// FillAfterChange is how full, in percent, a stream may be of its size after the store was made smaller: new batches
// are taken and those under way have room, also what comes while it is made smaller.
const FillAfterChange = 50

// Stored is what a system holds and runs when its settings are to change.
type Stored struct {
	Streams []Content
	// UnderWay says that batches are not complete, parked ones included.
	UnderWay bool
	// Running says that a dispatcher or a worker runs.
	Running bool
}

// Content is what a stream or bucket holds.
type Content struct {
	Name string
	// Bytes are used; MaxBytes is its size after the change.
	Bytes, MaxBytes int64
	// Oldest is when the oldest message came; zero if there is none, or if messages do not age.
	Oldest time.Time
}

// With returns the settings with another lifetime, size and compression of the store: those that a running system may
// change. Zero fields of want stay as they are. It returns an error for another value of any other setting, and for a
// relation that would be violated.
func (s Settings) With(want Settings) (Settings, error) {
	next := s
	if want.Lifetime != 0 {
		next.Lifetime, want.Lifetime = want.Lifetime, 0
	}
	if want.MaxStoreBytes != 0 {
		next.MaxStoreBytes, want.MaxStoreBytes = want.MaxStoreBytes, 0
	}
	if want.Compression != "" {
		next.Compression, want.Compression = want.Compression, ""
	}
	if err := s.Agree(want); err != nil {
		return s, err
	}
	if err := next.Check(); err != nil {
		return s, err
	}
	return next, nil
}

// MayBecome returns an error if a change of the lifetime or of the store's size breaks what was promised for what the
// system holds. Both may grow at any time. A store that becomes smaller needs room in every stream. A lifetime that
// becomes shorter must delete nothing, and neither a batch nor a process may rely on the longer one.
func (s Settings) MayBecome(next Settings, in Stored, now time.Time) error {
	var errs []error
	if next.PartBytes() < s.PartBytes() {
		for _, c := range in.Streams {
			if most := c.MaxBytes / 100 * FillAfterChange; c.Bytes > most {
				errs = append(errs, fmt.Errorf("max-store-bytes: %s holds %d bytes, and with a store of %d it would "+
					"have room for %d, of which at most %d %% may be used: wait until batches have aged, or name a "+
					"larger store", c.Name, c.Bytes, next.MaxStoreBytes, c.MaxBytes, FillAfterChange))
				break
			}
		}
	}
	if next.Lifetime < s.Lifetime {
		kept := next.Lifetime + next.Slack
		switch oldest := in.oldest(); {
		case in.Running:
			errs = append(errs, fmt.Errorf("batch-lifetime: dispatchers or workers run and rely on %s: stop all of "+
				"them before it becomes shorter", s.Lifetime))
		case in.UnderWay:
			errs = append(errs, fmt.Errorf("batch-lifetime: batches are under way that were promised %s: let them "+
				"end, or cancel them, before it becomes shorter", s.Lifetime))
		case !oldest.Oldest.IsZero() && now.Sub(oldest.Oldest) >= kept:
			errs = append(errs, fmt.Errorf("batch-lifetime: %s holds what came %s ago and was promised %s; with %s it "+
				"would be deleted, and the ids of those batches would run again: wait, or name a longer time",
				oldest.Name, now.Sub(oldest.Oldest).Round(time.Second), s.Lifetime, next.Lifetime))
		}
	}
	return errors.Join(errs...)
}

// oldest is the content with the oldest message.
func (in Stored) oldest() (o Content) {
	for _, c := range in.Streams {
		if !c.Oldest.IsZero() && (o.Oldest.IsZero() || c.Oldest.Before(o.Oldest)) {
			o = c
		}
	}
	return o
}
