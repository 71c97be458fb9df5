//go:build unix

package builtin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/schema"
)

// changed runs a tool that writes, and returns its change, which must fit its own schema.
func (b *bench) changed(name string, input in) change {
	b.Helper()
	t := b.tools[name]
	out, err := t.Run(b.Context(), b.env, encode(input))
	b.must(err)
	s, err := schema.CompileOutput(t.OutputSchema)
	b.must(err)
	b.must(s.Validate(out.Structured))
	var got change
	b.must(json.Unmarshal(out.Structured, &got))
	return got
}

func (b *bench) foretold(name string, input in) string {
	b.Helper()
	text, err := b.tools[name].Diff(b.Context(), b.env, encode(input))
	b.must(err)
	return text
}

// TestWritesGiveADiff: the output has the change of a write or an edit as data, and the diff shows it beforehand.
func TestWritesGiveADiff(t *testing.T) {
	b := newBench(t)
	created := "--- /dev/null\n+++ b/src/a.txt\n@@ -0,0 +1,3 @@\n+one\n+two\n+three\n"
	input := in{"file_path": "src/a.txt", "content": "one\ntwo\nthree\n"}
	if got := b.foretold("write_file", input); got != created || strings.Contains(b.names(), "a.txt") {
		t.Errorf("before the file is made: %q, %s", got, b.names())
	}
	if got := b.changed("write_file", input); got != (change{FilePath: "src/a.txt", Created: true, Added: 3,
		Diff: created}) {
		t.Errorf("a new file: %+v", got)
	}
	edited := "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
	input = in{"file_path": "src/a.txt", "old_string": "two", "new_string": "2"}
	if got := b.foretold("edit_file", input); got != edited || b.content("src/a.txt") != "one\ntwo\nthree\n" {
		t.Errorf("before the edit: %q", got)
	}
	if got := b.changed("edit_file", input); got != (change{FilePath: "src/a.txt", Added: 1, Removed: 1,
		Diff: edited}) {
		t.Errorf("an edit: %+v", got)
	}
	if got := b.changed("write_file", in{"file_path": "src/a.txt",
		"content": "one\n2\nthree"}); got.Diff != "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,3 +1,3 @@\n one\n "+
		"2\n-three\n+three\n\\ No newline at end of file\n" {
		t.Errorf("a last line without its end: %q", got.Diff)
	}
	if got := b.changed("write_file", in{"file_path": "src/a.txt",
		"content": "one\n2\nthree"}); got != (change{FilePath: "src/a.txt"}) {
		t.Errorf("the same again: %+v", got)
	}
	b.put("image", "\x89PNG\x00\x01")
	if got := b.changed("write_file", in{"file_path": "image", "content": "text\n"}); got.Diff != "" ||
		!strings.Contains(got.Note, "not text") {
		t.Errorf("over what is no text: %+v", got)
	}
	b.put("odd\nname", "x\n")
	if got := b.changed("write_file", in{"file_path": "odd\nname", "content": "y\n"}); strings.Count(got.Diff,
		"\n") != 5 {
		t.Errorf("a name with a line's end in it: %q", got.Diff)
	}
}

// TestDiffsAreBounded in time and size, whatever is written over whatever.
func TestDiffsAreBounded(t *testing.T) {
	b := newBench(t)
	var before, after strings.Builder
	for i := range 60_000 { // nothing in common but every third line
		before.WriteString(strings.Repeat("a", i%7) + "\n")
		after.WriteString(strings.Repeat("b", i%5) + "\n")
	}
	b.put("big", before.String())
	began := time.Now()
	got := b.changed("write_file", in{"file_path": "big", "content": after.String()})
	if len(got.Diff) > MaxDiffBytes || !strings.HasSuffix(got.Diff, "\n") ||
		!strings.Contains(got.Note, "lines of the diff are left out") || got.Added == 0 {
		t.Errorf("%d bytes of diff, %d lines added, note %q", len(got.Diff), got.Added, got.Note)
	}
	t.Logf("it took %s", time.Since(began))
	b.put("huge", strings.Repeat("x", MaxDiffFileBytes+1))
	if got = b.changed("write_file", in{"file_path": "huge", "content": "y\n"}); got.Diff != "" ||
		!strings.Contains(got.Note, "too long") {
		t.Errorf("a file that is too long: %q %q", got.Diff, got.Note)
	}
	b.put("line", strings.Repeat("x", MaxDiffBytes))
	if got = b.changed("write_file", in{"file_path": "line", "content": "y\n"}); len(got.Diff) > MaxDiffBytes ||
		got.Note == "" {
		t.Errorf("a line that is too long: %d bytes %q", len(got.Diff), got.Note)
	}
}

// TestDiffsOfWhatIsNoText: neither side of a diff that is no text is shown as text.
func TestDiffsOfWhatIsNoText(t *testing.T) {
	const image, text = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "text\n"
	for _, c := range []struct {
		before, after []byte
		note          string
	}{
		{nil, []byte(image), "what is there now is not text"},
		{[]byte(text), []byte(image), "what is there now is not text"},
		{[]byte(image), []byte(text), "what was there is not text, or cannot be read"},
		{[]byte(image), nil, "what was there is not text, or cannot be read"},
		{[]byte(text), nil, ""}, {nil, []byte("é" + text), ""}, {nil, []byte{}, ""},
	} {
		if diff, note := Diff("a", c.before, c.after); note != c.note || strings.Contains(diff, "PNG") {
			t.Errorf("%q to %q: %q (%s), want the note %q", c.before, c.after, diff, note, c.note)
		}
	}
}
