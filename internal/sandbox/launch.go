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
	"sync/atomic"
	"syscall"
	"time"
)

// Program is one that an operator has configured, such as a command hook or an MCP server. It is trusted as the worker is:
// nothing stands around it.
type Program struct {
	// Argv is the program and its arguments. A name without a slash is looked up in the worker's PATH.
	Argv []string
	// Dir is its working directory. Empty: the worker's.
	Dir string
	// Env is its exact environment; nil means an empty one. On Linux there is one more entry, by which all that it
	// starts is found at the end.
	Env   []string
	Stdin io.Reader
	// Stdout and Stderr get its output as it comes. Nil drops it.
	Stdout, Stderr io.Writer
	// OutputBytes bounds both together; past it the program is stopped. 0: [DefaultOutput].
	OutputBytes int64
}

// launchMark is the environment variable by which the processes of a program are found, wherever they have gone.
const launchMark = "TOOLYARD_LAUNCH"

// LaunchUnisolated starts a program that an operator has configured. It isolates nothing: what it starts has the worker's
// own rights. It is only there so that such programs have an environment, a session and an end: when ctx is over, the
// program and all that it has started are killed. The caller waits for it.
func LaunchUnisolated(ctx context.Context, p Program) (*Launched, error) {
	if len(p.Argv) == 0 {
		return nil, errors.New("launch a program: there is none")
	}
	if p.OutputBytes <= 0 {
		p.OutputBytes = DefaultOutput
	}
	id := launchMark + "=" + rand.Text()
	l := &Launched{ctx: ctx, id: id, left: p.OutputBytes, full: make(chan struct{}), began: time.Now()}
	l.cmd = exec.Command(p.Argv[0], p.Argv[1:]...)
	l.cmd.Dir, l.cmd.Stdin, l.cmd.Env = p.Dir, p.Stdin, append(slices.Clone(p.Env), id)
	l.cmd.Stdout, l.cmd.Stderr = l.limited(p.Stdout), l.limited(p.Stderr)
	if p.Stdout == p.Stderr { // one pipe keeps their order
		l.cmd.Stderr = l.cmd.Stdout
	}
	l.cmd.WaitDelay = drainTimeout
	if err := ownSession(l.cmd); err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("launch %s: %w", p.Argv[0], err)
	}
	l.stopped = make(chan struct{})
	l.ended = make(chan struct{})
	go l.guard()
	return l, nil
}

// Launched is a program that runs.
type Launched struct {
	ctx   context.Context
	cmd   *exec.Cmd
	id    string
	began time.Time
	left  int64
	over  atomic.Bool
	full  chan struct{}
	// ended is closed when the program has, stopped when nothing of it can run any more.
	ended, stopped chan struct{}
	killed         error
}

// drainTimeout is how long output may take to arrive after everything that could write it is dead.
const drainTimeout = 2 * time.Second

// guard kills everything when the context or the output is over, and what the program leaves behind when it ends itself.
func (l *Launched) guard() {
	defer close(l.stopped)
	select {
	case <-l.ctx.Done():
	case <-l.full:
	case <-l.ended:
	}
	l.killed = killTree(l.cmd.Process.Pid, l.id)
}

// Wait waits until the program has ended and says how. Nothing that it has started runs then. The error is about the
// launching, never about the program's own failure.
func (l *Launched) Wait() (Result, error) {
	err := l.cmd.Wait()
	close(l.ended)
	<-l.stopped
	res := Result{ExitCode: -1, Reason: Exited, Isolation: IsolationNone, Usage: Usage{Wall: time.Since(l.began)}}
	if state := l.cmd.ProcessState; state != nil {
		res.ExitCode, res.Usage.User, res.Usage.System = state.ExitCode(), state.UserTime(), state.SystemTime()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			res.Signal = int(status.Signal())
		}
	}
	switch {
	case l.over.Load():
		res.Reason = OutputLimit
	case l.ctx.Err() != nil && errors.Is(context.Cause(l.ctx), context.DeadlineExceeded):
		res.Reason = Timeout
	case l.ctx.Err() != nil:
		res.Reason = Canceled
	}
	if _, failed := errors.AsType[*exec.ExitError](err); failed || errors.Is(err, exec.ErrWaitDelay) || errors.Is(err, os.ErrClosed) || res.Reason != Exited {
		err = nil
	}
	return res, errors.Join(err, l.killed)
}

// limited passes on what fits into the program's output.
func (l *Launched) limited(to io.Writer) io.Writer {
	if to == nil {
		to = io.Discard
	}
	return limitedWriter{l, to}
}

type limitedWriter struct {
	l  *Launched
	to io.Writer
}

func (w limitedWriter) Write(p []byte) (int, error) {
	left := atomic.AddInt64(&w.l.left, -int64(len(p)))
	fits := p
	if left < 0 {
		fits = p[:max(int64(len(p))+left, 0)]
	}
	_, err := w.to.Write(fits)
	if left < 0 && w.l.over.CompareAndSwap(false, true) {
		close(w.l.full)
	}
	return len(p), err
}
