package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command is a hook that is a program of the operator. It is not sandboxed: it is there to decide on others. It runs in a
// session of its own, without a terminal, and nothing of it is left when it is over, but for what has begun yet another
// session.
type command struct {
	argv []string
	// placeholders says that ${NAME} is replaced in argv, since no shell does it.
	placeholders bool
	env          []string
}

// passedOn are the variables of this process that every command gets. Others are named in allowedEnvVars: the environment of
// a worker may hold what a hook has no business to know.
var passedOn = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"}

// The variables that a command gets beside these.
const (
	projectVar = "CLAUDE_PROJECT_DIR" // the workspace's directory, under the name that scripts in the field know
	hooksVar   = "TOOLYARD_HOOKS_DIR" // where the configuration stands
)

func newCommand(c handlerConfig, lookup func(string) (string, bool), dir string) *command {
	out := &command{}
	for _, name := range slices.Concat(passedOn, c.allowedVars) {
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

// arguments replaces the placeholders for directories, which the field's form has.
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

// start runs a program to its end, or to the end of its context, which kills it with all that it has started. The error is that
// it could not be run, was killed, or said too much.
func start(ctx context.Context, argv, env []string, dir string, stdin []byte) (status int, stdout, stderr string, err error) {
	var readers, writers []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close() // a pipe, of which nothing is lost
		}
	}
	defer func() { closeAll(readers); closeAll(writers) }()
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, "", "", fmt.Errorf("make a pipe: %w", err)
		}
		readers, writers = append(readers, r), append(writers, w)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	// Files, and not buffers: Wait then waits for the program, and not for what it has left behind.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = readers[0], writers[1], writers[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	kill := func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	cmd.Cancel = kill
	if err := cmd.Start(); err != nil {
		return 0, "", "", fmt.Errorf("it could not be started: %w", err)
	}
	closeAll([]*os.File{readers[0], writers[1], writers[2]})
	out, errs := &kept{limit: MaxAnswerBytes}, &kept{limit: MaxStderrBytes}
	var plumbing sync.WaitGroup
	plumbing.Go(func() { // a hook need not read what it is told
		_, _ = writers[0].Write(stdin)
		_ = writers[0].Close()
	})
	plumbing.Go(func() { _, _ = io.Copy(out, readers[1]) }) // kept never fails, and the pipe ends
	plumbing.Go(func() { _, _ = io.Copy(errs, readers[2]) })
	waited := cmd.Wait()
	killed := kill() // what it has started and left
	// What has got away and holds the pipes does not hold us.
	patience := drainTime
	if ctx.Err() != nil {
		patience = 0 // nobody reads it any more
	}
	cut := time.AfterFunc(patience, func() {
		now := time.Now()
		for _, f := range []*os.File{writers[0], readers[1], readers[2]} {
			_ = f.SetDeadline(now) // it may be closed
		}
	})
	plumbing.Wait()
	cut.Stop()
	exit := new(exec.ExitError)
	switch {
	case ctx.Err() != nil && waited != nil:
		return 0, "", "", context.Cause(ctx)
	case waited != nil && !errors.As(waited, &exit):
		return 0, "", "", fmt.Errorf("wait for it: %w", waited)
	case killed != nil:
		return 0, "", "", fmt.Errorf("end what it has left running: %w", killed)
	case cmd.ProcessState.ExitCode() < 0:
		return 0, "", "", fmt.Errorf("it was ended by a signal: %s", cmd.ProcessState)
	case out.more:
		return 0, "", "", fmt.Errorf("it wrote more than %d bytes to stdout", MaxAnswerBytes)
	}
	return cmd.ProcessState.ExitCode(), string(out.text), string(errs.text), nil
}

// kept is the beginning of what is written to it.
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
