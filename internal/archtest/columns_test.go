package archtest

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxColumns is where a line of Go ends, with tabs of tabWidth columns.
const (
	maxColumns = 120
	tabWidth   = 4
)

// longLines returns the numbers of the lines that go on behind maxColumns and could be broken. One that has a raw
// string, such as JSON in a test or a field's tag, cannot, nor one of a table or of code in a comment.
func longLines(src []byte) (numbers []int) {
	long := map[int]bool{}
	for i, line := range strings.Split(string(src), "\n") {
		if len([]rune(strings.ReplaceAll(line, "\t", strings.Repeat(" ", tabWidth)))) > maxColumns {
			long[i+1] = true
		}
	}
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for pos, t, text := s.Scan(); t != token.EOF && len(long) > 0; pos, t, text = s.Scan() {
		// Neither can a string without spaces.
		raw := t == token.STRING && (strings.HasPrefix(text, "`") || len(text) > maxColumns/2)
		drawn := t == token.COMMENT && (strings.HasPrefix(text, "//\t") || strings.HasPrefix(text, "// |"))
		if raw || drawn {
			for n := file.Line(pos); n <= file.Line(pos)+strings.Count(text, "\n"); n++ {
				delete(long, n)
			}
		}
	}
	for n := range long {
		numbers = append(numbers, n)
	}
	return numbers
}

// TestLinesOfGo: lines of Go end at 120 columns.
func TestLinesOfGo(t *testing.T) {
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range longLines(src) {
			t.Errorf("%s:%d: the line goes on behind column %d; break it", path, n, maxColumns)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLongLines(t *testing.T) {
	wide := strings.Repeat("x", maxColumns)
	for text, want := range map[string]int{
		"package p\n// " + wide[4:]:                  0,
		"package p\n// " + wide:                      1,
		"package p\n//\t" + wide:                     0,
		"package p\nvar _ = \"" + wide + "\"":        0,
		"package p\nvar _ = `" + wide + "`":          0,
		"package p\nvar _ = `\n" + wide + "\n`":      0,
		"package p\n\t\t\tvar " + wide[12:] + " = 1": 1,
	} {
		if got := longLines([]byte(text)); len(got) != want {
			t.Errorf("%q: long lines %v, want %d of them", text, got, want)
		}
	}
}
