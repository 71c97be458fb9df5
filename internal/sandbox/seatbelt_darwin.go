package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	held "github.com/toolyard/toolyard/internal/place"
)

// sandboxExec is the only program that is used. It is part of macOS and protected by it.
const sandboxExec = "/usr/bin/sandbox-exec"

// seatbeltLayers are what a command has, and seatbeltMissing what it has on Linux and not here.
var (
	seatbeltLayers  = []string{"seatbelt", "no network", "environment", "limits"}
	seatbeltMissing = []string{"memory: macOS does not limit it",
		"pid: a process that leaves the command's session is not found at the end"}
)

// seatbelted runs commands under sandbox-exec, as the worker's own user.
type seatbelted struct {
	mu   sync.Mutex
	done bool
	err  error
}

func (s *seatbelted) Name() string { return Seatbelt }

// seatbeltCanary prints each hole that it finds, and at last that all is well.
const seatbeltCanary = `
[ "$(cat "$1/own")" = own ] || echo hole: the workspace is not readable
(: > "$1/new") || echo hole: the workspace is not writable
(: > "$1/.git/hooks/x") 2>/dev/null && echo hole: .git/hooks is writable
(: > "$1/.GIT/HOOKS/x") 2>/dev/null && echo hole: .GIT/HOOKS is writable
mv "$1/.git" "$1/moved" 2>/dev/null && echo hole: .git can be moved
ln "$1/.git/hooks/h" "$1/h" 2>/dev/null && echo hole: a protected file gets another name
cat "$2" 2>/dev/null && echo hole: a file outside is readable
(: > "$2") 2>/dev/null && echo hole: a file outside is writable
(exec 3<>/dev/tcp/127.0.0.1/"$3") 2>/dev/null && echo hole: the network is there
echo sound
`

// Probe runs the canary once. The outcome is kept, because a worker announces it.
func (s *seatbelted) Probe(ctx context.Context) (Capabilities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		err := s.try(ctx)
		if ctx.Err() != nil {
			return Capabilities{}, context.Cause(ctx) // not an answer to cache
		}
		if err != nil && !errors.Is(err, ErrNoIsolation) {
			err = fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
		}
		s.done, s.err = true, err
	}
	if s.err != nil {
		return Capabilities{}, s.err
	}
	return Capabilities{Backend: Seatbelt, Layers: seatbeltLayers, Missing: seatbeltMissing}, nil
}

func (s *seatbelted) try(ctx context.Context) (err error) {
	if os.Getuid() == 0 {
		return fmt.Errorf("%w: %s: it cannot take root's rights away; run the worker as an ordinary user", ErrNoIsolation,
			Seatbelt)
	}
	if _, err := os.Stat(sandboxExec); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
	}
	top, err := os.MkdirTemp("", fmt.Sprintf("toolyard-probe-%d-", os.Getpid()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	dir, outside := filepath.Join(top, "workspace"), filepath.Join(top, "outside")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755),
		os.WriteFile(filepath.Join(dir, ".git", "hooks", "h"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "own"), []byte("own\n"), 0o644),
		os.WriteFile(outside, []byte("secret\n"), 0o644)); err != nil {
		return err
	}
	port, stop, err := listenOnce()
	if err != nil {
		return err
	}
	defer stop()
	var out bytes.Buffer
	res, err := s.run(ctx, Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Limits: Limits{Wall: seatbeltProbe}},
		Command{Argv: []string{"/bin/bash", "-c", seatbeltCanary, "canary", dir, outside, port}},
		Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(out.String()); res.Reason != Exited || res.ExitCode != 0 || got != "sound" {
		return fmt.Errorf("the sandbox did not hold when it was tried: %s, status %d, signal %d: %s", res.Reason,
			res.ExitCode, res.Signal, strings.ReplaceAll(got, "\n", "; "))
	}
	return nil
}

// seatbeltProbe bounds the probe.
const seatbeltProbe = 20 * time.Second

// Run runs a command. It refuses what it cannot give: addresses of the network, secrets in files, and root.
func (s *seatbelted) Run(ctx context.Context, p Policy, c Command, st Streams) (Result, error) {
	if _, err := s.Probe(ctx); err != nil {
		return Result{}, err
	}
	return s.run(ctx, p, c, st)
}

