package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

type bashInput struct {
	Command     string `json:"command"`
	TimeoutMS   *whole `json:"timeout_ms"`
	Description string `json:"description"`
}

// bash is declared on every worker, so that agents are told why a command does not run instead of finding no such
// tool; it starts nothing unless the sandbox can isolate it.
func bash(box sandbox.Sandbox) (tool.Tool, error) {
	check := func(ctx context.Context, _ tool.Env, in bashInput) error { return checkBash(ctx, box, in) }
	return define(tool.Declaration{
		Name: "bash",
		Description: "Runs a shell command in the workspace's directory, isolated from the rest of the machine, and gives its output. " +
			"Use read_file, glob, grep, write_file and edit_file for what they can do: they need no approval to read and are exact. " +
			"Commands that only read may run beside others; any other runs alone.",
		InputSchema: object(
			text("command", "The command, for bash -c.").required(),
			number("timeout_ms", 1, MaxBashTimeout.Milliseconds(), "After how many milliseconds to stop the command.").or(DefaultBashTimeout.Milliseconds()),
			text("description", "What the command does, in five to ten words, for the person who approves it."),
		),
		Class:     tool.ClassRule{Shell: "command"},
		Specifier: tool.Specifier{Command: "command"},
		TimeoutMS: MaxBashTimeout.Milliseconds(),
	}, check, func(ctx context.Context, env tool.Env, in bashInput) (string, error) {
		return "", check(ctx, env, in)
	})
}

// checkBash always ends in an error: the sandbox says whether the machine could isolate a command, and no backend can
// run one yet.
func checkBash(ctx context.Context, box sandbox.Sandbox, in bashInput) error {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return tool.Invalid("command is empty; give a shell command")
	case len(in.Command) > MaxCommandBytes:
		return tool.Invalid("command is %d bytes long; it has at most %d: write a script with write_file and run that", len(in.Command), MaxCommandBytes)
	case strings.ContainsRune(in.Command, 0):
		return tool.Invalid("command holds a NUL character, which no command can")
	case len(in.Description) > MaxDescriptionBytes:
		return tool.Invalid("description is %d bytes long; it has at most %d", len(in.Description), MaxDescriptionBytes)
	}
	if _, err := in.TimeoutMS.between("timeout_ms", DefaultBashTimeout.Milliseconds(), 1, MaxBashTimeout.Milliseconds()); err != nil {
		return err
	}
	_, err := box.Probe(ctx)
	if err == nil {
		err = fmt.Errorf("%w: the sandbox backend %q can isolate commands, but this build has no way to run one in it; upgrade the worker",
			sandbox.ErrNoIsolation, box.Name())
	}
	return &tool.Error{
		Code: toolyard.SetupRequired,
		Message: "this worker cannot isolate commands, so it runs none; an operator must set that up. " +
			"Do without bash: read_file, glob, grep, write_file and edit_file work",
		Err: err,
	}
}
