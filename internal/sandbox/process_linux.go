//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// process is a stage, or bwrap with one inside.
type process struct {
	child  child
	conn   *net.UnixConn
	stderr *os.File // bwrap's stderr; nil for our own stage
	ended  chan struct{}
	err    error // of waiting, after ended is closed
}

// child is a process that was started, by this process or by a spawner.
type child interface {
	// kill ends it with all that runs under it. It is no error if it has ended.
	kill() error
	// wait waits for its end. It is called once.
	wait() error
	// stage returns the stage's process, from its starter.
	stage() (int, error)
	// String says how it ended, as far as that is known.
	String() string
}

// launcher starts processes on one thread that never ends: the kernel kills a stage when the thread that started it
// ends, which must mean that the worker has ended.
var launcher = sync.OnceValue(func() chan<- func() {
	tasks := make(chan func())
	go func() {
		runtime.LockOSThread()
		for task := range tasks {
			task()
		}
	}()
	return tasks
})

// startStage starts a stage and sends it its root.
func startStage(name string, o outer, base *stage.Root, spec *stage.Spec) (*process, error) {
	cmd, files, err := o.wrap(base, spec)
	if err != nil {
		closeAll(files)
		return nil, err
	}
	p := &process{ended: make(chan struct{})}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		closeAll(files)
		return nil, setupError(name, "make a socket", err)
	}
	far, near := os.NewFile(uintptr(pair[0]), "stage"), os.NewFile(uintptr(pair[1]), "worker")
	files = append(files, far)
	cmd.ExtraFiles = append([]*os.File{far}, cmd.ExtraFiles...)
	conn, err := net.FileConn(near)
	err = errors.Join(err, near.Close())
	if err == nil {
		p.conn = conn.(*net.UnixConn)
		if cmd.Path != self {
			cmd.Stderr, err = p.listenToStderr()
		}
	}
	if err == nil {
		p.child, err = startProcess(o, cmd, far)
	}
	closeAll(files)
	if errors.Is(err, errSpawnerLost) {
		p.close()
		return startStage(name, o, base, spec) // with a new socket
	}
	if err != nil {
		p.close()
		return nil, setupError(name, "start", err)
	}
	go func() {
		p.err = p.child.wait()
		close(p.ended)
	}()
	if err := stage.Write(p.conn, base); err != nil {
		err = errors.Join(err, p.kill())
		p.close()
		return nil, setupError(name, "send the root", err)
	}
	return p, nil
}

// startProcess starts a stage: with the backend's spawner if it has one, otherwise directly.
func startProcess(o outer, cmd *exec.Cmd, far *os.File) (child, error) {
	if s, ok := o.(interface {
		start(far *os.File) (child, error)
	}); ok {
		if c, err := s.start(far); err == nil || errors.Is(err, errSpawnerLost) {
			return c, err
		}
	}
	done := make(chan error, 1)
	launcher() <- func() { done <- cmd.Start() }
	return execd{cmd}, <-done
}

// listenToStderr keeps the standard error of a foreign program in a memory file, which nobody has to read.
func (p *process) listenToStderr() (io.Writer, error) {
	fd, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p.stderr = os.NewFile(uintptr(fd), "stderr")
	return p.stderr, nil
}

// stderrText is the outer program's standard error, on one line.
func (p *process) stderrText() string {
	if p.stderr == nil {
		return ""
	}
	const most = 500
	text := make([]byte, most)
	n, _ := p.stderr.ReadAt(text, 0) // what cannot be read is omitted
	if text = bytes.Join(bytes.Fields(text[:n]), []byte(" ")); len(text) == 0 {
		return ""
	}
	return "; " + string(text)
}

// kill ends the process with all that runs under it, and waits for that. How it ended is no error.
func (p *process) kill() error {
	killed := p.child.kill()
	<-p.ended
	return errors.Join(killed, p.err)
}

// discard ends a process that nobody needs any more.
func (p *process) discard() {
	_ = p.kill()
	p.close()
}

// close closes what is left of a process that has ended.
func (p *process) close() {
	if p.conn != nil {
		_ = p.conn.Close() // everything was read
	}
	if p.stderr != nil {
		_ = p.stderr.Close() // memory
	}
}

// spareCount is how many stages are kept ready. Each uses a few megabytes and saves its command most of the start time.
const spareCount = 2

// refillDelay delays the making of the next spare, so that it does not slow down the command that has taken this one,
// if there is another spare.
const refillDelay = 3 * time.Millisecond

// spares are stages that wait for a command, all with the same root: the one that was requested last.
type spares struct {
	name  string
	outer outer

	mu     sync.Mutex
	base   stage.Root
	ready  []*process
	making bool
}

// take returns a stage with this root, or nil, and starts others.
func (s *spares) take(base *stage.Root) *process {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(&s.base, base) {
		for _, p := range s.ready {
			go p.discard()
		}
		s.base, s.ready = *base, nil
	}
	var found *process
	for len(s.ready) > 0 && found == nil {
		found, s.ready = s.ready[0], s.ready[1:]
		select {
		case <-found.ended: // somebody has killed it
			found.close()
			found = nil
		default:
		}
	}
	if !s.making {
		s.making = true
		delay := refillDelay
		if len(s.ready) == 0 { // the next command may already be waiting
			delay = 0
		}
		time.AfterFunc(delay, s.refill)
	}
	return found
}

// refill starts stages until there are enough. If one cannot be started, the next command tries again and reports why.
func (s *spares) refill() {
	for {
		s.mu.Lock()
		base := s.base
		enough := len(s.ready) >= spareCount
		s.making = !enough
		s.mu.Unlock()
		if enough {
			return
		}
		p, err := startStage(s.name, s.outer, &base, nil)
		s.mu.Lock()
		switch {
		case err != nil:
			s.making = false
		case reflect.DeepEqual(&s.base, &base):
			s.ready = append(s.ready, p)
		default: // another root is wanted by now
			go p.discard()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}
