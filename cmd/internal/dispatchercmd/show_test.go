package dispatchercmd

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestShowIsSafeOnATerminal: names and outputs are a model's or a stranger's, and must not act on the terminal.
func TestShowIsSafeOnATerminal(t *testing.T) {
	const evil = "a\x1b]0;owned\x07\x1b[2Jb\r\u009bc\u202ed"
	var out bytes.Buffer
	s := newShow(&out, toolyard.Batch{Calls: make([]toolyard.Call, 2)}, true)
	s.begin(toolyard.BatchKey{Agent: evil, ID: evil})
	s.plan(toolyard.BatchView{Groups: [][]int{{0, 1}}})
	s.result(toolyard.Result{Tool: evil, Output: evil + "\n" + evil, Class: toolyard.ReadOnly})
	s.result(toolyard.Result{Index: 1, Tool: evil, IsError: true, Code: toolyard.UnknownTool, Error: evil,
		Phases: []toolyard.Fact{{Phase: "resolve_tool", Outcome: toolyard.OutcomeFailed}}})
	if err := s.end(toolyard.BatchView{Status: toolyard.StatusCompleted,
		Results: make([]toolyard.Result, 2)}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool {
		return r != '\n' && r < 0x20 || r >= 0x7f && r < 0xa0 ||
			r == '\u202e'
	}); i >= 0 {
		t.Errorf("a control character at byte %d of %q", i, out.String())
	}
	for _, want := range []string{"group 1 · 2 calls together\n", "✓ [0] ", "✗ [1] ", "unknown_tool",
		"resolve_tool 0.00 ✗", "completed: 1 result, 1 error\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
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
	for in, want := range map[string]string{
		"":                           "      | \n",
		"one":                        "      | one\n",
		"one\ttwo\n\n":               "      | one  two\n",
		"1\n2\n3":                    "      | 1\n      | 2\n      | 3\n",
		"1\n2\n3\n4":                 "      | 1\n      | 2\n      | 3\n      | … 1 line more\n",
		"1\n2\n3\n4\n5\n":            "      | 1\n      | 2\n      | 3\n      | … 2 lines more\n",
		strings.Repeat("é", 101):     "      | " + strings.Repeat("é", 100) + "…\n",
		strings.Repeat("x", 100):     "      | " + strings.Repeat("x", 100) + "\n",
		strings.Repeat("\xff", 1000): "      | " + strings.Repeat("\ufffd", 100) + "…\n",
	} {
		if got := excerpt(in); got != want || !utf8.ValidString(got) {
			t.Errorf("excerpt(%.20q) = %q, want %q", in, got, want)
		}
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
