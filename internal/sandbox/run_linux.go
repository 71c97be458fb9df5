//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// outer is the difference between the backends: how the namespaces for the stage are made.
type outer interface {
	// wrap makes the command that starts the stage, and removes from the plan what it does itself. The caller closes
	// the files as soon as the command runs.
	wrap(base *stage.Root, spec *stage.Spec) (cmd *exec.Cmd, files []*os.File, err error)
}

// runner runs commands behind one backend.
type runner struct {
	machine *machine
	name    string
	outer   outer
	// spares are stages that have built their root and wait for a command. Nil: each command gets a new stage.
	spares *spares
	// groups gives commands kernel limits; nil, with the reason, if no cgroup was delegated.
	groups   *cgroups
	noGroups error
	// mount prepares a workspace whose owner is not the user of the commands. Nil: no preparation is needed.
	mount func(l *lease) error
}

// Run implements [Sandbox].
func (r *runner) Run(ctx context.Context, p Policy, c Command, st Streams) (res Result, err error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	var l *lease
	var ws *leased
	if p.Workspace != nil {
		if l, err = acquire(ctx, p.Workspace); err != nil {
			return Result{}, err
		}
		defer func() {
			res.Held = l.holdsGit()
			trespasses, undone := l.release()
			// it was removed again before the command was ended because of it
			if len(trespasses) == 0 && l.appearedAt != "" {
				trespasses = []string{l.appearedAt}
			}
			// with the error: the command was ended before its start was reported
			if len(trespasses) > 0 && (err == nil || errors.Is(err, errTrespassed)) {
				err, res.Isolation = nil, r.name
				res.Reason, res.Detail = Trespass, trespassed(trespasses, undone)
			}
			if undone != nil {
				res.Detail += "; " + undone.Error()
			}
		}()
		watched, stop := l.watch(ctx)
		defer stop()
		ctx = watched
		if r.mount != nil {
			if err := r.mount(l); err != nil {
				return Result{}, err
			}
		}
		ws = &l.leased
	}
	base, spec, err := plan(p, c, r.machine, ws)
	if err != nil {
		return Result{}, err
	}
	limits, err := p.Limits.withDefaults()
	if err != nil {
		return Result{}, err
	}
	stdin, err := wholeStdin(st.Stdin)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, stdin.Close()) }()
	own, err := r.groups.make(limits)
	if err != nil {
		return Result{}, setupError(r.name, "limit the command", err)
	}
	defer func() {
		if e := own.end(); e != nil {
			res.Detail += "; " + e.Error()
		}
	}()
	x := &execution{group: own, noGroup: r.noGroups, ctx: ctx, name: r.name, spec: spec, limits: limits,
		network: p.Network, serve: p.Serve, began: time.Now(), stdin: stdin, streams: st, keep: p.Keep}
	if spare := r.spares.take(base); spare != nil {
		res, err := x.run(spare, ws)
		if x.begun.Load() || !errors.Is(err, ErrNoIsolation) {
			return res, err
		}
		// The spare no longer fits: something was mounted since it was prepared, or it was killed. It was never told to
		// start the command, so nothing has run. The workspace's mount may be in it, and is made again.
		if ws != nil && ws.fd != 0 {
			if err := errors.Join(unix.Close(ws.fd), r.remount(l)); err != nil {
				return Result{}, err
			}
		}
	}
	fresh, err := startStage(r.name, r.outer, base, spec)
	if err != nil {
		return Result{}, err
	}
	return x.run(fresh, ws)
}

// remount prepares a workspace again after its mount was passed on.
func (r *runner) remount(l *lease) error {
	l.fd = 0
	return r.mount(l)
}

// execution is one run of one command.
type execution struct {
	ctx     context.Context
	name    string
	spec    *stage.Spec
	limits  Limits
	network Network
	serve   func(net.Conn)
	began   time.Time
	output  *budget

	stdin   *os.File
	streams Streams
	keep    *Keep

	// group is the command's cgroup; nil, with the reason, if there is none.
	group   *group
	noGroup error

	reports chan reported
	proxy   *proxy
	// begun says that the stage was told to start the command. From then on the command may have run, unless the stage
	// reports that it could not be started.
	begun atomic.Bool
}

// reported is what the stage has sent: reports until the socket's end.
type reported struct {
	failed *stage.Failure
	ready  *stage.Ready
	ended  *stage.Ended
	err    error
}

