//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// arena is what an attack is after: things outside of the sandbox that this user can reach without one.
type arena struct {
	Workspace string // with a git repository
	Secret    string // a file of the user
	Outside   string // a directory that the user can write to
	Socket    string // where a service listens
	Abstract  string // where another one does
	Address   string // and one on the loopback of the machine
	Victim    int    // a process of the same user
	Marker    string // what its environment and its open files hold
}

const arenaVar = "TOOLYARD_TEST_ARENA"

// attacks are what a command may try, each named after what it attacks. They return nil when they have got through. Run
// without a sandbox all of them do: see [TestAttacks].
var attacks = map[string]struct {
	// lesson is where it was learned.
	lesson string
	act    func(a arena) error
	// inUserns runs the control as root of a user namespace: outside of one an ordinary user cannot do it either.
	inUserns bool
}{
	"read a file of the user": {"the root is empty, and filled by an allow-list",
		func(a arena) error { return reads(a.Secret, a.Marker) }, false},
	"read /etc/shadow by a group": {"the worker's supplementary groups stay effective in a user namespace",
		readShadow, false},
	"read the worker's environment": {"bwrap's PID 1 keeps the worker's environment", readEnviron, false},
	"read the worker's open files":  {"bwrap passes inherited descriptors on", readDescriptors, false},
	"open the init's program": {"CVE-2019-5736: /proc/self/exe of the runtime",
		func(a arena) error { return opens(filepath.Join("/proc", firstOf(a), "exe")) }, false},
	"signal a process of the user": {"a pid namespace of its own",
		func(a arena) error { return unix.Kill(a.Victim, 0) }, false},
	"write outside of the workspace": {"the workspace is the only writable place",
		func(a arena) error { return os.WriteFile(filepath.Join(a.Outside, "owned"), nil, 0o600) }, false},
	"connect to a socket by its path": {"pathname sockets survive a net namespace and read-only mounts",
		func(a arena) error { return dials("unix", a.Socket) }, false},
	"connect to a socket in the workspace": {"a Unix socket that lies in a mount is reached by its inode, and " +
		"ignores net namespaces", func(a arena) error {
		return dials("unix", filepath.Join(a.Workspace, "socket"))
	}, false},
	"send to a socket in the workspace": {"as before, without a connection", func(a arena) error {
		return sendsTo(filepath.Join(a.Workspace, "datagrams"))
	}, false},
	"send to it from one of a pair": {"a pair of datagram sockets sends to whom it names", func(a arena) error {
		return sendsFromPair(filepath.Join(a.Workspace, "datagrams"))
	}, false},
	"connect to an abstract socket": {"abstract sockets belong to the net namespace",
		func(a arena) error { return dials("unix", a.Abstract) }, false},
	"connect to the machine's loopback": {"a net namespace of its own",
		func(a arena) error { return dials("tcp", a.Address) }, false},
	"open a VSOCK socket": {"AF_VSOCK ignores net namespaces before Linux 7.0",
		func(arena) error { return sockets(unix.AF_VSOCK) }, false},
	"open a netlink socket": {"families are an allow-list",
		func(arena) error { return sockets(unix.AF_NETLINK) }, false},
	"open a socket with high bits set": {"CVE-2019-7303: a 64-bit comparison of an int",
		func(arena) error { return sockets(unix.AF_NETLINK | 1<<32) }, false},
	"type into the terminal": {"CVE-2017-5226: TIOCSTI", func(arena) error { return typesIn(unix.TIOCSTI) },
		false},
	"type into the terminal, high bits": {"CVE-2019-10063: TIOCSTI past a 64-bit filter",
		func(arena) error { return typesIn(unix.TIOCSTI | 1<<32) }, false},
	"make a user namespace": {"unshare, and a second try to get rights",
		func(arena) error { return makesNamespace() }, false},
	"make a user namespace by clone": {"the flags of clone are an argument",
		func(arena) error { return clones(unix.CLONE_NEWUSER) }, false},
	"mount a file system": {"no rights, and no call",
		func(arena) error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }, true},
	"mount by descriptor": {"the new mount calls are not in old lists",
		func(arena) error { return closes(unix.Fsopen("tmpfs", 0)) }, true},
	"read another's memory":     {"process_vm_readv", func(arena) error { return readsMemory() }, false},
	"trace a process":           {"ptrace", func(arena) error { return traces() }, false},
	"use the session's keyring": {"the session keyring is reachable under plain bwrap", addsKey, false},
	"set up io_uring": {"io_uring makes calls that no filter sees",
		func(arena) error { return setsUpRing() }, false},
	"make memory that no limit counts": {"memfd, System V",
		func(arena) error { return closes(unix.MemfdCreate("x", 0)) }, false},
	"call the kernel in 32 bits": {"the filter's default was given to another architecture", runsI386, false},
	"make a set-user-ID file by chmod": {"a root worker's workspace is root's",
		func(a arena) error { return chmods(a, 0o4755) }, false},
	"make a set-group-ID file by chmod": {"as before", func(a arena) error { return chmods(a, 0o2755) }, false},
	"make a set-user-ID file by open":   {"the mode of open is an argument too", opensSetID, false},
	"write .git/hooks": {"a hook runs outside, at the next commit",
		func(a arena) error { return writes(a, ".git/hooks/pre-commit") }, false},
	"write .git/config": {"core.fsmonitor runs outside",
		func(a arena) error { return writes(a, ".git/config") }, false},
	"replace .git/config by renaming": {"a mount holds a name, not only a file",
		func(a arena) error { return replaces(a, ".git/config") }, false},
	"move .git away and make another": {"the parent of a mount can be renamed",
		func(a arena) error { return moves(a, ".git") }, false},
	"move config elsewhere by commondir": {"a file that was not there is a file to be made",
		func(a arena) error { return writes(a, ".git/commondir") }, false},
	"link a hook to a file of one's own": {"a hard link is another name for the same file", linksHook, false},
	"make the first .git of a workspace": {"CVE-2026-25725: a policy file that was missing could be made",
		func(a arena) error {
			return writes(arena{Workspace: filepath.Join(a.Workspace, "bare")}, ".git/hooks/pre-commit")
		}, false},
	"write an editor's settings": {"tasks run when a directory is opened",
		func(a arena) error { return writes(a, ".vscode/tasks.json") }, false},
	"write another process's OOM score": {"/proc shows the sandbox's processes only", func(a arena) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", a.Victim), []byte("1000"), 0)
	}, false},
	"lower its own OOM score": {"the kernel took the worker before the command",
		func(arena) error { return lowersScore() }, false},
	"take the machine's asynchronous reads": {"fs.aio-max-nr is one number for everybody",
		func(arena) error { return takesReads() }, false},
	"pin memory in a pipe": {"vmsplice keeps pages that nobody maps any more",
		func(arena) error { return pinsMemory() }, false},
	"share memory that has no file": {"pages that are shared and not mapped are counted nowhere",
		func(arena) error { return shares(-1) }, false},
	"share the memory of /dev/zero": {"as before", func(arena) error { return sharesZero() }, false},
	"set another's limit": {"prlimit, and the limits of the sandbox's init",
		func(arena) error { return limitsParent() }, false},
	"raise a limit": {"limits are hard", func(arena) error { return raises() }, false},
	"hold a capability": {"no capabilities, in any set",
		func(arena) error { return holdsCapability() }, true},
}

