//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// spawner starts stages from a small separate process; see [stage.SpawnerName]. It is started at its first use, and
// again after it was lost. After too many losses, stages are started directly, which is slower and otherwise the same.
type spawner struct {
	spawn *stage.Spawn

	mu   sync.Mutex
	conn *net.UnixConn
	lost int
}

const (
	// spawnerTimeout is how long a spawner may take for one start.
	spawnerTimeout = 5 * time.Second
	// maxSpawnersLost is how many spawners may be lost before no new one is started.
	maxSpawnersLost = 3
)

// errSpawnerLost says that a spawner got an order and did not answer. A stage may have the socket of the order, so no
// other stage may get it.
var errSpawnerLost = errors.New("the sandbox's spawner was lost")

// start starts a stage with its socket.
func (s *spawner) start(far *os.File) (child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost >= maxSpawnersLost {
		return nil, errors.New("too many spawners were lost")
	}
	pidfd, err := s.order(far)
	if err == nil {
		return &spawned{pidfd}, nil
	}
	if _, refused := errors.AsType[syscall.Errno](err); refused {
		return nil, err
	}
	s.lost++
	if s.conn != nil {
		_ = s.conn.Close() // this ends the process, and what it has started
		s.conn = nil
	}
	return nil, fmt.Errorf("%w: %w", errSpawnerLost, err)
}

// order sends one order. An error that is a [syscall.Errno] is the kernel's answer to the start.
func (s *spawner) order(far *os.File) (*os.File, error) {
	if s.conn == nil {
		if err := s.begin(); err != nil {
			return nil, fmt.Errorf("start the spawner: %v", err) // not the answer to a start
		}
	}
	if err := s.conn.SetDeadline(time.Now().Add(spawnerTimeout)); err != nil {
		return nil, err
	}
	if _, _, err := s.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(far.Fd())), nil); err != nil {
		return nil, fmt.Errorf("ask the spawner: %v", err)
	}
	var errno [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := s.conn.ReadMsgUnix(errno[:], oob)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("the spawner did not answer: %v", err)
	}
	if got == 0 {
		return nil, syscall.Errno(errno[0])
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("the spawner's answer: %d messages: %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("the spawner's answer: %d descriptors: %v", len(fds), err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil { // for the runtime's poller
		return nil, fmt.Errorf("prepare the process's descriptor: %v", errors.Join(err, unix.Close(fds[0])))
	}
	return os.NewFile(uintptr(fds[0]), "stage"), nil
}

// begin starts the spawner's process. It lives as long as this process, and only the goroutine below waits for it.
func (s *spawner) begin() error {
	frame, err := stage.Encode(s.spawn)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	far, near := os.NewFile(uintptr(pair[0]), "spawner"), os.NewFile(uintptr(pair[1]), "worker")
	conn, err := net.FileConn(near)
	err = errors.Join(err, near.Close())
	cmd := &exec.Cmd{Path: self, Args: []string{stage.SpawnerName}, Env: stageEnv, Dir: "/",
		ExtraFiles:  []*os.File{far},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	if err == nil {
		done := make(chan error, 1)
		launcher() <- func() { done <- cmd.Start() }
		err = <-done
	}
	err = errors.Join(err, far.Close())
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // the next ask notices that it has ended
	s.conn = conn.(*net.UnixConn)
	_, err = s.conn.Write(frame)
	return err
}

// spawned is a stage that a spawner has started, by its descriptor, which shows its end but not its status.
type spawned struct{ pidfd *os.File }

func (s *spawned) kill() error {
	raw, err := s.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var killed error
	err = raw.Control(func(fd uintptr) { killed = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if errors.Is(err, os.ErrClosed) || errors.Is(killed, unix.ESRCH) {
		return nil // it has ended
	}
	return errors.Join(err, killed)
}

func (s *spawned) wait() error {
	raw, err := s.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failed = err
		}
		return n > 0 || failed != nil
	})
	return errors.Join(err, failed, s.pidfd.Close())
}

func (s *spawned) stage() (pid int, err error) {
	raw, err := s.pidfd.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { pid, failed = pidOf(int(fd)) })
	return pid, errors.Join(err, failed)
}

func (s *spawned) String() string { return "it has ended" }

// execd is a process that was started directly.
type execd struct{ cmd *exec.Cmd }

func (e execd) kill() error {
	if err := e.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// wait waits for the end. How the process ended is no error.
func (e execd) wait() error {
	err := e.cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil
	}
	return err
}

func (e execd) stage() (int, error) {
	if e.cmd.Path == bwrapPath {
		return onlyChild(e.cmd.Process.Pid)
	}
	return e.cmd.Process.Pid, nil
}

func (e execd) String() string { return fmt.Sprint(e.cmd.ProcessState) }