func (x *execution) run(p *process, ws *leased) (Result, error) {
	defer x.close()
	theirs, err := x.open()
	if err != nil {
		p.discard()
		return Result{}, setupError(x.name, "open the streams", err)
	}
	fds := []int{int(x.stdin.Fd())}
	for _, f := range theirs {
		fds = append(fds, int(f.Fd()))
	}
	if len(theirs) == 1 { // one pipe for both
		fds = append(fds, fds[1])
	}
	if ws != nil && ws.fd != 0 {
		fds = append(fds, ws.fd)
	}
	if k := x.keep; k != nil {
		for _, f := range []*os.File{k.From, k.To} {
			if f != nil {
				fds = append(fds, int(f.Fd()))
			}
		}
	}
	sent := make(chan error, 1)
	go func() {
		_, _, err := p.conn.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
		closeAll(theirs)
		if err == nil {
			err = stage.Write(p.conn, x.spec)
		}
		sent <- err
	}()
	go x.listen(p, sent)
	stop := x.wait(p.conn, ws != nil && ws.writable)
	// all processes of the command are gone, and the kernel removes its sandbox without us
	if stop.seen != nil && stop.seen.ended != nil {
		go p.discard()
		return x.judge(stop, x.output.drain(), nil, p)
	}
	// Killing the stage kills its namespace; killing bwrap's monitor kills the stage. When the process has ended,
	// everything under it has ended.
	ended := p.kill()
	defer p.close()
	drained := x.output.drain()
	return x.judge(stop, drained, ended, p)
}

// open makes the output pipes. It returns their far ends: one if both streams are the same.
func (x *execution) open() (theirs []*os.File, err error) {
	x.reports, x.output = make(chan reported, 1), newBudget(x.limits.Output)
	streams := []io.Writer{x.streams.Stdout, x.streams.Stderr}
	if x.streams.Stderr == x.streams.Stdout {
		streams = streams[:1]
	}
	for _, to := range streams {
		far, err := x.output.pipe(to)
		if err != nil {
			closeAll(theirs)
			return nil, err
		}
		theirs = append(theirs, far)
	}
	return theirs, nil
}

// close ends the proxy, if there is one.
func (x *execution) close() {
	if x.proxy != nil {
		x.proxy.close()
		x.proxy = nil
	}
}

// listen reads the stage's reports until its end.
func (x *execution) listen(p *process, sent <-chan error) {
	conn := p.conn
	var seen reported
	defer func() { x.reports <- seen }()
	if err := <-sent; err != nil {
		seen.err = fmt.Errorf("send the plan: %w", err)
		return
	}
	var from io.Reader = conn
	if x.spec.Proxy {
		var rest io.Reader
		rest, x.proxy, seen.err = takeListener(conn, x.network, x.serve)
		if seen.err != nil {
			return
		}
		from = rest
	}
	for {
		var r stage.Report
		err := stage.Read(from, &r)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			seen.err = err
			return
		}
		switch {
		case r.Failed != nil:
			seen.failed = r.Failed
		case r.Ready != nil && seen.ready == nil:
			seen.ready = r.Ready
			if x.ctx.Err() != nil {
				return
			}
			if seen.err = x.enterGroup(p); seen.err != nil {
				return
			}
			Mark(x.ctx, x.name)
			x.begun.Store(true)
			if _, err := conn.Write([]byte{stage.Go}); err != nil {
				seen.err = fmt.Errorf("say that the command is to start: %w", err)
				return
			}
		case r.Ended != nil:
			seen.ended = r.Ended
			return // what follows is the end of an empty sandbox
		}
	}
}

// enterGroup moves the stage into the command's cgroup, before it starts anything.
func (x *execution) enterGroup(p *process) error {
	if x.group == nil {
		return nil
	}
	pid, err := p.child.stage()
	if err != nil {
		return fmt.Errorf("find the sandbox's process: %w", err)
	}
	return x.group.add(pid)
}

// stopped is why the worker ends a command; empty if it has ended by itself.
type stopped struct {
	reason Reason
	seen   *reported
}

// wait waits until the stage is gone or must be ended. A command that times out or is canceled gets SIGTERM if it can
// leave something half done, in a workspace that it writes to. A command that exceeds a limit, or violates the policy,
// gets no more time.
func (x *execution) wait(conn net.Conn, leavesThings bool) (stop stopped) {
	wall := time.NewTimer(x.limits.Wall)
	defer wall.Stop()
	select {
	case seen := <-x.reports:
		return stopped{seen: &seen}
	case <-x.ctx.Done():
		stop.reason = Canceled
	case <-wall.C:
		stop.reason = Timeout
	case <-x.output.over():
		return stopped{reason: OutputLimit}
	}
	if !leavesThings || !x.begun.Load() || errors.Is(context.Cause(x.ctx), errTrespassed) {
		return stop
	}
	if _, err := conn.Write([]byte{stage.Stop}); err != nil {
		return stop
	}
	grace := time.NewTimer(graceOf(x.ctx))
	defer grace.Stop()
	select {
	case seen := <-x.reports:
		stop.seen = &seen
	case <-x.output.over():
	case <-grace.C:
	}
	return stop
}