func (s *seatbelted) run(ctx context.Context, p Policy, c Command, st Streams) (res Result, err error) {
	limits, err := p.Limits.withDefaults()
	if err == nil {
		err = checkArgv(c.Argv)
	}
	if err == nil && p.Serve != nil {
		err = ErrNoPort
	}
	if err == nil && (len(p.Network.Allow) > 0 || len(p.Secrets) > 0) {
		err = fmt.Errorf("%w: on macOS commands have no network and no files with secrets", ErrViolation)
	}
	if err == nil {
		err = nothingKept(p.Keep)
	}
	if err != nil {
		return Result{}, err
	}
	box := &seatbelt{}
	if box.Scratch, err = os.MkdirTemp("", "toolyard-"); err != nil {
		return Result{}, fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(box.Scratch)) }()
	if box.Scratch, err = filepath.EvalSymlinks(box.Scratch); err != nil {
		return Result{}, fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
	}
	for _, dir := range p.Read {
		if err := cleanPath("the directory to read", dir); err != nil {
			return Result{}, err
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return Result{}, fmt.Errorf("%w: %w", ErrViolation, err)
		}
		box.Read = append(box.Read, real)
	}
	dir := box.Scratch
	var l *seatLease
	if p.Workspace != nil {
		if l, err = takeSeat(ctx, p.Workspace, box); err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		dir = box.Workspace
	}
	if c.Dir != "" {
		dir = c.Dir
	}
	profile, err := box.profile()
	if err != nil {
		return Result{}, err
	}
	own := map[string]string{"HOME": box.Scratch, "TMPDIR": box.Scratch}
	maps.Copy(own, p.Env)
	search := os.Getenv("PATH")
	if search == "" {
		search = BaseEnv["PATH"]
	}
	env, err := environment(own, search, false)
	if err != nil {
		return Result{}, err
	}
	res, err = launchSeated(ctx, limits, profile, c.Argv, dir, env, st)
	if err == nil && l != nil {
		l.judge(&res)
	}
	return res, err
}

// seatedScript sets the limits, says that the command begins, and becomes the command.
const seatedScript = `ulimit -c 0 && ulimit -t "$1" && ulimit -f "$2" && ulimit -n "$3" && shift 3 && printf r >&3 &&
exec 3>&- && exec "$@"`

func launchSeated(ctx context.Context, limits Limits, profile string, argv []string, dir string, env []string,
	st Streams) (Result, error) {
	const block = 512 // bytes, the unit of ulimit -f
	args := append([]string{sandboxExec, "-p", profile, "/bin/sh", "-c", seatedScript, "sh",
		strconv.Itoa(int((limits.CPU + time.Second - 1) / time.Second)), strconv.FormatInt(limits.FileSize/block, 10),
		strconv.Itoa(limits.Files)}, argv...)
	begins, theirs, err := os.Pipe()
	if err != nil {
		return Result{}, fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
	}
	defer func() { _ = begins.Close() }() // it was only read
	wall, cancel := context.WithTimeoutCause(ctx, limits.Wall, context.DeadlineExceeded)
	defer cancel()
	program, err := LaunchUnisolated(wall, Program{Argv: args, Dir: dir, Env: env, Stdin: st.Stdin, Stdout: st.Stdout,
		Stderr: st.Stderr, OutputBytes: limits.Output, Grace: graceOf(ctx), extra: []*os.File{theirs}})
	_ = theirs.Close() // the program has its own
	if err != nil {
		return Result{}, fmt.Errorf("%w: %s: %w", ErrNoIsolation, Seatbelt, err)
	}
	begun := make(chan bool, 1)
	go func() {
		n, _ := io.ReadFull(begins, make([]byte, 1)) // the end without a byte says that nothing began
		if n > 0 {
			Mark(ctx, Seatbelt)
		}
		begun <- n > 0
	}()
	res := program.waitCommand()
	if !<-begun {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return Result{}, fmt.Errorf("%w: %s: sandbox-exec did not start the command: status %d", ErrNoIsolation,
			Seatbelt, res.ExitCode)
	}
	res.Isolation, res.Layers, res.Missing = Seatbelt, seatbeltLayers, seatbeltMissing
	if ctx.Err() != nil && res.Reason == Timeout {
		res.Reason = Canceled
	}
	if syscall.Signal(res.Signal) == unix.SIGXCPU {
		res.Reason = CPULimit
	}
	return res, nil
}

