package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
)

// ending is a command that ends with an error.
func ending(run func(ctx context.Context) error) *cobra.Command {
	root := &cobra.Command{Use: "prog", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
	root.Flags().Int("number", 0, "")
	root.AddCommand(&cobra.Command{Use: "sub", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return nil }})
	return root
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		err    error
		status int
		says   string
	}{
		{name: "done", status: ExitOK},
		{name: "the system failed", err: errors.New("no space left"), status: ExitFailed,
			says: "prog: no space left\n"},
		{name: "usage", err: Usagef("--x: %w", errors.New("bad")), status: ExitUsage, says: "prog: --x: bad\n"},
		{name: "usage, wrapped", err: fmt.Errorf("start: %w", Usagef("--x")), status: ExitUsage,
			says: "prog: start: --x\n"},
		{name: "input", err: &toolyard.InputError{Field: "calls", Problem: "has no calls"}, status: ExitUsage,
			says: "prog: calls: has no calls\n"},
		{name: "many lines", err: errors.New("one\ntwo\r\n\tthree\x1b[2J"), status: ExitFailed,
			says: "prog: one two three\ufffd[2J\n"},
		{name: "joined", err: errors.Join(Usagef("a"), Usagef("b")), status: ExitUsage, says: "prog: a b\n"},
		{name: "interrupted", err: fmt.Errorf("wait: %w", ErrInterrupted), status: ExitInterrupted,
			says: "prog: interrupted\n"},
		{name: "its reader is gone", err: fmt.Errorf("print: %w", &fs.PathError{Op: "write", Path: "/dev/stdout",
			Err: syscall.EPIPE}), status: ExitUnread},
		{name: "a server is gone", err: fmt.Errorf("send: %w", &net.OpError{Op: "write", Net: "tcp",
			Err: os.NewSyscallError("write", syscall.EPIPE)}), status: ExitFailed, says: "broken pipe"},
		{name: "canceled, but by no signal", err: context.Canceled, status: ExitFailed,
			says: "prog: context canceled\n"},
		{name: "unknown flag", args: []string{"--nope"}, status: ExitUsage,
			says: "prog: unknown flag: --nope; see prog --help\n"},
		{name: "bad value", args: []string{"--number", "x"}, status: ExitUsage, says: "--number"},
		{name: "unknown command", args: []string{"nope"}, status: ExitUsage,
			says: `prog: unknown command "nope" for "prog"` + "\n"},
		{name: "argument of a command that takes none", args: []string{"sub", "x"}, status: ExitUsage, says: `"x"`},
	} {
		var stderr bytes.Buffer
		status := Main(ending(func(context.Context) error { return c.err }), append([]string{}, c.args...), &stderr)
		if status != c.status || !strings.Contains(stderr.String(), c.says) || (c.says == "") != (stderr.Len() == 0) ||
			strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("%s: status %d, %q; want %d, %q", c.name, status, &stderr, c.status, c.says)
		}
	}
}

// TestHelpOfNoCommand: the library's own commands refuse what is no command, and show help of what is one.
func TestHelpOfNoCommand(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"help"}, ExitOK, ""},
		{[]string{"help", "sub"}, ExitOK, ""},
		{[]string{"help", "sbu"}, ExitUsage, "prog: unknown command \"sbu\" for \"prog\": did you mean prog sub?"},
		{[]string{"help", "sub", "x"}, ExitUsage, "prog: there is no command \"x\" below prog sub"},
		{[]string{"completion"}, ExitOK, ""},
		{[]string{"completion", "bash"}, ExitOK, ""},
		{[]string{"completion", "bsh"}, ExitUsage, "prog: unknown command \"bsh\" for \"prog completion\": did you mean"},
	} {
		var stderr bytes.Buffer
		root := ending(func(context.Context) error { return nil })
		root.Args = NoArgs
		root.SetOut(io.Discard)
		status := Main(root, c.args, &stderr)
		if status != c.status || !strings.HasPrefix(stderr.String(), c.says) || (c.says == "") != (stderr.Len() == 0) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, status, &stderr, c.status, c.says)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		"plain":                            "plain",
		"  a\n\tb\r\nc  ":                  "a b c",
		"ünï 名前 🙂":                         "ünï 名前 🙂",
		"a\x1b]0;title\x07b":               "a\ufffd]0;title\ufffdb",
		"\x00\x7f\u009b":                   "\ufffd\ufffd\ufffd",
		"right\u202eto\u2066left\u2028end": "right\ufffdto\ufffdleft end",
		"a\xffb":                           "a\ufffdb",
	} {
		if got := OneLine(in); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Printable("a\n\tb\r\u2029"); got != "a\n\tb\ufffd\ufffd" {
		t.Errorf("Printable keeps %q", got)
	}
}
