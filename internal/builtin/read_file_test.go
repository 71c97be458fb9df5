//go:build unix

package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

func numberedLines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "%d\tline %d\n", i, i)
	}
	return b.String()
}

func plainLines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestReadFile(t *testing.T) {
	b := newBench(t)
	b.put("big", plainLines(5000))
	b.put("empty", "")
	b.put("no-end", "one\ntwo")
	b.put("crlf", "one\r\ntwo\r\n")
	b.put("mixed", "one\r\ntwo\nthree")
	b.put("bom", "\ufeffone\n")
	b.put("blank", "\n\n")
	b.put("tab\there\n", "odd name\n")
	for _, c := range []struct {
		input in
		want  string
	}{
		{in{"file_path": "big", "limit": 2},
			"1\tline 1\n2\tline 2\n[more lines follow: call read_file again with offset 3]"},
		{in{"file_path": "big"}, numberedLines(1, 2000) + "[more lines follow: call read_file again with offset 2001]"},
		{in{"file_path": "big", "offset": 4999}, numberedLines(4999, 5000)},
		{in{"file_path": "big", "offset": 5000, "limit": 1}, numberedLines(5000, 5000)},
		{in{"file_path": "no-end"}, "1\tone\n2\ttwo\n"},
		{in{"file_path": "no-end", "offset": 2}, "2\ttwo\n"},
		{in{"file_path": "crlf"}, "1\tone\n2\ttwo\n[lines of this file end in \\r\\n]\n"},
		{in{"file_path": "mixed"}, "1\tone\n2\ttwo\n3\tthree\n[some lines of this file end in \\r\\n, others in \\n]\n"},
		{in{"file_path": "mixed", "limit": 1}, "1\tone\n[lines of this file end in \\r\\n]\n" +
			"[more lines follow: call read_file again with offset 2]"},
		{in{"file_path": "bom"}, "1\tone\n"},
		{in{"file_path": "blank"}, "1\t\n2\t\n"},
		{in{"file_path": "empty"}, "[empty is an empty file]"},
		{in{"file_path": "tab\there\n"}, "1\todd name\n"},
	} {
		if got := b.ok("read_file", c.input); got != c.want {
			t.Errorf("%v:\n%.300q\nwant\n%.300q", c.input, got, c.want)
		}
	}
	for offset, want := range map[int]string{5001: "has 5000 lines", 9999: "has 5000 lines"} {
		_, err := b.tools["read_file"].Run(t.Context(), b.env, encode(in{"file_path": "big", "offset": offset}))
		if tool.AsError(err).Code != toolyard.InvalidArguments || !strings.Contains(err.Error(), want) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	for name, want := range map[string]string{"no-end": "has 2 lines", "empty": "has 0 lines"} {
		_, err := b.tools["read_file"].Run(t.Context(), b.env, encode(in{"file_path": name, "offset": 3}))
		if tool.AsError(err).Code != toolyard.InvalidArguments || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadFileOfBytes(t *testing.T) {
	b := newBench(t)
	for name, content := range map[string]string{
		"nul": "a\x00b", "latin1": "caf\xe9\n", "utf16": "\xff\xfea\x00\n\x00", "cut-rune": "abc\xe2\x82",
		"late-in-probe": strings.Repeat("x", BinaryProbeBytes-1) + "\x00",
	} {
		b.put(name, content)
		b.contains(b.refused(toolyard.InvalidArguments, "read_file", in{"file_path": name}), "binary file of "+
			fmt.Sprint(len(content)))
	}
	// A character across the end of the probe is no sign of bytes.
	b.put("rune-at-probe", strings.Repeat("x\n", BinaryProbeBytes/2-1)+"x€€\n")
	b.contains(b.ok("read_file", in{"file_path": "rune-at-probe", "limit": 5000}), "x€€")
	// Bytes past the probe end the answer, and are refused when nothing else would be in it.
	b.put("late", strings.Repeat("text\n", 2000)+"\x00\x01\n")
	b.contains(b.ok("read_file", in{"file_path": "late", "offset": 2000}),
		"2000\ttext\n[line 2001 and what follows is binary")
	_, err := b.tools["read_file"].Run(t.Context(), b.env, encode(in{"file_path": "late", "offset": 2001}))
	if tool.AsError(err).Code != toolyard.InvalidArguments || !strings.Contains(err.Error(), "from line 2001") {
		t.Errorf("bytes only: %v", err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	b := newBench(t)
	b.put("long", strings.Repeat("é", MaxLineChars+5)+"\nshort\n"+strings.Repeat("y", 200_000)+"\nlast")
	out := b.ok("read_file", in{"file_path": "long"})
	want := "1\t" + strings.Repeat("é", MaxLineChars) + "… [cut: the line has 4011 bytes (3.9 KiB)]\n2\tshort\n3\t" +
		strings.Repeat("y", MaxLineChars) + "… [cut: the line has 200001 bytes (195.3 KiB)]\n4\tlast\n"
	if out != want {
		t.Errorf("long lines: %.100q ... %.200q", out, out[len(out)-min(len(out), 200):])
	}
	b.put("wide", strings.Repeat(strings.Repeat("z", 1999)+"\n", 500))
	out = b.ok("read_file", in{"file_path": "wide"})
	if len(out) > MaxOutputBytes {
		t.Errorf("an answer of %d bytes", len(out))
	}
	b.contains(out, "[more lines follow: this answer is full; call read_file again with offset 131]")
}

// TestReadFileOf5GB reads a sparse file that no reader should go through.
func TestReadFileOf5GB(t *testing.T) {
	b := newBench(t)
	b.put("huge", plainLines(3000))
	b.must(os.Truncate(b.at("huge"), 5<<30))
	start := time.Now()
	b.contains(b.ok("read_file", in{"file_path": "huge"}), "offset 2001")
	b.contains(b.ok("read_file", in{"file_path": "huge", "offset": 3000}),
		"3000\tline 3000\n[line 3001 and what follows is binary")
	// Deep in the hole: the scan stops at its limit, long before the end.
	_, err := b.tools["read_file"].Run(t.Context(), b.env, encode(in{"file_path": "huge", "offset": 100_000}))
	if tool.AsError(err).Code != toolyard.InvalidArguments || !strings.Contains(err.Error(), "looks no further") {
		t.Errorf("deep in the file: %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	gone := errors.New("the worker drains")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := b.tools["read_file"].Run(ctx, b.env, encode(in{"file_path": "huge",
		"offset": 100_000})); !errors.Is(err, gone) {
		t.Errorf("a canceled read: %v", err)
	}
	// A hole from the start is bytes, not text.
	b.must(os.WriteFile(b.at("hole"), nil, 0o644))
	b.must(os.Truncate(b.at("hole"), 5<<30))
	b.contains(b.refused(toolyard.InvalidArguments, "read_file", in{"file_path": "hole"}),
		"binary file of 5368709120 bytes (5.0 GiB)")
	b.contains(b.refused(toolyard.InvalidArguments, "edit_file",
		in{"file_path": "huge", "old_string": "a", "new_string": "b"}), "at most 10485760")
	b.contains(b.ok("grep", in{"pattern": "line", "path": "huge"}), "[skipped: 1 over 10 MiB]")
}

// TestLinesAgreeWithADumbTwin cuts all short texts of four kinds of bytes at every offset.
func TestLinesAgreeWithADumbTwin(t *testing.T) {
	var texts []string
	level := []string{""}
	for range 6 {
		var next []string
		for _, s := range level {
			for _, c := range []string{"a", "\n", "\r", "é"} {
				next = append(next, s+c)
			}
		}
		texts, level = append(texts, next...), next
	}
	for _, text := range texts {
		want := strings.SplitAfter(text, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		for offset := range len(want) + 2 {
			l := newLines(strings.NewReader(text), 1<<20)
			skipped, err := l.skip(int64(offset))
			if err != nil || skipped != int64(min(offset, len(want))) {
				t.Fatalf("%q: skip %d: %d, %v", text, offset, skipped, err)
			}
			for _, w := range want[min(offset, len(want)):] {
				got, err := l.next()
				if body, ok := strings.CutSuffix(w, "\r\n"); ok {
					w = body
				}
				if w = strings.TrimSuffix(w, "\n"); err != nil || got.text != w {
					t.Fatalf("%q from %d: %q, %v; want %q", text, offset, got.text, err, w)
				}
			}
			if !l.atEnd() {
				t.Fatalf("%q from %d: more lines", text, offset)
			}
		}
	}
}

// TestLinesAcrossChunks makes line ends fall on every place around the end of the reader's buffer.
func TestLinesAcrossChunks(t *testing.T) {
	const chunk = 64 << 10
	for shift := -3; shift <= 3; shift++ {
		text := strings.Repeat("x", chunk+shift) + "\nsecond\n" + strings.Repeat("y", 2*chunk) + "\nlast"
		for skip, want := range []string{strings.Repeat("x", MaxLineChars), "second", strings.Repeat("y", MaxLineChars),
			"last"} {
			l := newLines(strings.NewReader(text), 1<<20)
			if n, err := l.skip(int64(skip)); n != int64(skip) || err != nil {
				t.Fatalf("shift %d: skip %d: %d, %v", shift, skip, n, err)
			}
			if got, err := l.next(); err != nil || got.text != want {
				t.Fatalf("shift %d, line %d: %.20q, %v", shift, skip+1, got.text, err)
			}
		}
		l := newLines(strings.NewReader(text), 1<<20)
		if n, err := l.skip(10); n != 4 || err != nil {
			t.Fatalf("shift %d: %d lines, %v", shift, n, err)
		}
	}
	l := newLines(strings.NewReader(strings.Repeat("x\n", chunk)), 1000)
	if _, err := l.skip(chunk); err != errScanLimit {
		t.Errorf("past the limit: %v", err)
	}
}
