package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
)

// Unsandboxed runs commands without isolation. It is only for machines that are discarded after one batch: a command
// can do what the worker can. It claims no isolation anywhere.
type Unsandboxed struct{}

var _ Sandbox = Unsandboxed{}

// Name is "unsandboxed".
func (Unsandboxed) Name() string { return "unsandboxed" }

// Probe claims nothing, and refuses root, whose commands would control the machine.
func (Unsandboxed) Probe(context.Context) (Capabilities, error) {
	if os.Getuid() == 0 {
		return Capabilities{},
			fmt.Errorf("%w: commands are never run without a sandbox as root; run the worker as an ordinary user",
				ErrNoIsolation)
	}
	return Capabilities{}, nil
}

// Run runs a command as this user, with the time, the output and the environment of the policy. It ignores the rest of
// the policy.
func (u Unsandboxed) Run(ctx context.Context, p Policy, c Command, s Streams) (Result, error) {
	if _, err := u.Probe(ctx); err != nil {
		return Result{}, err
	}
	if p.Serve != nil { // any process of the machine could connect
		return Result{}, ErrNoPort
	}
	limits, err := p.Limits.withDefaults()
	if err == nil {
		err = checkArgv(c.Argv)
	}
	if err != nil {
		return Result{}, err
	}
	search := os.Getenv("PATH")
	if search == "" {
		search = BaseEnv["PATH"]
	}
	env, err := environment(p.Env, search, false)
	if err != nil {
		return Result{}, err
	}
	if err := nothingKept(p.Keep); err != nil {
		return Result{}, err
	}
	if err := nothingHidden(p.Workspace); err != nil {
		return Result{}, err
	}
	dir := c.Dir
	if w := p.Workspace; w != nil && w.Root != nil {
		if err := w.Root.Check(); err != nil {
			return Result{}, fmt.Errorf("%w: %w", ErrViolation, err)
		}
		dir = cmp.Or(dir, w.Root.Dir())
	} else if w != nil {
		dir = cmp.Or(dir, w.Dir)
	}
	wall, cancel := context.WithTimeoutCause(ctx, limits.Wall, context.DeadlineExceeded)
	defer cancel()
	l, err := LaunchUnisolated(wall, Program{Argv: c.Argv, Dir: dir, Env: env, Stdin: s.Stdin, Stdout: s.Stdout,
		Stderr: s.Stderr, OutputBytes: limits.Output, Grace: graceOf(ctx)})
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return Result{}, fmt.Errorf("%w: %s", ErrNotStarted, strings.TrimPrefix(err.Error(), "launch "))
	}
	Mark(ctx, IsolationNone)
	res := l.waitCommand()
	if ctx.Err() != nil && res.Reason == Timeout {
		res.Reason = Canceled
	}
	return res, nil
}

// nothingKept refuses to keep /tmp where it is not the command's own.
func nothingKept(k *Keep) error {
	if k == nil {
		return nil
	}
	return fmt.Errorf("%w: only a sandbox on Linux keeps the files of /tmp", ErrViolation)
}

// nothingHidden refuses a workspace in which permission rules hide something: without a sandbox nothing can be hidden.
func nothingHidden(w *Workspace) error {
	if w == nil || w.Hidden == nil {
		return nil
	}
	open := func() (*os.Root, error) { return os.OpenRoot(w.Dir) }
	if w.Root != nil {
		open = w.Root.Open
	}
	root, err := open()
	if err != nil {
		return fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
	}
	defer func() { _ = root.Close() }()
	found, err := hidden(root, w.Hidden)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: permission rules hide %s of the workspace, which nothing can do for a command that "+
			"runs without a sandbox",
			ErrViolation, found[0].Path)
	}
	return err
}
