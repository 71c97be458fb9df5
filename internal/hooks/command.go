package hooks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/toolyard/toolyard/internal/sandbox"
)

// command is a hook that is a program of the operator. It is not sandboxed, since its task is to check others. It runs
// in its own session without a terminal, and none of its processes remains after it ends; see
// [sandbox.LaunchUnisolated].
type command struct {
	argv []string
	// placeholders says that run replaces ${NAME} in argv, since no shell does.
	placeholders bool
	env          []string
}

// passedOn are the variables of this process that every command gets. allowedEnvVars names others: a hook should not
// see the whole environment of a worker.
var passedOn = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL",
	"LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"}

// The variables that a command gets in addition.
const (
	projectVar = "CLAUDE_PROJECT_DIR" // the workspace's directory, under the name that existing scripts use
	hooksVar   = "TOOLYARD_HOOKS_DIR" // the directory of the configuration
)

// newCommand makes a hook's command. It gets the variables that every command gets, those that its file allows it, and
// more.
func newCommand(c handlerConfig, lookup func(string) (string, bool), more []string, dir string) *command {
	out := &command{}
	names := slices.Concat(passedOn, c.allowedVars, more)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if value, ok := lookup(name); ok {
			out.env = append(out.env, name+"="+value)
		}
	}
	if dir != "" {
		out.env = append(out.env, hooksVar+"="+dir)
	}
	if c.exec {
		out.argv, out.placeholders = append([]string{c.command}, c.args...), true
	} else {
		out.argv = []string{c.shell, "-c", c.command}
	}
	return out
}

// run implements runner.
func (c *command) run(ctx context.Context, o *occasion) (answer, error) {
	project := o.dir
	if project == "" {
		var err error
		if project, err = os.Getwd(); err != nil {
			return answer{}, fmt.Errorf("find this process's directory: %w", err)
		}
	}
	env := append(slices.Clone(c.env), projectVar+"="+project)
	status, stdout, stderr, err := start(ctx, c.arguments(env), env, o.dir, o.body)
	if err != nil {
		return answer{}, err
	}
	return fromExit(o.event, status, stdout, stderr)
}

// arguments replaces the placeholders for directories, as Claude Code does.
func (c *command) arguments(env []string) []string {
	if !c.placeholders {
		return c.argv
	}
	var pairs []string
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); name == projectVar || name == hooksVar {
			pairs = append(pairs, "${"+name+"}", value)
		}
	}
	replace := strings.NewReplacer(pairs...)
	argv := make([]string, len(c.argv))
	for i, arg := range c.argv {
		argv[i] = replace.Replace(arg)
	}
	return argv
}

// start runs a program to its end. If the context ends first, it kills the program with all that it started. The error
// says that the program could not be run, was killed, or wrote too much.
func start(ctx context.Context, argv, env []string, dir string, stdin []byte) (status int, stdout, stderr string,
	err error) {
	out, errs := &kept{limit: MaxAnswerBytes}, &kept{limit: MaxStderrBytes}
	running, err := sandbox.LaunchUnisolated(ctx, sandbox.Program{
		Argv: argv, Dir: dir, Env: env, Stdin: bytes.NewReader(stdin), Stdout: out, Stderr: errs,
		OutputBytes: MaxOutputBytes,
	})
	if err != nil {
		return 0, "", "", fmt.Errorf("it could not be started: %w", err)
	}
	res, err := running.Wait()
	stopped := res.Reason == sandbox.Timeout || res.Reason == sandbox.Canceled
	switch {
	case stopped && err != nil:
		return 0, "", "", fmt.Errorf("%w, and could not be ended: %s", context.Cause(ctx),
			strings.ReplaceAll(err.Error(), "\n", "; "))
	case stopped:
		return 0, "", "", context.Cause(ctx)
	case err != nil:
		return 0, "", "", fmt.Errorf("wait for its end: %w", err)
	case res.Reason == sandbox.OutputLimit:
		return 0, "", "", fmt.Errorf("it wrote more than %d bytes", MaxOutputBytes)
	case res.Signal != 0 || res.ExitCode < 0:
		return 0, "", "", fmt.Errorf("it was ended by a signal: %s", syscall.Signal(res.Signal))
	case out.more:
		return 0, "", "", fmt.Errorf("it wrote more than %d bytes to stdout", MaxAnswerBytes)
	}
	return res.ExitCode, string(out.text), string(errs.text), nil
}

// kept keeps the beginning of what is written to it.
type kept struct {
	limit int
	text  []byte
	more  bool
}

func (k *kept) Write(b []byte) (int, error) {
	room := min(k.limit-len(k.text), len(b))
	k.text = append(k.text, b[:room]...)
	k.more = k.more || room < len(b)
	return len(b), nil
}
