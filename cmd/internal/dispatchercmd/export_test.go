package dispatchercmd

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestExportProgress: a terminal sees how far an export is, twice a second, and nothing of that in the end. Nobody else
// sees it.
func TestExportProgress(t *testing.T) {
	begin := time.Now()
	after := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		on   bool
		want string
	}{{true, "\r\x1b[K3 batches, 1 call\r\x1b[K5 batches, 90 calls\r\x1b[K"}, {false, ""}} {
		var out strings.Builder
		p := progress{w: &out, on: c.on, last: begin}
		if err := errors.Join(p.show(after(499), 2, 1), p.show(after(500), 3, 1), p.show(after(999), 4, 1),
			p.show(after(1100), 5, 90), p.clear()); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("on %t: %q, want %q", c.on, out.String(), c.want)
		}
	}
}

// TestMoments: a time is one of RFC 3339, or how long ago.
func TestMoments(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                            {},
		"36h":                         now.Add(-36 * time.Hour),
		"0s":                          now,
		"2026-11-22T08:00:00Z":        now.Add(-24 * time.Hour),
		"2026-11-23T09:00:00.5+01:00": now.Add(500 * time.Millisecond),
	} {
		if got, err := momentOf("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1h", "yesterday", "2026-11-23", "36"} {
		if got, err := momentOf("--since", text, now); err == nil || !strings.Contains(err.Error(), "--since") {
			t.Errorf("%q is %v (%v)", text, got, err)
		}
	}
}
