package dispatchercmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/history"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestExportWithoutLinks: a table gets its name also where the file system has no links, and then too it replaces none.
func TestExportWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	publish := func(taken bool) {
		t.Helper()
		table, err := newTable[history.Batch](&exporting{dir: dir, format: formatJSONLines}, "batches")
		must.OK(t, err)
		table.link = func(from, to string) error {
			if taken { // somebody was faster
				if err := os.WriteFile(to, []byte("theirs"), 0o600); err != nil {
					t.Error(err)
				}
			}
			return &os.LinkError{Op: "link", Old: from, New: to, Err: os.ErrPermission}
		}
		must.OK(t, errors.Join(table.write(&history.Batch{}), table.finish()))
		err = table.publish()
		if _, usage := errors.AsType[*cli.UsageError](err); usage != taken || err != nil && !taken {
			t.Errorf("publish: %v", err)
		}
		if err := table.discard(); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(table.name)
		if err != nil || (string(got) == "theirs") != taken || len(got) == 0 {
			t.Errorf("the table has %q (%v)", got, err)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("there are %v (%v)", all, err)
		}
		if err := os.Remove(filepath.Join(dir, "batches.jsonl")); err != nil {
			t.Error(err)
		}
	}
	publish(false)
	publish(true)
}

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
		must.OK(t, errors.Join(p.show(after(499), 2, 1), p.show(after(500), 3, 1), p.show(after(999), 4, 1),
			p.show(after(1100), 5, 90), p.clear()))
		if out.String() != c.want {
			t.Errorf("on %t: %q, want %q", c.on, out.String(), c.want)
		}
	}
}
