package stage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// SpawnerName is the argv[0] of a spawner: a small process that only starts stages. Starting a process in a new user
// namespace copies the memory map of the parent. A worker is large, so this is faster from here, and the worker need
// not fault in its memory again. The spawner has the worker's rights and its lifetime, and takes orders only from its
// socket.
const SpawnerName = "toolyard-sandbox-spawner"

// Spawn says how a spawner starts stages, all of them in the same way. It is the first message on its socket.
type Spawn struct {
	// UID and GID are the stage's user and group inside, HostUID and HostGID those outside. Root says that the worker
	// is root, and that a stage changes to that user.
	UID, GID, HostUID, HostGID int
	Root                       bool
	Env                        []string
}

func (s *Spawn) fields(c *coder) {
	signed(c, &s.UID, &s.GID, &s.HostUID, &s.HostGID)
	c.flag(&s.Root)
	list(c, &s.Env, (*coder).text)
}

// Self is this program, even if its file has been replaced.
const Self = "/proc/self/exe"

// Attributes are those of a stage. Its capabilities apply only in its own user namespace, and only until it has set up.
func (s *Spawn) Attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: s.UID, HostID: s.HostUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: s.GID, HostID: s.HostGID, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE},
	}
	if s.Root { // it changes to the only mapped user, and leaves root's groups
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.GID)}
	}
	return a
}

// spawner is the main loop. Each message brings a stage's socket; it starts the stage and answers with a descriptor of
// the process, or with the error number. It ends when its socket closes.
func spawner() int {
	runtime.LockOSThread() // a stage dies with the thread that started it
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return exitSilent
	}
	unix.CloseOnExec(Socket)
	var s Spawn
	if err := Read(&packets{}, &s); err != nil {
		return exitSilent
	}
	begun := make(chan struct{}, 1)
	go reapAll(begun)
	for {
		far, err := takeOne()
		if err != nil {
			return exitSilent // the worker is gone
		}
		pidfd := -1
		attr := s.Attributes()
		attr.PidFD = &pidfd
		_, err = syscall.ForkExec(Self, []string{Name},
			&syscall.ProcAttr{Dir: "/", Env: s.Env, Sys: attr,
				Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(far)}})
		_ = unix.Close(far) // the stage has its own copy
		select {
		case begun <- struct{}{}:
		default:
		}
		if err := answer(pidfd, err); err != nil {
			return exitSilent
		}
	}
}

// answer reports one start to the worker.
func answer(pidfd int, started error) error {
	if started != nil {
		errno, _ := errors.AsType[syscall.Errno](started)
		return unix.Sendmsg(Socket, []byte{byte(errno)}, nil, nil, unix.MSG_NOSIGNAL)
	}
	err := unix.Sendmsg(Socket, []byte{0}, unix.UnixRights(pidfd), nil, unix.MSG_NOSIGNAL)
	return errors.Join(err, unix.Close(pidfd))
}

// takeOne receives a message with one descriptor.
func takeOne() (int, error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := unix.Recvmsg(Socket, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return -1, errors.Join(err, io.EOF)
	}
	fds, err := rights(oob[:got])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	return fds[0], nil
}

// rights returns the descriptors of a message.
func rights(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d control messages: %w", len(messages), err)
	}
	return unix.ParseUnixRights(&messages[0])
}

// packets reads the socket as a stream, and splits a packet that is larger than a read.
type packets struct{ rest []byte }

func (p *packets) Read(to []byte) (int, error) {
	if len(p.rest) == 0 {
		const most = 64 << 10
		buf := make([]byte, most)
		n, err := unix.Read(Socket, buf)
		if err != nil || n == 0 {
			return 0, errors.Join(err, io.EOF)
		}
		p.rest = buf[:n]
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// reapAll waits for all stages that have ended.
func reapAll(begun <-chan struct{}) {
	for range begun {
		for {
			if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	}
}
