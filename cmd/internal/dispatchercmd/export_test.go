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