// seatLease is a workspace that is held for one run.
type seatLease struct {
	from   *held.Root
	own    bool // from was opened for this run
	root   *os.Root
	lock   *os.File
	absent []string // protected places that were missing
}

// takeSeat opens a workspace, holds it if the command writes, and says in the box what is protected and hidden in it.
func takeSeat(ctx context.Context, w *Workspace, box *seatbelt) (l *seatLease, err error) {
	l = &seatLease{from: w.Root}
	defer func() {
		if err == nil {
			return
		}
		if !errors.Is(err, ErrBusy) {
			err = fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
		}
		err = errors.Join(err, l.close())
	}()
	if l.from == nil {
		if l.from, err = held.Hold(w.Dir, nil); err != nil {
			return l, err
		}
		l.own = true
	}
	if err := l.from.Check(); err != nil {
		return l, err
	}
	if box.Workspace, err = filepath.EvalSymlinks(l.from.Dir()); err != nil {
		return l, err
	}
	if l.root, err = l.from.Open(); err != nil {
		return l, err
	}
	if l.lock, err = l.root.Open("."); err != nil {
		return l, err
	}
	if box.Writable = w.Writable; w.Writable {
		if err := l.hold(ctx); err != nil {
			return l, err
		}
		if err := l.protect(box); err != nil {
			return l, err
		}
	}
	found, err := hidden(l.root, w.Hidden)
	for _, h := range found {
		box.Hidden, box.Pins = append(box.Hidden, h.Path), append(box.Pins, h.Pins...)
	}
	return l, err
}

// seatPoll is how often the lock of a busy workspace is tried again.
const seatPoll = 5 * time.Millisecond

// hold locks the directory. The kernel releases the lock if we die.
func (l *seatLease) hold(ctx context.Context) error {
	for {
		err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		case <-time.After(seatPoll):
		}
	}
}

// protect names what may not be written. A symbolic link cannot be protected: its target has another name.
func (l *seatLease) protect(box *seatbelt) error {
	set, err := l.from.Protection()
	if err != nil {
		return err
	}
	for _, p := range set.Places() {
		box.Protected = append(box.Protected, p.Path)
		for _, at := range append(parentsOf(p.Path), p.Path) {
			info, err := l.root.Lstat(at)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
				l.absent = append(l.absent, p.Path)
				break
			}
			if err != nil {
				return err
			}
			if !info.IsDir() && !info.Mode().IsRegular() {
				return fmt.Errorf("%s is no plain file or directory, and so nobody can protect what lies behind it", at)
			}
		}
	}
	return nil
}

// judge looks whether a protected place has appeared. The profile forbids it, so the workspace goes into quarantine.
func (l *seatLease) judge(res *Result) {
	for _, p := range l.absent {
		res.Held = res.Held || p == ".git"
		if _, err := l.root.Lstat(p); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		res.Reason, res.Held = Trespass, false
		res.Detail = "it made " + path.Clean(p) + ", which is protected: the workspace is in quarantine, and nothing runs " +
			"in it until an operator has looked at it"
		if err := l.from.Quarantine(held.Quarantine{Why: "after a command: " + p + " appeared",
			Since: time.Now().UTC(), Places: []string{p}}); err != nil {
			res.Detail += "; " + err.Error()
		}
		return
	}
}

// close releases the workspace.
func (l *seatLease) close() (err error) {
	if l.lock != nil {
		err = l.lock.Close() // this releases the lock
	}
	if l.root != nil {
		err = errors.Join(err, l.root.Close())
	}
	if l.own && l.from != nil {
		err = errors.Join(err, l.from.Close())
	}
	return err
}

// listenOnce listens on a port of the loopback, for a probe that must not reach it.
func listenOnce() (port string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, func() { _ = l.Close() }, err
}
