//go:build unix

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestALowerTokenIsFenced: of two processes that act on a workspace, the one with the lower token is refused, also when
// the other has acted since it looked last.
func TestALowerTokenIsFenced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	one, other := opened(t, path), opened(t, path)
	effect := func(token uint64) Line { return Line{Kind: Effect, Workspace: "w", Token: token} }
	for _, step := range []struct {
		by     *Ledger
		line   Line
		fenced bool
	}{
		{by: one, line: effect(2)}, {by: other, line: effect(2)}, {by: other, line: effect(3)},
		{by: one, line: effect(2), fenced: true}, {by: one, line: effect(3)},
		{by: one, line: Line{Kind: Effect, Workspace: "another", Token: 1}},
		{by: one, line: effect(0)}, // of no ticket
		{by: one, line: effect(4)}, {by: other, line: effect(3), fenced: true},
	} {
		if err := step.by.Do(step.line); errors.Is(err, ErrFenced) != step.fenced || err != nil && !step.fenced {
			t.Errorf("%+v: %v", step.line, err)
		}
	}
	lines, err := Read(path)
	must.OK(t, err)
	fenced := 0
	for _, l := range lines {
		if l.Kind == Fenced {
			fenced++
		}
	}
	if len(lines) != 9 || fenced != 2 {
		t.Errorf("%d lines, of which %d are fenced: %+v", len(lines), fenced, lines)
	}
}

// TestALineIsReadWhole: a reader leaves a line that is being written, and has it when it is whole.
func TestALineIsReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	r := NewReader(path)
	for _, step := range []struct {
		text  string
		lines int
	}{
		{}, {text: `{"kind":"begin"}` + "\n" + `{"kind":`, lines: 1}, {}, {text: `"end"}` + "\n", lines: 1}, {},
	} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must.OK(t, err)
		if _, err := f.WriteString(step.text); err != nil {
			t.Fatal(err)
		}
		must.OK(t, f.Close())
		if got, err := r.New(); err != nil || len(got) != step.lines {
			t.Errorf("after %q: %d lines, want %d; %v", step.text, len(got), step.lines, err)
		}
	}
}

func opened(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := Open(path)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
