package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/toolyard/toolyard/tool"
)

// change is what a write has changed, as data.
type change struct {
	FilePath string `json:"file_path"`
	Created  bool   `json:"created"`
	Added    int    `json:"lines_added"`
	Removed  int    `json:"lines_removed"`
	// Diff is a unified diff; empty if nothing has changed. Note says why it is missing or cut.
	Diff string `json:"diff"`
	Note string `json:"note"`
}

// changeSchema is the schema of a change.
var changeSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"file_path":{"type":"string","description":"The file, relative to the workspace's directory."},` +
	`"created":{"type":"boolean","description":"Whether there was no such file before."},` +
	`"lines_added":{"type":"integer","description":"How many lines the file has gained."},` +
	`"lines_removed":{"type":"integer","description":"How many lines the file has lost."},` +
	`"diff":{"type":"string","description":"The change as a unified diff; empty when nothing has changed."},` +
	`"note":{"type":"string","description":"Why the diff is not there, or not whole; empty when it is."}},` +
	`"required":["file_path","created","lines_added","lines_removed","diff","note"],"additionalProperties":false}`)

// diffContext is how many lines around a change a diff has.
const diffContext = 3

// changeOf compares a file's two contents. created says that there was no file. Its work is bounded: it does not
// compare long contents, cuts a long diff, and compares coarsely past a number of differences.
func changeOf(name string, before, after []byte, created bool) change {
	c := change{FilePath: name, Created: created}
	head := before[:min(len(before), BinaryProbeBytes)]
	switch {
	case len(before) > MaxDiffFileBytes || len(after) > MaxDiffFileBytes:
		c.Note = fmt.Sprintf("the content is too long for a diff; at most %d bytes are compared", MaxDiffFileBytes)
		return c
	case isBinary(head, len(head) == len(before)):
		c.Note = "what was there is not text, or cannot be read"
		return c
	}
	from, to := "a/"+headerName(name), "b/"+headerName(name)
	if created {
		from = "/dev/null"
	}
	old := string(before)
	edits := udiff.Lines(old, string(after))
	if len(edits) == 0 {
		return c
	}
	text, err := udiff.ToUnified(from, to, old, edits, diffContext)
	if err != nil {
		c.Note = "no diff could be made: " + err.Error()
		return c
	}
	lines := strings.SplitAfter(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	size, shown := 0, 0
	for i, line := range lines {
		if i >= 2 { // after the names
			switch {
			case strings.HasPrefix(line, "+"):
				c.Added++
			case strings.HasPrefix(line, "-"):
				c.Removed++
			}
		}
		if size += len(line); size <= MaxDiffBytes {
			shown = i + 1
		}
	}
	c.Diff = strings.Join(lines[:shown], "")
	if left := len(lines) - shown; left > 0 {
		c.Note = fmt.Sprintf("%d lines of the diff are left out; at most %d bytes of it are given", left, MaxDiffBytes)
	}
	return c
}

// Diff compares two contents of a file and returns a unified diff, or a note why it is missing or cut. Nil is the
// content of a file that is not there.
func Diff(name string, before, after []byte) (diff, note string) {
	// A command may have written it, so that it may be anything.
	if head := after[:min(len(after), BinaryProbeBytes)]; isBinary(head, len(head) == len(after)) {
		return "", "what is there now is not text"
	}
	c := changeOf(name, before, after, before == nil)
	if after == nil {
		c.Diff = strings.Replace(c.Diff, "+++ b/"+headerName(name)+"\n", "+++ /dev/null\n", 1)
	}
	return c.Diff, c.Note
}

// headerName is a file's name in a diff: quoted, as git does it, if it would break the line.
func headerName(name string) string {
	quoted := strconv.Quote(name)
	if quoted == `"`+name+`"` || utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return name
	}
	return quoted
}

// output is the output of a write: a line for the model, and the change as structured data.
func (c change) output(text string) tool.Output {
	return tool.Output{Text: text, Structured: mustJSON(c)}
}

// preview describes the change for a person who decides about it: the diff, and the note.
func (c change) preview() string {
	if c.Note == "" {
		return c.Diff
	}
	return c.Diff + "\\ " + c.Note + "\n"
}

// withDiff adds [tool.Tool.Diff] to a tool that writes.
func withDiff[In any](t tool.Tool, err error, plan func(context.Context, *workspace, In) (change, error)) (tool.Tool,
	error) {
	t.Diff = func(ctx context.Context, env tool.Env, input json.RawMessage) (string, error) {
		in, err := decode[In](input)
		if err != nil {
			return "", err
		}
		w, err := openWorkspace(env)
		if err != nil {
			return "", err
		}
		defer w.close()
		c, err := plan(ctx, w, in)
		return c.preview(), err
	}
	return t, err
}
