package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/tool"
)

type bashInput struct {
	Command     string `json:"command"`
	TimeoutMS   *whole `json:"timeout_ms"`
	Description string `json:"description"`
}

// bashTool runs commands in a sandbox, under one policy.
type bashTool struct {
	box sandbox.Sandbox
	// policy is what every command gets; the call provides the workspace and the time.
	policy sandbox.Policy
	// shells has what shells remember. Nil: each command begins in a new shell.
	shells *shells.Store
}

// bash is declared on every worker, so that agents learn why a command does not run instead of finding no such tool. It
// starts nothing unless the sandbox can isolate it.
func bash(box sandbox.Sandbox, policy sandbox.Policy, kept *shells.Store) (tool.Tool, error) {
	b := &bashTool{box: box, policy: policy, shells: kept}
	description := "Runs a shell command in the workspace's directory, isolated from the rest of the machine, and " +
		"gives its output. " +
		"Use read_file, glob, grep, write_file and edit_file for what they can do: they need no approval to read " +
		"and are exact. " +
		"Commands that only read may run beside others; any other runs alone."
	if kept != nil {
		description += remembers
	}
	return define(tool.Declaration{
		Name:        "bash",
		Description: description,
		InputSchema: object(
			text("command", "The command, for bash -c.").withExamples("npm test", "git log --oneline -5").required(),
			number("timeout_ms", 1, MaxBashTimeout.Milliseconds(),
				"After how many milliseconds to stop the command.").withDefault(DefaultBashTimeout.Milliseconds()),
			text("description",
				"What the command does, in five to ten words, for the person who approves it.").
				withExamples("Runs the tests of the parser"),
		),
		Class:          tool.ClassRule{Shell: "command", Remembers: kept != nil},
		Execution:      tool.InSandbox,
		Specifier:      tool.Specifier{Command: "command"},
		TimeoutMS:      MaxBashTimeout.Milliseconds(),
		AbortsSiblings: new(bool),

		MaxResultSizeChars: MaxBashChars,
	}, b.check, b.run)
}

// check validates the values, and checks whether this worker can isolate commands.
func (b *bashTool) check(ctx context.Context, _ tool.Env, in bashInput) error {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return tool.Invalid("command is empty; give a shell command")
	case len(in.Command) > MaxCommandBytes:
		return tool.Invalid("command is %d bytes long; it has at most %d: write a script with write_file and run that",
			len(in.Command), MaxCommandBytes)
	case strings.ContainsRune(in.Command, 0):
		return tool.Invalid("command holds a NUL character, which no command can")
	case len(in.Description) > MaxDescriptionBytes:
		return tool.Invalid("description is %d bytes long; it has at most %d", len(in.Description), MaxDescriptionBytes)
	}
	if _, err := in.timeout(); err != nil {
		return err
	}
	if _, err := b.box.Probe(ctx); err != nil {
		return notIsolated(err)
	}
	return nil
}

func (in *bashInput) timeout() (time.Duration, error) {
	n, err := in.TimeoutMS.between("timeout_ms", DefaultBashTimeout.Milliseconds(), 1, MaxBashTimeout.Milliseconds())
	return time.Duration(n) * time.Millisecond, err
}

func notIsolated(err error) error {
	return &tool.Error{
		Code: toolyard.SetupRequired,
		Message: "this worker cannot isolate commands, so it runs none; an operator must set that up. " +
			"Do without bash: read_file, glob, grep, write_file and edit_file work",
		Err: err,
	}
}

// run runs the command. A command that is classified as read-only gets the workspace read-only, which enforces the
// class.
func (b *bashTool) run(ctx context.Context, env tool.Env, in bashInput) (string, error) {
	if err := b.check(ctx, env, in); err != nil {
		return "", err
	}
	limit, err := in.timeout()
	if err != nil {
		return "", err
	}
	if env.Background > 0 && in.TimeoutMS == nil {
		limit = env.Background
	}
	var workspace *sandbox.Workspace
	class, _ := shell.Classify(in.Command)
	if env.Background == 0 || env.Root != nil { // another background call has an empty directory of its own
		root, err := heldRoot(env, "bash")
		if err != nil {
			return "", err
		}
		workspace = &sandbox.Workspace{Root: root, Writable: !class.Safe(), Hidden: env.Hidden}
	}
	if env.CommitPoint != nil {
		if err := env.CommitPoint(); err != nil {
			return "", err
		}
	}
	if b.shells != nil && env.Background == 0 { // a background call runs beside the session's shell
		return b.runRemembering(ctx, env, in, workspace.Root, limit)
	}
	p := b.policy
	p.Limits.Wall = limit
	p.Workspace = workspace
	out := output{tell: env.Progress}
	res, err := b.box.Run(ctx, p, sandbox.Command{Argv: []string{"bash", "-c", in.Command}},
		sandbox.Streams{Stdout: &out, Stderr: &out})
	if errors.Is(err, sandbox.ErrNotStarted) { // a machine without bash
		if other := shell.Portable(in.Command); other != nil { // it was judged, and allowed, as Bash reads it
			return "", &tool.Error{Code: toolyard.SetupRequired, Err: err, Message: fmt.Sprintf("this worker has no "+
				"bash, and its sh may do something else than was meant: %v. Write it for a POSIX shell", other)}
		}
		res, err = b.box.Run(ctx, p, sandbox.Command{Argv: []string{"sh", "-c", in.Command}},
			sandbox.Streams{Stdout: &out, Stderr: &out})
	}
	if err != nil {
		return "", refused(ctx, err)
	}
	return b.ended(ctx, env, in, res, p.Limits, limit, out.String())
}

