package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestShowIsSafeOnATerminal: names and outputs are a model's or a stranger's, and must not act on the terminal.
func TestShowIsSafeOnATerminal(t *testing.T) {
	const evil = "a\x1b]0;owned\x07\x1b[2Jb\r\u009bc\u202ed"
	var out bytes.Buffer
	s := newShow(&out, toolyard.Batch{Calls: make([]toolyard.Call, 2)}, true)
	s.verbose = true
	s.begin(toolyard.BatchKey{Agent: evil, ID: evil})
	s.plan(toolyard.BatchView{Groups: [][]int{{0, 1}}})
	s.result(toolyard.Result{Tool: evil, Output: evil + "\n" + evil, Class: toolyard.ReadOnly})
	s.result(toolyard.Result{Index: 1, Tool: evil, IsError: true, Code: toolyard.UnknownTool, Error: evil,
		Phases: []toolyard.Fact{{Phase: "resolve_tool", Outcome: toolyard.OutcomeFailed}}})
	must.OK(t, s.end(toolyard.BatchView{Status: toolyard.StatusCompleted, Results: make([]toolyard.Result, 2)}))
	if i := strings.IndexFunc(out.String(), func(r rune) bool {
		return r != '\n' && r < 0x20 || r >= 0x7f && r < 0xa0 ||
			r == '\u202e'
	}); i >= 0 {
		t.Errorf("a control character at byte %d of %q", i, out.String())
	}
	for _, want := range []string{"group 1 · 2 calls together\n", "✓ [0] ", "✗ [1] ", "unknown_tool",
		"resolve_tool 0 ms ✗",
		"what to do\n  [1] unknown_tool: \"dispatcher tools\" lists", "completed: 1 result, 1 error\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}

// TestShowNamesTheDefault: a batch that names no strategy is shown with the one that it gets.
func TestShowNamesTheDefault(t *testing.T) {
	for _, c := range []struct {
		strategy toolyard.Strategy
		want     string
	}{{"", "consecutive, 1 group\n"}, {toolyard.SafeFirst, "safe_first, 1 group\n"}} {
		var out strings.Builder
		s := newShow(&out, toolyard.Batch{Calls: make([]toolyard.Call, 1),
			Options: toolyard.Options{Partition: c.strategy}}, true)
		s.plan(toolyard.BatchView{Groups: [][]int{{0}}})
		if out.String() != c.want {
			t.Errorf("%q is shown as %q, want %q", c.strategy, out.String(), c.want)
		}
	}
}

func TestShowSaysNothingForPrograms(t *testing.T) {
	var out bytes.Buffer
	s := newShow(&out, toolyard.Batch{}, false)
	s.begin(toolyard.BatchKey{})
	s.result(toolyard.Result{})
	if err := s.end(toolyard.BatchView{}); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// full is an output that takes no more.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestShowReportsThatItCouldNot(t *testing.T) {
	s := newShow(full{}, toolyard.Batch{}, true)
	s.begin(toolyard.BatchKey{})
	if err := s.end(toolyard.BatchView{}); err == nil {
		t.Error("the output was lost without an error")
	}
}

func TestExcerpt(t *testing.T) {
	const width = 80 - 9 // of a terminal of 80 columns, behind the indent, and a blank is left
	for in, want := range map[string]string{
		"":                           "      | \n",
		"one":                        "      | one\n",
		"one\ttwo\n\n":               "      | one  two\n",
		"1\n2\n3":                    "      | 1\n      | 2\n      | 3\n",
		"1\n2\n3\n4":                 "      | 1\n      | 2\n      | 3\n      | … 1 line more\n",
		"1\n2\n3\n4\n5\n":            "      | 1\n      | 2\n      | 3\n      | … 2 lines more\n",
		strings.Repeat("é", width+1): "      | " + strings.Repeat("é", width-1) + "…\n",
		strings.Repeat("x", width):   "      | " + strings.Repeat("x", width) + "\n",
		strings.Repeat("\xff", 1000): "      | " + strings.Repeat("\ufffd", width-1) + "…\n",
	} {
		s := &show{columns: 80}
		if got := s.excerpt(in, false); got != want || !utf8.ValidString(got) {
			t.Errorf("excerpt(%.20q) = %q, want %q", in, got, want)
		}
	}
}

// failing is what a batch of a success, an edit and some errors looks like.
func failing(t *testing.T, columns int, verbose bool, paint cli.Paint) string {
	t.Helper()
	var out bytes.Buffer
	s := newShow(&out, toolyard.Batch{Calls: []toolyard.Call{{Tool: "glob"}, {Tool: "edit_file"}, {Tool: "summarize"},
		{Tool: "bash"}, {Tool: "summarize"}}, Options: toolyard.Options{Partition: toolyard.Consecutive}}, true)
	s.columns, s.verbose, s.paint = columns, verbose, paint
	s.begin(toolyard.BatchKey{Agent: "a", ID: "b"})
	s.plan(toolyard.BatchView{Groups: [][]int{{0}, {1}, {2, 3, 4}}, Surface: "0123456789abcdef"})
	unknown := "There is no tool \"summarize\". Use one of the tools that you were given, and not one that you have " +
		"made up."
	for _, r := range []toolyard.Result{
		{Tool: "glob", Output: "a.go\nb.go", Class: toolyard.ReadOnly, DurationMS: 2.5849, QueueMS: 0.37,
			ExecuteMS: 0.14,
			Phases:    []toolyard.Fact{{Phase: "resolve_tool", MS: 0.01}, {Phase: "execute", MS: 0.14}}},
		{Index: 1, Tool: "edit_file", Output: "Edited.", DurationMS: 12345, Structured: json.RawMessage(
			`{"diff":"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"}`)},
		{Index: 2, Tool: "summarize", IsError: true, Code: toolyard.UnknownTool, Error: unknown},
		{Index: 3, Tool: "bash", IsError: true, Code: toolyard.PermissionDenied, Error: "No."},
		{Index: 4, Tool: "summarize", IsError: true, Code: toolyard.UnknownTool, Error: "No."},
	} {
		s.result(r)
	}
	must.OK(t, s.end(toolyard.BatchView{Status: toolyard.StatusCompleted, Results: make([]toolyard.Result, 5)}))
	return out.String()
}

// TestShow: results stand in columns, with times that a person can read, a diff for an edit, and what to do about each
// kind of error; no line is wider than the terminal, and no word is broken.
func TestShow(t *testing.T) {
	const want = `batch b · agent a · 5 calls
consecutive, 3 groups

group 1 · 1 call alone
  ✓ [0] glob         2.6 ms  ok
      | a.go
      | b.go

group 2 · 1 call alone
  ✓ [1] edit_file      12 s  ok
      | Edited.
      --- a/x
      +++ b/x
      @@ -1 +1 @@
      - old
      + new

group 3 · 3 calls together
  ✗ [2] summarize      0 ms  unknown_tool
      | There is no tool "summarize". Use one of the tools that you were given,
      | and not one that you have made up.
  ✗ [3] bash           0 ms  permission_denied
      | No.
  ✗ [4] summarize      0 ms  unknown_tool
      | No.

what to do
  [2] [4] unknown_tool: "dispatcher tools" lists the tools that there are;
    start a worker that has this one
  [3] permission_denied: allow it with --allow RULE or --permission-mode where
    the calls run, or ask a person with submit --interactive

completed: 2 results, 3 errors
`
	if got := failing(t, 80, false, cli.Paint{}); got != want {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
	var color cli.Color
	must.OK(t, color.Set("always"))
	painted := failing(t, 80, false, color.For(io.Discard))
	for _, part := range []string{"\x1b[32m✓\x1b[0m", "\x1b[31m✗\x1b[0m", "\x1b[31m- old\x1b[0m",
		"\x1b[32m+ new\x1b[0m"} {
		if !strings.Contains(painted, part) {
			t.Errorf("with colours it has no %q", part)
		}
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(painted, ""); plain != want {
		t.Errorf("colours change the text:\n%s", plain)
	}
	verbose := failing(t, 80, true, cli.Paint{})
	for _, part := range []string{"      READ_ONLY · queued 370 µs · executed 140 µs\n",
		"      resolve_tool 10 µs · execute 140 µs\n", "surface 0123456789ab\n"} {
		if !strings.Contains(verbose, part) {
			t.Errorf("with -v it does not say %q:\n%s", part, verbose)
		}
	}
	for _, columns := range []int{60, 80, 120} {
		for line := range strings.Lines(failing(t, columns, true, cli.Paint{})) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("a line has %d columns of %d: %q", n, columns, line)
			}
		}
	}
}

// TestEveryErrorHasAdvice: a person is told what to do about each code that is an error.
func TestEveryErrorHasAdvice(t *testing.T) {
	for _, code := range toolyard.Codes {
		if (advice[code] != "") != code.IsError() {
			t.Errorf("%s: %q", code, advice[code])
		}
	}
	if n := len(toolyard.Codes) - 1; len(advice) != n {
		t.Errorf("there is advice about %d codes of %d", len(advice), n)
	}
}

func TestPrintJSONKeepsText(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&out, map[string]string{"a": "<b> & 'c'"}); err != nil ||
		out.String() != "{\n  \"a\": \"<b> & 'c'\"\n}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestEveryFlagIsExplained: each flag says what it does, and has an environment variable that no other setting has.
func TestEveryFlagIsExplained(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		names := map[string]string{}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			env := cli.EnvName(f.Name)
			if f.Usage == "" || names[env] != "" || strings.ToUpper(env) != env || strings.ContainsAny(env, "-.") {
				t.Errorf("%s --%s: %q, in the environment %s", c.CommandPath(), f.Name, f.Usage, env)
			}
			names[env] = f.Name
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(Command(nil, io.Discard, io.Discard))
}

func TestDataDir(t *testing.T) {
	if dir, err := cli.DataDir("given"); err != nil || dir != "given" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_STATE_HOME", "state")
	if dir, err := cli.DataDir(""); err != nil || dir != "state/toolyard" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "home")
	if dir, err := cli.DataDir(""); err != nil || dir != "home/.local/state/toolyard" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("HOME", "")
	if _, err := cli.DataDir(""); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("without a home: %v", err)
	}
}

// TestAWorkerThatCannotIsolate is shown with the reason.
func TestAWorkerThatCannotIsolate(t *testing.T) {
	for why, want := range map[string]bool{"no isolation: bwrap: not found": true, "": false} {
		var out strings.Builder
		s := &show{w: &out, on: true, columns: 120}
		s.worker(&client.Worker{ID: "w", Isolation: "none", NoIsolation: why})
		if got := strings.Contains(out.String(), "isolation  "+why); got != want {
			t.Errorf("%q: the worker is shown as\n%s", why, &out)
		}
	}
}