// attack is the attacker's process.
func attack(name string) int {
	var a arena
	if err := json.Unmarshal([]byte(os.Getenv(arenaVar)), &a); err != nil {
		fmt.Println("no arena:", err)
		return 2
	}
	runtime.LockOSThread()
	if err := attacks[name].act(a); err != nil {
		fmt.Println("held:", err)
		return 1
	}
	fmt.Println("got through")
	return 0
}

// TestAttacks runs every attack in every backend, and without a sandbox. There each gets through: an attack that fails
// outside as well would prove nothing inside.
func TestAttacks(t *testing.T) {
	bin, err := os.Executable()
	must.OK(t, err)
	for name, at := range attacks {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			a := newArena(t)
			encoded := must.JSON(t, a)
			each(t, func(t *testing.T, box Sandbox) {
				ws := a.Workspace
				if strings.Contains(name, "first .git") {
					ws = filepath.Join(ws, "bare")
					a := a
					a.Workspace = ws
				}
				var out bytes.Buffer
				res, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: ws, Writable: true},
					Read: []string{filepath.Dir(bin)}, Env: map[string]string{arenaVar: string(encoded)}},
					Command{Argv: []string{bin, "attack", name}}, Streams{Stdout: &out, Stderr: &out})
				must.OK(t, err)
				// The 32-bit call kills its process; everything else is told no.
				if got := out.String(); res.ExitCode == 0 || !strings.Contains(got, "held: ") ||
					strings.Contains(got, "panic") {
					t.Errorf("%s (%s)\n%s%+v", name, at.lesson, got, res)
				}
			})
			t.Run("control", func(t *testing.T) {
				out, err := outside(bin, name, string(encoded), at.inUserns)
				if err != nil || !strings.Contains(out, "got through") {
					t.Errorf("without a sandbox it fails too, and proves nothing: %v\n%s", err, out)
				}
			})
		})
	}
}