// ended makes the call's output and error of how its command has ended.
func (b *bashTool) ended(ctx context.Context, env tool.Env, in bashInput, res sandbox.Result, l sandbox.Limits,
	wall time.Duration, text string) (string, error) {
	if a, ok := shell.Answers(in.Command); ok {
		if text, ok := Answered(res, a, text); ok {
			return text, nil
		}
	}
	return Said(env, res, text), CommandEnded(ctx, res, l, wall, text)
}

// Said is what may be shown of a command's output: the limit of bytes cuts it anywhere, also inside a secret or a
// character.
func Said(env tool.Env, res sandbox.Result, text string) string {
	if res.Reason != sandbox.OutputLimit {
		return text
	}
	return env.CutOff(text)
}

// Answered returns the output of a command that ended with exit status 1 as an answer, with a line that says so. ok is
// false for any other end, and if the shell itself ended with it.
func Answered(res sandbox.Result, a shell.Answer, text string) (said string, ok bool) {
	if res.Reason != sandbox.Exited || res.ExitCode != 1 || res.Signal != 0 {
		return "", false
	}
	if lines := "\n" + text; a.UnlessShell && (strings.Contains(lines, "\nbash: ") ||
		strings.Contains(lines, "\nsh: ")) {
		return "", false
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "[exit status 1: " + a.Means + "]", true
}

// refused is the error of a command that has not started.
func refused(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNoIsolation):
		return notIsolated(err)
	case errors.Is(err, sandbox.ErrViolation):
		return &tool.Error{Code: toolyard.SandboxViolation, Message: "the sandbox does not allow this: " +
			strings.TrimPrefix(err.Error(), sandbox.ErrViolation.Error()+": "), Err: err}
	case errors.Is(err, sandbox.ErrNotStarted):
		return &tool.Error{Code: toolyard.SetupRequired, Message: "this worker has neither bash nor sh", Err: err}
	}
	return &tool.Error{Code: toolyard.DependencyUnavailable, Message: "the command could not be started", Err: err,
		Retryable: true}
}

// CommandEnded turns the end of a command into the call's error; nil for success. text is the command's output, which
// is the call's output beside the error.
func CommandEnded(ctx context.Context, res sandbox.Result, l sandbox.Limits, wall time.Duration, text string) error {
	fail := func(code toolyard.Code, format string, args ...any) error {
		e := &tool.Error{Code: code, Message: fmt.Sprintf(format, args...)}
		if why := cmp.Or(res.Detail, res.Left); why != "" {
			e.Err = errors.New(why)
		}
		return e
	}
	switch res.Reason {
	case sandbox.Exited:
		switch {
		case res.ExitCode == 0:
			return nil
		case res.Signal != 0:
			return fail(toolyard.ExecutionFailed, "the command was killed by signal %d (%s)", res.Signal,
				syscall.Signal(res.Signal))
		}
		if res.Held && (strings.Contains(text, ".git") || strings.Contains(text, "path '.' already exists")) {
			return fail(toolyard.ExecutionFailed, "the command ended with exit status %d. The workspace's own "+
				"directory is no git repository, and no command can make it one: "+
				"whoever owns it does. In a directory below it, git init and git clone work", res.ExitCode)
		}
		return fail(toolyard.ExecutionFailed, "the command ended with exit status %d", res.ExitCode)
	case sandbox.Canceled:
		return context.Cause(ctx)
	case sandbox.Timeout:
		if res.Left != "" {
			return fail(toolyard.Timeout, "the command was stopped after %s, its time limit; something that it started "+
				"may run on, since this worker may not end it", wall)
		}
		return fail(toolyard.Timeout,
			"the command was stopped after %s, its time limit; nothing that it started runs on", wall)
	case sandbox.OutOfMemory:
		return fail(toolyard.ExecutionFailed, "the command was stopped: it used more than %d MiB of memory",
			cmp.Or(l.Memory, sandbox.DefaultMemory)>>20)
	case sandbox.CPULimit:
		return fail(toolyard.ExecutionFailed, "the command was stopped: it used up its CPU time")
	case sandbox.OutputLimit:
		return fail(toolyard.ExecutionFailed,
			"the command was stopped: it wrote more than %d bytes; send the output to a file and read a part of it",
			cmp.Or(l.Output, sandbox.DefaultOutput))
	case sandbox.DiskLimit:
		return fail(toolyard.ExecutionFailed, "the command was stopped: the disk under the workspace is nearly full; "+
			"write less, or delete what is not needed")
	case sandbox.ObjectLimit:
		return fail(toolyard.ExecutionFailed,
			"the command was stopped: it had more sockets open than a command may have; use fewer at a time")
	case sandbox.Trespass:
		return fail(toolyard.SandboxViolation, "the command was undone in part: %s", res.Detail)
	}
	return fail(toolyard.OutcomeUnknown, "the sandbox was lost while the command ran; nobody knows how far it came")
}

// output collects both streams, and reports new output as progress. The sandbox bounds it.
type output struct {
	tell func(tool.Progress)
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tell != nil {
		o.tell(tool.Progress{Fraction: -1, Output: string(p)})
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
