package main

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/dispatchercmd"
	"github.com/toolyard/toolyard/cmd/internal/workercmd"
)

// flagsOf are the flags of a command tree, by command.
func flagsOf(c *cobra.Command, under string, into map[string]string) {
	into[under] = c.LocalFlags().FlagUsages()
	for _, sub := range c.Commands() {
		flagsOf(sub, strings.TrimSpace(under+" "+sub.Name()), into)
	}
}

// TestBothCommandsAreInOne: toolyard has each command of the two, with the same flags.
func TestBothCommandsAreInOne(t *testing.T) {
	ours, theirs := map[string]string{}, map[string]string{}
	root, _ := command(nil, io.Discard, io.Discard)
	flagsOf(root, "", ours)
	flagsOf(dispatchercmd.Command(nil, io.Discard, io.Discard), "", theirs)
	flagsOf(workercmd.Command(io.Discard, io.Discard), "worker", theirs)
	if len(ours) != len(theirs) || len(ours) < 20 {
		t.Errorf("toolyard has %d commands, and the two have %d", len(ours), len(theirs))
	}
	rename := renamer(dispatchercmd.Command(nil, io.Discard, io.Discard), workercmd.Command(io.Discard, io.Discard))
	for path, flags := range theirs {
		if flags = rename(flags); ours[path] != flags {
			t.Errorf("toolyard %s has the flags\n%swant\n%s", path, ours[path], flags)
		}
	}
}

// TestHelpNamesThisCommand: a command line in the help is one that this program takes.
func TestHelpNamesThisCommand(t *testing.T) {
	other := regexp.MustCompile(`(?:^|[^-.\w])(dispatcher|worker) [a-z-]+`)
	root, _ := command(nil, io.Discard, io.Discard)
	var names []string
	for _, sub := range append(root.Commands(), workercmd.Command(io.Discard, io.Discard).Commands()...) {
		names = append(names, sub.Name())
	}
	renamed := 0
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		text := strings.Join([]string{c.Short, c.Long, c.Example, c.LocalFlags().FlagUsages()}, "\n")
		renamed += strings.Count(text, "toolyard worker serve") + strings.Count(text, "toolyard serve")
		for _, found := range other.FindAllStringIndex(text, -1) {
			line := strings.TrimLeft(text[found[0]:found[1]], " \n\"`")
			if words := strings.Fields(line); slices.Contains(names, words[1]) &&
				!strings.HasSuffix(text[:found[0]+1], "toolyard ") {
				t.Errorf("the help of %q has the command line %q", c.CommandPath(), line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if renamed < 5 {
		t.Errorf("the help names toolyard's own commands %d times", renamed)
	}
}

// TestSettingsReachTheWorker: a setting from the environment holds below "worker" as it does in the command of that
// name.
func TestSettingsReachTheWorker(t *testing.T) {
	t.Setenv("TOOLYARD_LOG_LEVEL", "no such level")
	var errs bytes.Buffer
	for _, args := range [][]string{{"worker", "serve"}, {"serve"}} {
		errs.Reset()
		root, to := command(nil, io.Discard, &errs)
		if status := cli.Main(root, args, to); status != cli.ExitUsage ||
			!strings.HasPrefix(errs.String(), `toolyard: --log-level "no such level"`) {
			t.Errorf("%v: status %d, %s", args, status, errs.String())
		}
	}
}

// TestErrorsNameThisCommand: a command line in an error is one that this program takes.
func TestErrorsNameThisCommand(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"watch", "a", "b"}, "toolyard: toolyard watch takes one BATCH, not 2; see toolyard watch --help\n"},
		{[]string{"watch"}, "toolyard: name a BATCH, or say --all or --agent AGENT; see toolyard watch --help\n"},
		{[]string{"approvals", "--nats", "nats://127.0.0.1:1", "--creds", "gone"}, `"toolyard creds" makes`},
		{[]string{"worker", "serve", "--nats", "nats://127.0.0.1:1", "--creds", "gone"}, `"toolyard creds" makes`},
		{[]string{"worker", "serve", "--nosuchflag"}, "toolyard worker serve --help"},
	} {
		var errs bytes.Buffer
		root, to := command(strings.NewReader(""), io.Discard, &errs)
		status, said := cli.Main(root, c.args, to), errs.String()
		if status == 0 || !strings.Contains(said, c.want) || strings.Contains(said, "toolyard toolyard") ||
			strings.Contains(said, "dispatcher ") {
			t.Errorf("%q: status %d, %s", c.args, status, said)
		}
	}
}

// TestHelpFitsATerminal: the help of each command of the three programs has an example, lines of 80 columns at most,
// and no colour where nobody sees it.
func TestHelpFitsATerminal(t *testing.T) {
	seen := 0
	for _, program := range []func(out io.Writer) *cobra.Command{
		func(out io.Writer) *cobra.Command { return dispatchercmd.Command(nil, out, out) },
		func(out io.Writer) *cobra.Command { return workercmd.Command(out, out) },
		func(out io.Writer) *cobra.Command { root, _ := command(nil, out, out); return root },
	} {
		var visit func(c *cobra.Command, path []string)
		visit = func(c *cobra.Command, path []string) {
			var out bytes.Buffer
			root := program(&out)
			if status := cli.Main(root, append(slices.Clip(path), "--help"), &out); status != 0 {
				t.Fatalf("%s %q: status %d\n%s", root.Name(), path, status, out.String())
			}
			seen++
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > cli.UsualColumns {
					t.Errorf("%s %q: a line of %d columns: %s", root.Name(), path, n, line)
				}
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("%s %q: there are colours in %q", root.Name(), path, out.String())
			}
			if !c.HasSubCommands() && !strings.Contains(out.String(), "\nExamples:\n  ") {
				t.Errorf("%s %q has no example", root.Name(), path)
			}
			for _, sub := range c.Commands() {
				visit(sub, append(slices.Clip(path), sub.Name()))
			}
		}
		visit(program(io.Discard), nil)
	}
	if seen < 80 {
		t.Errorf("%d commands were seen", seen)
	}
}