// outside runs an attack without a sandbox, never as root of the machine.
func outside(bin, name, encoded string, inUserns bool) (string, error) {
	cmd := exec.Command(bin, "attack", name)
	cmd.Env = append(os.Environ(), arenaVar+"="+encoded)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{shadowGroup}}
	}
	if inUserns {
		uid, gid := os.Getuid(), os.Getgid()
		if uid == 0 {
			uid, gid = nobody, nobody
			cmd.SysProcAttr.Credential = &syscall.Credential{NoSetGroups: true}
		}
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	// An inherited descriptor, as a worker has them by accident.
	cmd.ExtraFiles = []*os.File{leaked}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// leaked is a descriptor of this process that is not closed on exec.
var leaked *os.File

func newArena(t *testing.T) arena {
	t.Helper()
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	dir, err := os.MkdirTemp("/tmp", "toolyard-arena-")
	must(err)
	t.Cleanup(func() { must(os.RemoveAll(dir)) })
	must(os.Chmod(dir, 0o777))
	a := arena{
		Workspace: filepath.Join(dir, "workspace"), Secret: filepath.Join(dir, "secret"),
		Outside: filepath.Join(dir, "outside"), Socket: filepath.Join(dir, "socket"),
		Abstract: "@" + dir, Victim: victim(t), Marker: "the marker of this worker",
	}
	for _, d := range []string{"outside", "workspace/.git/hooks", "workspace/.git/refs", "workspace/bare",
		"workspace/.vscode"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o777))
	}
	must(os.WriteFile(a.Secret, []byte(a.Marker), 0o644))
	must(os.WriteFile(filepath.Join(a.Workspace, ".git/config"), []byte("[core]\n"), 0o666))
	must(os.WriteFile(filepath.Join(a.Workspace, ".git/hooks/pre-push"), nil, 0o666))
	// Everybody may write here: the control is another user where the tests run as root.
	must(filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil || p == a.Secret {
			return err
		}
		return os.Chmod(p, info.Mode().Perm()|0o666|info.Mode().Perm()&0o111)
	}))
	at := filepath.Join(a.Workspace, "datagrams")
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	must(err)
	t.Cleanup(func() { must(d.Close()) })
	must(os.Chmod(at, 0o666))
	for _, at := range []string{a.Socket, a.Abstract, filepath.Join(a.Workspace, "socket")} {
		l, err := net.Listen("unix", at)
		must(err)
		t.Cleanup(func() { must(l.Close()) })
	}
	must(os.Chmod(a.Socket, 0o666))
	must(os.Chmod(filepath.Join(a.Workspace, "socket"), 0o666))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	t.Cleanup(func() { must(l.Close()) })
	a.Address = l.Addr().String()
	t.Setenv("TOOLYARD_TEST_MARKER", a.Marker)
	fd, err := syscall.Open(a.Secret, syscall.O_RDONLY, 0) // without O_CLOEXEC
	must(err)
	leaked = os.NewFile(uintptr(fd), a.Secret)
	t.Cleanup(func() { must(leaked.Close()) })
	return a
}

// victim is a process that an ordinary user may signal.
func victim(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	// Pdeathsig goes by the thread: this goroutine's must outlive the process.
	runtime.LockOSThread()
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the victim had ended by itself")
		}
		runtime.UnlockOSThread()
	})
	return cmd.Process.Pid
}

// firstOf is the process that started the attack: the sandbox's init, or the worker.
func firstOf(arena) string { return strconv.Itoa(os.Getppid()) }

var errNothing = errors.New("nothing was found")

func reads(path, want string) error {
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), want) {
		return errNothing
	}
	return err
}

func readShadow(arena) error {
	// started by an ordinary user without the group: the file itself is the control's matter
	if os.Getenv(actorVar) == "" {
		return reads("/etc/hostname", strings.TrimSpace(hostnameOutside()))
	}
	return reads("/etc/shadow", "root:")
}

func hostnameOutside() string {
	name, err := os.Hostname()
	if err != nil || name == hostname {
		return "no such name"
	}
	return name
}

func readEnviron(a arena) error {
	if err := reads(filepath.Join("/proc", firstOf(a), "environ"), a.Marker); err == nil {
		return nil
	}
	// The control of a root worker is another user, which sees what the worker gave it.
	if strings.Contains(strings.Join(os.Environ(), "\n"), "MARKER="+a.Marker) {
		return nil
	}
	return errNothing
}

func readDescriptors(a arena) error {
	for fd := 3; fd < 256; fd++ {
		b := make([]byte, 64)
		if n, err := unix.Pread(fd, b, 0); err == nil && strings.Contains(string(b[:n]), a.Marker) {
			return nil
		}
	}
	return errNothing
}

