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
	stderr *os.File // what bwrap had to say; nil for a stage of our own
	ended  chan struct{}
	err    error // of waiting, once ended is closed
}

// child is a process that was started, from here or by a spawner.
type child interface {
	// kill ends it with all that runs under it; one that has ended is no error.
	kill() error
	// wait waits for its end. It is called once.
	wait() error
	// stage is the process that the stage is, for who started it.
	stage() (int, error)
	// String says how it ended, as far as that is known.
	String() string
}

// launcher runs what starts processes, on one thread that never ends: the kernel kills a stage when the thread that has
// started it is gone, which must mean that the worker is.
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
		return startStage(name, o, base, spec) // with a socket that nobody has
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

// startProcess starts one: from the backend's spawner where it has one, else from here.
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

// listenToStderr keeps the standard error of a foreign program, in memory that needs nobody to read it.
func (p *process) listenToStderr() (io.Writer, error) {
	fd, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p.stderr = os.NewFile(uintptr(fd), "stderr")
	return p.stderr, nil
}

// said is what the outer program had to say, on one line.
func (p *process) said() string {
	if p.stderr == nil {
		return ""
	}
	const most = 500
	text := make([]byte, most)
	n, _ := p.stderr.ReadAt(text, 0) // what cannot be read was not said
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

// discard ends a process in which nothing runs that anybody waits for.
func (p *process) discard() {
	_ = p.kill()
	p.close()
}

// close lets go of what is left of a process that has ended.
func (p *process) close() {
	if p.conn != nil {
		_ = p.conn.Close() // it has told all it had to tell
	}
	if p.stderr != nil {
		_ = p.stderr.Close() // memory
	}
}

// spareCount is how many stages are kept ready. Each costs a few megabytes and saves its command most of the wait.
const spareCount = 2

// refillDelay keeps the making of the next spare out of the way of the command that has taken this one, while there is
// another.
const refillDelay = 3 * time.Millisecond

// spares are stages that wait for a command, all with the same root: the one that was asked for last.
type spares struct {
	name  string
	outer outer

	mu     sync.Mutex
	base   stage.Root
	ready  []*process
	making bool
}

// take returns a stage with this root, or nil, and sees to it that there will be others.
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
		if len(s.ready) == 0 { // the next command may be waiting already
			delay = 0
		}
		time.AfterFunc(delay, s.refill)
	}
	return found
}

// refill starts stages until there are enough. One that cannot be started is left to the next command, which says why.
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
