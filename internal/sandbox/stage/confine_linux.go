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

// confine takes from this process, and so from the command that it starts, every right and resource that the spec does
// not give, and then looks whether that is so. It returns what it has seen to stand.
func confine(s *Spec) ([]string, error) {
	for _, l := range s.Rlimits {
		var have unix.Rlimit
		if err := at(unix.Getrlimit(l.Resource, &have), "read limit %d", l.Resource); err != nil {
			return nil, err
		}
		hard := min(l.Max, have.Max) // the worker's own may be lower, and cannot be raised
		if err := at(unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: min(l.Soft, hard), Max: hard}), "set limit %d", l.Resource); err != nil {
			return nil, err
		}
	}
	// What the worker, a wrapper or a debugger left open is nobody's business; the socket stays with the stage.
	if err := at(unix.CloseRange(Socket+1, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC), "mark descriptors"); err != nil {
		return nil, err
	}
	if err := dropRights(); err != nil {
		return nil, err
	}
	if err := at(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs"); err != nil {
		return nil, err
	}
	if err := at(filter(s.Filter), "set the system call filter"); err != nil {
		return nil, err
	}
	return look(s)
}

// dropRights empties every set of capabilities of this thread, and of the others where the runtime can: in a build with
// cgo it cannot, and they keep theirs. They run nothing but this program, behind the same filter, and end with it.
func dropRights() error {
	if err := at(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "clear the ambient capabilities"); err != nil {
		return err
	}
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) && c > unix.CAP_SYS_ADMIN {
			break // the kernel knows no more
		} else if err != nil {
			return at(err, "drop capability %d from the bounding set", c)
		}
	}
	const locked = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7 // NOROOT, NO_SETUID_FIXUP and no KEEP_CAPS, no ambient, each for good
	if err := at(unix.Prctl(unix.PR_SET_SECUREBITS, locked, 0, 0, 0), "set the secure bits"); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno == syscall.ENOTSUP {
		return at(unix.Capset(&header, &none[0]), "drop the capabilities")
	}
	if errno != 0 {
		return at(errno, "drop the capabilities of all threads")
	}
	return nil
}

// filter installs a seccomp program on all threads.
func filter(program []byte) error {
	const instruction = 8
	n := len(program) / instruction
	if n == 0 || n > unix.BPF_MAXINSNS || len(program)%instruction != 0 {
		return fmt.Errorf("a program of %d bytes: %w", len(program), unix.EINVAL)
	}
	code := make([]unix.SockFilter, n)
	for i := range code {
		b := program[i*instruction:]
		code[i] = unix.SockFilter{Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
	}
	prog := unix.SockFprog{Len: uint16(n), Filter: &code[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if r != 0 {
		return fmt.Errorf("thread %d could not be filtered", r)
	}
	return nil
}

// look reads back from the kernel what stands around this process. It trusts none of the calls before it.
func look(s *Spec) ([]string, error) {
	const name = "look at the sandbox from inside"
	wrong := func(format string, args ...any) ([]string, error) { return nil, at(fmt.Errorf(format, args...), name) }
	if pid := os.Getpid(); pid != 1 {
		return wrong("the stage is process %d of its namespace, not 1", pid)
	}
	if uid, gid := os.Getuid(), os.Getgid(); uid != s.UID || gid != s.GID {
		return wrong("it runs as %d:%d", uid, gid)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, at(err, name)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		facts[key] = strings.TrimSpace(value)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(facts[set], "0") != "" || facts[set] == "" {
			return wrong("%s is %q", set, facts[set])
		}
	}
	if facts["NoNewPrivs"] != "1" || facts["Seccomp"] != "2" {
		return wrong("NoNewPrivs %q, Seccomp %q", facts["NoNewPrivs"], facts["Seccomp"])
	}
	for file, want := range map[string][3]int{"uid_map": {s.UID, s.HostUID, 1}, "gid_map": {s.GID, s.HostGID, 1}} {
		text, err := os.ReadFile("/proc/self/" + file)
		if err != nil {
			return nil, at(err, name)
		}
		if got := strings.Join(strings.Fields(string(text)), " "); got != strings.Trim(fmt.Sprint(want), "[]") || want[1] == 0 {
			return wrong("%s is %q", file, got)
		}
	}
	for ns, host := range s.Namespaces {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return nil, at(err, name)
		}
		if own == host {
			return wrong("the %s namespace is the worker's", ns)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return wrong("the root is writable (%v)", err)
	}
	return []string{"userns", "mount", "pid", "net", "ipc", "uts", "cgroup", "caps", "no_new_privs", "seccomp", "rlimits"}, nil
}