func opens(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrPermission) && os.Getuid() == nobody { // the control of a root worker: its own program
		f, err = os.Open("/proc/self/exe")
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func dials(network, address string) error {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func sockets(family uintptr) error {
	fd, _, errno := unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_DGRAM, 0)
	if family == unix.AF_VSOCK && errno != 0 {
		fd, _, errno = unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_STREAM, 0)
	}
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// typesIn asks for it where there is no terminal: the filter answers before the kernel finds that out.
func typesIn(request uintptr) error {
	c := byte('x')
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, 0, request, uintptr(unsafe.Pointer(&c)))
	if errno == unix.EPERM {
		return errno
	}
	return nil // it came to the terminal
}

func makesNamespace() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWUSER}
	return cmd.Run()
}

func clones(flags uintptr) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return cmd.Run()
}

func closes(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func readsMemory() error {
	from, to := []byte("secret"), make([]byte, 6)
	local := []unix.Iovec{{Base: &to[0], Len: 6}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 6}}
	_, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0)
	return err
}

func traces() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := cmd.Wait(); !strings.Contains(fmt.Sprint(err), "stop signal") {
		return fmt.Errorf("it was not stopped: %w", err)
	}
	return unix.PtraceDetach(cmd.Process.Pid)
}

func addsKey(arena) error {
	_, err := unix.AddKey("user", "toolyard", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

func setsUpRing() error {
	var params [120]byte
	fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// i386 is a 32-bit program of its own: mov eax,1; mov ebx,42; int 0x80.
var i386 = "\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x60\x00\x00\x00\x60\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80"

func runsI386(a arena) error {
	if runtime.GOARCH != "amd64" { // other processors have no second set of calls here
		return asksForKey()
	}
	bin := filepath.Join(a.Workspace, "i386-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(bin, []byte(i386), 0o755); err != nil {
		return err
	}
	err := exec.Command(bin).Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 42 {
		return nil
	}
	if errors.Is(err, unix.ENOEXEC) { // nor do some virtual machines
		return asksForKey()
	}
	return fmt.Errorf("it ended with %w", err)
}

// asksForKey makes a call that a sandbox refuses, in the place of the 32-bit ones of a machine that has none.
func asksForKey() error {
	_, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, 0, 0, 0)
	if errno == unix.EPERM {
		return errno
	}
	return nil
}

func chmods(a arena, mode uint32) error {
	f := filepath.Join(a.Workspace, "setid-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(f, nil, 0o755); err != nil {
		return err
	}
	return syscall.Chmod(f, mode)
}

func opensSetID(a arena) error {
	return closes(syscall.Open(filepath.Join(a.Workspace, "setid-"+strconv.Itoa(os.Getpid())),
		syscall.O_CREAT|syscall.O_WRONLY, 0o4755))
}

func writes(a arena, name string) error {
	path := filepath.Join(a.Workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func replaces(a arena, name string) error {
	own := filepath.Join(a.Workspace, "own-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		return err
	}
	return os.Rename(own, filepath.Join(a.Workspace, name))
}

func moves(a arena, name string) error {
	return os.Rename(filepath.Join(a.Workspace, name), filepath.Join(a.Workspace, "moved-"+strconv.Itoa(os.Getpid())))
}

func linksHook(a arena) error {
	own := filepath.Join(a.Workspace, "own-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(own, nil, 0o755); err != nil {
		return err
	}
	if err := os.Link(own, filepath.Join(a.Workspace, ".git/hooks/post-commit")); err != nil {
		return err
	}
	return nil
}

func raises() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &have); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: max(have.Max, 1)})
}

func holdsCapability() error {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if key, value, _ := strings.Cut(line, ":"); strings.HasPrefix(key, "Cap") &&
			strings.Trim(strings.TrimSpace(value), "0") != "" {
			return nil
		}
	}
	return errNothing
}

func sendsTo(path string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("x"))
	return errors.Join(err, c.Close())
}

func sendsFromPair(path string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: path})
}

func lowersScore() error {
	const file = "/proc/self/oom_score_adj"
	score, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(score)) != "1000" {
		if err := os.WriteFile(file, []byte("1000"), 0); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte("500"), 0)
}

func takesReads() error {
	var ctx uint64
	_, _, errno := unix.RawSyscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&ctx)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func pinsMemory() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	page := make([]byte, 4096)
	v := unix.Iovec{Base: &page[0], Len: 4096}
	_, err = unix.Vmsplice(int(w.Fd()), []unix.Iovec{v}, 0)
	return err
}

// shares maps a page that is shared.
func shares(fd int) error {
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	m[0] = 1
	return unix.Munmap(m)
}

func sharesZero() error {
	f, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return shares(int(f.Fd()))
}

// limitsParent sets a limit of who started it, as it is, to what it is.
func limitsParent() error {
	pid := os.Getppid()
	if os.Getuid() == nobody { // the control of a root worker: its own process, by its number
		pid = os.Getpid()
	}
	var have unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &have); err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_CORE, &have, nil)
}
