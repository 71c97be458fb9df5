// Package cli is what all commands share: exit statuses, settings from flags, environment and file, and the log.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/version"
)

// The exit statuses.
const (
	ExitOK          = 0
	ExitFailed      = 1   // the system failed
	ExitUsage       = 2   // the input or the flags are wrong
	ExitInterrupted = 130 // a person or a supervisor stopped it
	ExitUnread      = 141 // whoever read its output has closed it, as head does
)

// UsageError is about what was handed in: its one line says what and where.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a [*UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// ErrInterrupted says that a signal ended the command before it was done.
var ErrInterrupted = errors.New("interrupted")

// Main runs a command line and returns its exit status. The first SIGINT or SIGTERM ends the command's context, a
// second one that is not the same ends the process ([sameSignal]). So does SIGHUP, which a terminal sends that is
// closed, unless it reloads files ([Reload]).
func Main(root *cobra.Command, args []string, stderr io.Writer) int {
	ctx, stop := withSignals(context.Background(), func() <-chan time.Time { return time.After(sameSignal) })
	defer stop()
	// A closed stdout is an error of the write, not the end on the spot: there is something to tidy up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	root.SetArgs(args)
	root.Version = versionLine(version.Read())
	root.Flags().Bool("version", false, "print release, commit and build on one line") // cobra's own would be -v too
	versions := versionCommand(root.Name())
	if root.ContainsGroup(ProgramGroup) {
		versions.GroupID = ProgramGroup
	}
	root.AddCommand(versions)
	refuseUnknown(root)
	root.SetErr(stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if unread(err) { // nobody is left to be told, and nothing is wrong
		return ExitUnread
	}
	status := ExitFailed
	input := new(toolyard.InputError)
	usage := new(UsageError)
	switch {
	case errors.Is(err, ErrInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		status, err = ExitInterrupted, ErrInterrupted
	case errors.As(err, &usage), errors.As(err, &input), isCobraUsage(err):
		status = ExitUsage
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", root.Name(), OneLine(err.Error())) // there is nowhere else to say it
	return status
}

// unread reports whether a command has ended since its output was closed by its reader.
func unread(err error) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	return ok && p.Op == "write" && (p.Path == os.Stdout.Name() || p.Path == os.Stderr.Name()) &&
		errors.Is(p.Err, syscall.EPIPE)
}

// isCobraUsage recognises the errors that cobra makes itself of unknown commands and wrong arguments.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "accepts ", "requires at least", "required flag"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

// OneLine puts a text on one line that is safe to print on a terminal.
func OneLine(s string) string { return Printable(strings.Join(strings.Fields(s), " ")) }

// Printable replaces what a terminal would act on.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' ||
			r >= '\u2066' && r <= '\u2069':
			return '\ufffd'
		}
		return r
	}, s)
}