// judge determines how the command ended, from all reports.
func (x *execution) judge(stop stopped, drained, ended error, p *process) (Result, error) {
	seen := stop.seen
	if seen == nil {
		select {
		case s := <-x.reports:
			seen = &s
		case <-time.After(drainTimeout):
			seen = &reported{err: errors.New("the stage's socket did not end with it")}
		}
	}
	res := Result{ExitCode: -1, Reason: stop.reason, Isolation: x.name, Usage: Usage{Wall: time.Since(x.began)}}
	if problem := errors.Join(seen.err, drained, ended); problem != nil {
		res.Detail = problem.Error()
	}
	begun := x.begun.Load()
	if f := seen.failed; f != nil {
		switch {
		case f.NoCommand:
			return Result{}, fmt.Errorf("%w: %s", ErrNotStarted, f.Err)
		case f.NoKeep:
			return Result{}, fmt.Errorf("%w: %s", ErrKeep, f.Err)
		case !begun:
			return Result{}, setupFailure(x.name, f)
		}
		res.Detail += f.Step + ": " + f.Err
	}
	if !begun && (stop.reason == Canceled || x.ctx.Err() != nil) {
		return Result{}, context.Cause(x.ctx)
	}
	if !begun && stop.reason == "" {
		return Result{}, setupError(x.name, "start", fmt.Errorf("the stage ended without a word (%v) %s%s", p.child,
			res.Detail, p.stderrText()))
	}
	if seen.ready != nil {
		res.Layers, res.Missing = seen.ready.Layers, seen.ready.Missing
		if x.group != nil {
			res.Layers = append(res.Layers, cgroupLayer)
		} else if x.noGroup != nil {
			res.Missing = append(res.Missing, cgroupLayer+": "+x.noGroup.Error())
		}
	}
	e := seen.ended
	if e == nil {
		if begun && x.group.outOfMemory() { // the kernel has killed the whole group, including the init
			res.Reason = OutOfMemory
		}
		if res.Reason == "" {
			res.Reason = SandboxLost
			res.Detail = fmt.Sprintf("the sandbox's init ended (%v) before the command %s%s", p.child, res.Detail,
				p.stderrText())
		}
		return res, nil
	}
	res.ExitCode, res.Signal = e.Exit, e.Signal
	if e.Kept != nil {
		res.Kept, res.Env = e.Kept, x.spec.Env
	}
	res.Usage.User, res.Usage.System, res.Usage.MaxRSS, res.Usage.Peak = e.User, e.System, e.MaxRSS, e.Peak
	switch {
	case stop.reason == OutputLimit || x.output.isOver():
		res.Reason = OutputLimit
	case e.Over == "memory" || x.group.outOfMemory():
		res.Reason, res.Detail = OutOfMemory, fmt.Sprintf("%d bytes in use", e.Peak)
	case e.Over == "cpu", syscall.Signal(e.Signal) == unix.SIGXCPU:
		res.Reason = CPULimit
	case e.Over == "disk":
		res.Reason, res.Detail = DiskLimit,
			fmt.Sprintf("less than %d bytes, or room for %d files, are free under the workspace", x.spec.DiskFree,
				x.spec.FilesFree)
	case e.Over == "sockets":
		res.Reason, res.Detail = ObjectLimit, fmt.Sprintf("more than %d sockets", x.spec.Sockets)
	case e.Over != "":
		res.Reason, res.Detail = SandboxLost, e.Over
	case e.Told && stop.reason != "": // it ended because it was told to
	default:
		res.Reason = Exited // also if it was about to be stopped: its effects exist
	}
	return res, nil
}

// wholeStdin reads the command's input into a file in memory. Without a reader it is /dev/null.
func wholeStdin(r io.Reader) (*os.File, error) {
	if r == nil {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	n, err := io.Copy(f, io.LimitReader(r, MaxStdinBytes+1))
	if err == nil && n > MaxStdinBytes {
		err = fmt.Errorf("%w: more than %d bytes to read", ErrViolation, MaxStdinBytes)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
