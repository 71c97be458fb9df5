package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine removes from this process, and so from the command that it starts, every right and resource that the spec
// does not give, and then checks that. It returns the layers that it has verified.
func (w *watch) confine(r *Root) ([]string, error) {
	for _, l := range w.spec.Rlimits {
		var have unix.Rlimit
		if err := at(unix.Getrlimit(l.Resource, &have), "read limit %d", l.Resource); err != nil {
			return nil, err
		}
		hard := min(l.Max, have.Max) // the worker's own may be lower, and cannot be raised
		if l.Resource == unix.RLIMIT_NPROC {
			hard = min(l.Max+ownProcesses, have.Max)
			l.Soft = hard
		}
		if err := at(unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: min(l.Soft, hard), Max: hard}), "set limit %d",
			l.Resource); err != nil {
			return nil, err
		}
	}
	// Descriptors that the worker, a wrapper or a debugger left open are not passed on; the socket stays with the
	// stage.
	if err := at(unix.CloseRange(Socket+1, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC), "mark descriptors"); err != nil {
		return nil, err
	}
	if err := dropRights(); err != nil {
		return nil, err
	}
	if err := at(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs"); err != nil {
		return nil, err
	}
	var devices []string
	for _, b := range r.Binds {
		if b.Device {
			devices = append(devices, "/"+b.Target)
		}
	}
	if err := at(w.landlock(w.spec.Writable, devices), "set up Landlock"); err != nil {
		return nil, err
	}
	if err := at(filter(r.Filter, unix.SECCOMP_FILTER_FLAG_TSYNC), "set the system call filter"); err != nil {
		return nil, err
	}
	return verifyDropped()
}

// ownProcesses are this process's own threads beside the command's processes: a fork bomb must not prevent the runtime
// from creating a thread that it needs to continue watching.
const ownProcesses = 16

// start starts the command under its own filter and its own process limit, which is lower than ours. A pid other than 0
// says that it runs, whatever the error.
func start(r *Root, s *Spec, path string, fds []int) (pid int, err error) {
	if err := filter(r.Own, 0); err != nil { // for this thread alone: the other threads limit the command
		return 0, fmt.Errorf("set the command's own filter: %w", err)
	}
	var own, its unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		return 0, err
	}
	its = own
	for _, l := range s.Rlimits {
		if l.Resource == unix.RLIMIT_NPROC {
			its = unix.Rlimit{Cur: min(l.Soft, own.Max), Max: min(l.Max, own.Max)}
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: its.Cur, Max: own.Max}); err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec(path, s.Argv, &syscall.ProcAttr{Env: s.Env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, err
	}
	// The command could have raised its limit already, but only up to ours, and this lowers it again.
	limited := make(chan error, 1)
	go func() { limited <- unix.Prlimit(pid, unix.RLIMIT_NPROC, &its, nil) }()
	if err = <-limited; errors.Is(err, unix.ESRCH) { // it has ended
		err = nil
	}
	return pid, errors.Join(err, unix.Setrlimit(unix.RLIMIT_NPROC, &own))
}

// dropRights empties every capability set of this thread, and of the others if the runtime can: in a build with cgo it
// cannot, and they keep theirs. They run only this program, behind the same filter, and end with it.
func dropRights() error {
	if err := at(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
		"clear the ambient capabilities"); err != nil {
		return err
	}
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) && c > unix.CAP_SYS_ADMIN {
			break // the kernel knows no more
		} else if err != nil {
			return at(err, "drop capability %d from the bounding set", c)
		}
	}
	// NOROOT, NO_SETUID_FIXUP and no KEEP_CAPS, no ambient, each locked
	const locked = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7
	if err := at(unix.Prctl(unix.PR_SET_SECUREBITS, locked, 0, 0, 0), "set the secure bits"); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&none[0])), 0)
	if errno == syscall.ENOTSUP {
		return at(unix.Capset(&header, &none[0]), "drop the capabilities")
	}
	if errno != 0 {
		return at(errno, "drop the capabilities of all threads")
	}
	return nil
}

// filter installs a seccomp program, on all threads if the flags say so.
func filter(program []byte, flags uintptr) error {
	const instruction = 8
	n := len(program) / instruction
	if n == 0 || n > unix.BPF_MAXINSNS || len(program)%instruction != 0 {
		return fmt.Errorf("a program of %d bytes: %w", len(program), unix.EINVAL)
	}
	code := make([]unix.SockFilter, n)
	for i := range code {
		b := program[i*instruction:]
		code[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3],
			K: binary.NativeEndian.Uint32(b[4:])}
	}
	prog := unix.SockFprog{Len: uint16(n), Filter: &code[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if r != 0 {
		return fmt.Errorf("thread %d could not be filtered", r)
	}
	return nil
}

const looking = "look at the sandbox from inside"

// verifyPlace checks with the kernel where this process is, as far as that no longer changes. It does not trust the
// calls that should have brought it there.
func verifyPlace(r *Root) error {
	wrong := func(format string, args ...any) error { return at(fmt.Errorf(format, args...), looking) }
	if pid := os.Getpid(); pid != 1 {
		return wrong("the stage is process %d of its namespace, not 1", pid)
	}
	if uid, gid := os.Getuid(), os.Getgid(); uid != r.UID || gid != r.GID || r.UID == 0 {
		return wrong("it runs as %d:%d", uid, gid)
	}
	for file, want := range map[string][3]int{"uid_map": {r.UID, r.HostUID, 1}, "gid_map": {r.GID, r.HostGID, 1}} {
		text, err := os.ReadFile("/proc/self/" + file)
		if err != nil {
			return at(err, looking)
		}
		if got := strings.Join(strings.Fields(string(text)), " "); got != strings.Trim(fmt.Sprint(want), "[]") ||
			want[1] == 0 {
			return wrong("%s is %q", file, got)
		}
	}
	if len(r.Namespaces) < namespaceKinds {
		return wrong("the worker names %d namespaces", len(r.Namespaces))
	}
	for ns, host := range r.Namespaces {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return at(err, looking)
		}
		if own == host {
			return wrong("the %s namespace is the worker's", ns)
		}
	}
	return nil
}

// namespaceKinds are user, mnt, pid, net, ipc, uts and cgroup.
const namespaceKinds = 7

// verifyDropped checks with the kernel what was dropped last, and returns all verified layers.
func verifyDropped() ([]string, error) {
	var status [4096]byte
	n, err := readOnce("/proc/thread-self/status", status[:])
	if err != nil {
		return nil, at(err, looking)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(status[:n])) {
		key, value, _ := strings.Cut(line, ":")
		facts[key] = strings.TrimSpace(value)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(facts[set], "0") != "" || facts[set] == "" {
			return nil, at(fmt.Errorf("%s is %q", set, facts[set]), looking)
		}
	}
	if facts["NoNewPrivs"] != "1" || facts["Seccomp"] != "2" {
		return nil, at(fmt.Errorf("NoNewPrivs %q, Seccomp %q", facts["NoNewPrivs"], facts["Seccomp"]), looking)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return nil, at(fmt.Errorf("the root is writable (%v)", err), looking)
	}
	return []string{"userns", "mount", "pid", "net", "ipc", "uts", "cgroup", "caps", "no_new_privs", "seccomp",
		"rlimits"}, nil
}

// readOnce reads the beginning of a file of /proc, without the runtime's poller.
func readOnce(path string, to []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	n, err := unix.Read(fd, to)
	return max(n, 0), errors.Join(err, unix.Close(fd))
}
