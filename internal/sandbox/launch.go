package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is a program that an operator has configured, such as a command hook or an MCP server. It is trusted like the
// worker, and not isolated.
type Program struct {
	// Argv is the program and its arguments. A name without a slash is looked up in the worker's PATH.
	Argv []string
	// Dir is its working directory. Empty: the worker's.
	Dir string
	// Env is its exact environment; nil means an empty one. On Linux there is one more entry, which marks all processes
	// that it starts, so that they are found at the end.
	Env   []string
	Stdin io.Reader
	// Stdout and Stderr get its output as it comes. Nil discards it.
	Stdout, Stderr io.Writer
	// OutputBytes bounds both together; past it the program is stopped. 0: [DefaultOutput].
	OutputBytes int64
	// Grace is the time between SIGTERM and SIGKILL when ctx ends. 0: none.
	Grace time.Duration
	// extra are files that it has open as 3, 4 and so on. Not on Windows.
	extra []*os.File
}

// endTimeout is how long a program may take to end after it was killed.
const endTimeout = 5 * time.Second

// launchMark is the environment variable by which the processes of a program are found, wherever they have moved.
const launchMark = "TOOLYARD_LAUNCH"

// LaunchUnisolated starts a program that an operator has configured. It isolates nothing: the program has the worker's
// own rights. It gives the program an environment and a session, and ends it: when ctx ends, the program and all that
// it has started are killed. What may remain are processes of another user, where the worker is no root, and on Linux
// those that have left the session and whose environment cannot be read. The caller must call Wait.
func LaunchUnisolated(ctx context.Context, p Program) (*Launched, error) {
	if len(p.Argv) == 0 {
		return nil, errors.New("launch a program: there is none")
	}
	if p.OutputBytes <= 0 {
		p.OutputBytes = DefaultOutput
	}
	l := &Launched{ctx: ctx, id: launchMark + "=" + rand.Text(), output: newBudget(p.OutputBytes), grace: p.Grace,
		began: time.Now(), stopped: make(chan struct{}), ended: make(chan struct{})}
	l.cmd = exec.Command(p.Argv[0], p.Argv[1:]...)
	l.cmd.Dir, l.cmd.Env, l.cmd.ExtraFiles = p.Dir, append(slices.Clone(p.Env), l.id), p.extra
	if err := ownSession(l.cmd); err != nil {
		return nil, err
	}
	theirs, err := l.connect(&p)
	if err == nil {
		err = l.cmd.Start()
	}
	closeAll(theirs)
	if err != nil {
		l.close()
		return nil, fmt.Errorf("launch %s: %w", p.Argv[0], err)
	}
	if l.stdin != nil {
		go func() { // a program need not read its input
			_, _ = io.Copy(l.stdin, p.Stdin)
			_ = l.stdin.Close()
		}()
	}
	go l.guard()
	return l, nil
}

// connect makes the program's streams. They are our own pipes, so that waiting for the program does not wait for its
// streams. The returned files are the program's ends.
func (l *Launched) connect(p *Program) (theirs []*os.File, err error) {
	take := func(f *os.File, e error) *os.File {
		if e == nil {
			theirs = append(theirs, f)
		}
		err = errors.Join(err, e)
		return f
	}
	l.cmd.Stdout = take(l.output.pipe(p.Stdout))
	l.cmd.Stderr = l.cmd.Stdout // one pipe keeps the order of both
	if p.Stdout != p.Stderr {
		l.cmd.Stderr = take(l.output.pipe(p.Stderr))
	}
	if f, ok := p.Stdin.(*os.File); ok {
		l.cmd.Stdin = f
	} else if p.Stdin != nil {
		r, w, e := os.Pipe()
		l.cmd.Stdin, l.stdin = take(r, e), w
	}
	return theirs, err
}

// Launched is a running program.
type Launched struct {
	ctx    context.Context
	cmd    *exec.Cmd
	id     string
	began  time.Time
	output *budget
	grace  time.Duration
	stdin  *os.File // our end of its stdin; nil for none
	// ended is closed when the program has ended, stopped when all its processes are gone.
	ended, stopped chan struct{}
	reason         Reason // why it was stopped, if it did not end by itself
	told           bool   // it was told to stop
	killed         error
}

// guard kills everything when the context ends or the output is too long, and what is left when the program ends.
func (l *Launched) guard() {
	defer close(l.stopped)
	select {
	case <-l.ended:
		l.reason = Exited
	case <-l.output.over():
		l.reason = OutputLimit
	case <-l.ctx.Done():
		if l.reason = Canceled; errors.Is(context.Cause(l.ctx), context.DeadlineExceeded) {
			l.reason = Timeout
		}
		l.terminate()
	}
	l.killed = killTree(l.cmd.Process.Pid, l.id)
}

// terminate sends SIGTERM, and waits for the grace.
func (l *Launched) terminate() {
	if l.grace <= 0 || tellGroup(l.cmd.Process.Pid) != nil {
		return
	}
	l.told = true
	grace := time.NewTimer(l.grace)
	defer grace.Stop()
	select {
	case <-l.ended:
	case <-l.output.over():
	case <-grace.C:
	}
}

// Wait waits until the program has ended and returns how. Everything that it has started is then gone, as far as it may
// be killed. The error is about launching and killing it, never about its own failure; it says so if the program still
// runs.
func (l *Launched) Wait() (Result, error) {
	waited := make(chan error, 1)
	go func() {
		waited <- l.cmd.Wait()
		close(l.ended)
	}()
	<-l.stopped
	var state *os.ProcessState
	var err error
	select {
	case err = <-waited:
		state = l.cmd.ProcessState
	case <-time.After(endTimeout):
		err = errors.New("the program still runs")
	}
	drained := l.output.drain()
	l.close()
	res := Result{ExitCode: -1, Reason: l.reason, Isolation: IsolationNone, Usage: Usage{Wall: time.Since(l.began)}}
	if state != nil {
		res.ExitCode, res.Usage.User, res.Usage.System = state.ExitCode(), state.UserTime(), state.SystemTime()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			res.Signal = int(status.Signal())
		}
		if state.Exited() && !l.told { // also if it was about to be stopped: its effects exist
			res.Reason = Exited
		}
	}
	if l.output.isOver() {
		res.Reason = OutputLimit
	}
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		err = nil
	}
	return res, errors.Join(err, drained, l.killed)
}

// waitCommand is [Launched.Wait] for a command. That something of it may not be killed is said in the result: the
// command has run, and an error would be taken for one that has not begun.
func (l *Launched) waitCommand() Result {
	res, err := l.Wait()
	if err != nil {
		res.Left = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return res
}

// close closes our end of the program's stdin.
func (l *Launched) close() {
	if l.stdin != nil {
		_ = l.stdin.Close() // the program did not want the rest
	}
}
