package dispatchercmd

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// runnable are the commands that do something, by their paths.
func runnable(t *testing.T) (out []*cobra.Command) {
	t.Helper()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			out = append(out, sub)
			visit(sub)
		}
	}
	visit(Command(nil, io.Discard, io.Discard))
	if len(out) < 20 {
		t.Fatalf("there are %d commands", len(out))
	}
	return out
}

// TestEveryCommandIsForScriptsToo: each command that prints data has --json, each has an example, and a place in the
// help.
func TestEveryCommandIsForScriptsToo(t *testing.T) {
	printsNoData := []string{"serve", "relay", "mcp", "man"} // addresses when it is ready, a protocol, files
	for _, c := range runnable(t) {
		if (c.Flags().Lookup("json") == nil) != slices.Contains(printsNoData, c.Name()) {
			t.Errorf("%s has --json: %t", c.CommandPath(), c.Flags().Lookup("json") != nil)
		}
		if c.Example == "" || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example", c.CommandPath())
		}
		if c.GroupID == "" {
			t.Errorf("%s is in no group of the help", c.CommandPath())
		}
	}
}

// TestCompletion: a shell is told the commands, and the words that a flag takes.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		typed []string
		want  []string
	}{
		{[]string{"sub"}, []string{"submit"}}, {[]string{"run", "--partition", ""}, []string{"consecutive",
			"ordered_halt"}},
		{[]string{"export", "--format", ""}, []string{"jsonl", "parquet"}},
		{[]string{"tools", "--format", "openai"}, []string{"openai-chat"}}, {[]string{"--color", "a"},
			[]string{"always"}},
	} {
		var out bytes.Buffer
		if status := cli.Main(Command(nil, &out, &out), append([]string{"__complete"}, c.typed...),
			io.Discard); status != 0 {
			t.Fatalf("%q: %d", c.typed, status)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%q completes to %q, not to %q", c.typed, out.String(), w)
			}
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out bytes.Buffer
		if status := cli.Main(Command(nil, &out, &out), []string{"completion", shell}, io.Discard); status != 0 ||
			!strings.Contains(out.String(), "dispatcher") {
			t.Errorf("%s: %d, %d bytes", shell, status, out.Len())
		}
	}
}

// TestHelpFitsATerminal: no line of a help is wider than 80 columns, but for examples, which are copied as they are.
func TestHelpFitsATerminal(t *testing.T) {
	for _, c := range runnable(t) {
		var out bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if status := cli.Main(Command(nil, &out, &out), args, io.Discard); status != 0 {
			t.Fatalf("%q: %d", args, status)
		}
		text, example := "", false
		for line := range strings.Lines(out.String()) {
			switch {
			case line == "Examples:\n":
				example = true
			case line == "\n":
				example = false
			}
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > cli.UsualColumns && !example {
				t.Errorf("%q: a line has %d columns: %s", args, n, line)
			}
			text += line
		}
		if !strings.Contains(text, "\nSettings and log:\n") {
			t.Errorf("%q does not show the flags of all commands", args)
		}
	}
}
