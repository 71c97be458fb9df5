package audit

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestToolsAreCut: MaxTextBytes "is how long a text of an entry is; longer ones are cut".
func TestToolsAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l, err := Open(path, slog.Default())
	must.OK(t, err)
	e := Entry{Action: "submit"}
	for _, c := range "abcd" {
		e.HandIn(strings.Repeat(string(c), 4<<20)) // a tool's name in a submission is bounded by nothing else
	}
	l.Put(e)
	must.OK(t, l.Close())
	info, err := os.Stat(path)
	must.OK(t, err)
	if info.Size() > 64<<10 {
		t.Errorf("the line has %d bytes", info.Size())
	}
}

// TestTextsAreCutBetweenCharacters: a text that is too long has no half of one at its end.
func TestTextsAreCutBetweenCharacters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l, err := Open(path, slog.New(slog.DiscardHandler))
	must.OK(t, err)
	long := "x" + strings.Repeat("é", MaxTextBytes)
	l.Put(Entry{Action: "submit", Reason: long, Tools: []string{long}})
	for _, got := range []string{entries(t, path)[0].Reason, entries(t, path)[0].Tools[0]} {
		if !strings.HasPrefix(long, got) || len(got) != MaxTextBytes-1 {
			t.Errorf("%d bytes, which end in %q", len(got), got[len(got)-3:])
		}
	}
}
