package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helped is a command tree with topics.
func helped() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Does things", Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	root.AddGroup(&cobra.Group{ID: "g", Title: "A group"}, &cobra.Group{ID: ProgramGroup, Title: "This program"})
	one := &cobra.Command{Use: "serve [flags]", Short: "Serves", GroupID: "g", Args: NoArgs, Example: "  prog serve",
		Long: "serve is a text that is long enough to be wrapped where a terminal has only eighty columns for it.\n\n" +
			"  this stays",
		RunE: func(*cobra.Command, []string) error { return nil }}
	one.Flags().Int("plain", 7, "a flag without a `NUMBER` of its own")
	func() {
		defer Topic(one.Flags(), TopicNATS)()
		one.Flags().String("url", "", "where `URL` is, in a text that is so long that it needs more than one line of the "+
			"help")
		defer Topic(one.Flags(), TopicHTTP)()
		one.Flags().Bool("a-flag-with-a-name-that-fills-the-column", false, "inner")
	}()
	root.AddCommand(one, &cobra.Command{Use: "submit", Short: "Submits", Args: OneArg("one FILE"),
		RunE: func(*cobra.Command, []string) error { return nil }}, ManCommand("prog"))
	WithSettings(root)
	return root
}

// TestHelpByTopic: flags stand under their topics, the inner one counts, and lines fit.
func TestHelpByTopic(t *testing.T) {
	var out bytes.Buffer
	root := helped()
	WithHelp(root, &out)
	if status := Main(root, []string{"serve", "--help"}, &out); status != 0 {
		t.Fatal(out.String())
	}
	const want = `serve is a text that is long enough to be wrapped where a terminal has only
eighty columns for it.

  this stays

Usage:
  prog serve [flags]

Examples:
  prog serve

Flags:
  --plain NUMBER            a flag without a NUMBER of its own (default: 7)

HTTP:
  --a-flag-with-a-name-that-fills-the-column
                            inner

NATS:
  --url URL                 where URL is, in a text that is so long that it
                            needs more than one line of the help

Settings and log:
`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("the help is\n%s\nwant\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > UsualColumns+1 {
			t.Errorf("a line is too long: %q", line)
		}
	}
	out.Reset()
	root = helped()
	WithHelp(root, &out)
	if status := Main(root, nil, &out); status != 0 || !strings.Contains(out.String(), "A group:\n  serve  Serves\n") ||
		!strings.Contains(out.String(), "This program:\n  completion") {
		t.Errorf("%d\n%s", status, out.String())
	}
}

// TestFoldCommands: a command line that is too long is broken between words, and never within quotes.
func TestFoldCommands(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"  prog a b", "  prog a b"},
		{"  prog --one 1 --two 2 --three 3", "  prog --one 1 --two \\\n      2 --three 3"},
		{"  prog --why \"a long reason\" x\n  prog", "  prog --why \\\n      \"a long reason\" x\n  prog"},
		{"  prog aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b", "  prog \\\n      aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b"},
	} {
		if got := foldCommands(c.text, 23); got != c.want {
			t.Errorf("%q is\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

// TestSlips: what is mistyped is answered with what was probably meant.
func TestSlips(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"sevre"}, `prog: unknown command "sevre" for "prog": did you mean prog serve?; see prog --help`},
		{[]string{"xyzzy"}, `prog: unknown command "xyzzy" for "prog"; see prog --help`},
		{[]string{"serve", "--plian", "3"}, "prog: unknown flag: --plian: did you mean --plain?; see prog serve --help"},
		{[]string{"submit", "--url", "x", "f"},
			"prog: unknown flag: --url: it is a flag of prog serve; see prog submit --help"},
		{[]string{"serve", "now"}, `prog: prog serve takes no argument, and there is "now"; see prog serve --help`},
		{[]string{"submit"}, "prog: prog submit takes one FILE, not 0; see prog submit --help"},
	} {
		var out bytes.Buffer
		if status := Main(helped(), c.args, &out); status != ExitUsage || out.String() != c.says+"\n" {
			t.Errorf("%q: %d, %s", c.args, status, out.String())
		}
	}
}

// TestMan: each command has a page, in which nothing of a text is taken for troff.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out bytes.Buffer
	root := helped()
	root.SetOut(&out)
	root.Commands()[1].Long = "-x\n.TH evil\n'so \\fB"
	if status := Main(root, []string{"man", dir}, &out); status != 0 || out.String() != "7 pages in "+dir+"\n" &&
		!strings.HasSuffix(out.String(), " pages in "+dir+"\n") {
		t.Fatal(status, out.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "prog-serve.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH PROG\\-SERVE 1", ".SH NATS\n.TP\n.B \\-\\-url URL\n",
		".SH SEE ALSO\n\\fBprog\\fP(1)\n",
		"\n\\-x\n\\&.TH evil\n\\&'so \\efB\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if status := Main(helped(), []string{"man", filepath.Join(dir, "prog.1", "x")}, &out); status != ExitUsage {
		t.Error(status, out.String())
	}
}
