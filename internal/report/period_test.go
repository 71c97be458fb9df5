package report

import (
	"errors"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestBetween: a period is told by times and by how long ago they are, and its ends are in their order.
func TestBetween(t *testing.T) {
	for _, c := range []struct {
		since, until string
		from, to     time.Time
	}{
		{"", "", time.Time{}, time.Time{}},
		{"36h", "90m", noon.Add(-36 * time.Hour), noon.Add(-90 * time.Minute)},
		{"2026-11-23T08:00:00.5+01:00", "0s", noon.Add(-5*time.Hour + 500*time.Millisecond), noon},
		{"", "2001-01-01T00:00:00Z", time.Time{}, time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		from, to, err := Between("", c.since, c.until, noon)
		if err != nil || !from.Equal(c.from) || !to.Equal(c.to) {
			t.Errorf("%q to %q is %v to %v, %v", c.since, c.until, from, to, err)
		}
	}
	for _, c := range []struct{ since, until, field string }{
		{"yesterday", "", "--since"}, {"", "-3h", "--until"}, {"1h", "1h", "--since"}, {"1h", "2h", "--since"},
		{"", "0001-01-01T00:00:00Z", "--since"}, {"2026-11-23", "", "--since"}, {"", "36", "--until"},
	} {
		_, _, err := Between("--", c.since, c.until, noon)
		in, ok := errors.AsType[*toolyard.InputError](err)
		if !ok || in.Field != c.field {
			t.Errorf("%q to %q: %v", c.since, c.until, err)
		}
	}
}
