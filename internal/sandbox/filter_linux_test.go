//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// judge runs the filter in another implementation of the machine than the kernel's and than that of who has built it.
func judge(t *testing.T) func(arch uint32, call uintptr, args ...uint64) uint32 {
	t.Helper()
	programs, err := filterProgram(false)
	must.OK(t, err)
	return judgeBy(t, programs.all)
}

func judgeBy(t *testing.T, program []byte) func(arch uint32, call uintptr, args ...uint64) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for i := 0; i < len(program); i += 8 {
		raw = append(raw, bpf.RawInstruction{Op: binary.NativeEndian.Uint16(program[i:]), Jt: program[i+2],
			Jf: program[i+3], K: binary.NativeEndian.Uint32(program[i+4:])})
	}
	code, all := bpf.Disassemble(raw)
	if !all || len(code) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions, all known: %t", len(code), all)
	}
	vm, err := bpf.NewVM(code)
	must.OK(t, err)
	return func(arch uint32, call uintptr, args ...uint64) uint32 {
		// The kernel's record in words; this machine reads words in network order.
		words := []uint32{uint32(call), arch, 0, 0}
		for i := range 6 {
			var a uint64
			if i < len(args) {
				a = args[i]
			}
			words = append(words, uint32(a), uint32(a>>32))
		}
		var record []byte
		for _, w := range words {
			record = binary.BigEndian.AppendUint32(record, w)
		}
		verdict, err := vm.Run(record)
		must.OK(t, err)
		return uint32(verdict)
	}
}

const (
	allows  = 0x7fff0000
	refused = 0x00050000 | uint32(unix.EPERM)
	unknown = 0x00050000 | uint32(unix.ENOSYS)
	kills   = 0x80000000
)

func ownArch() uint32 {
	if runtime.GOARCH == "arm64" {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// TestEveryCallIsJudged: what stands in no list does not exist, on any processor.
func TestEveryCallIsJudged(t *testing.T) {
	verdict := judge(t)
	conditional := []uintptr{unix.SYS_OPENAT}
	for call := range deniedArguments {
		conditional = append(conditional, call)
	}
	for call := range callRules {
		conditional = append(conditional, call)
	}
	for call := range oldRules {
		conditional = append(conditional, call)
	}
	for _, o := range oldOpens {
		conditional = append(conditional, o.call)
	}
	counts := map[uint32]int{}
	const last, x32 = 1024, 0x40000000
	for call := uintptr(0); call < last; call++ {
		got := verdict(ownArch(), call)
		counts[got]++
		want := unknown
		switch {
		case slices.Contains(conditional, call):
			continue
		case slices.Contains(allowedCalls, call) || slices.Contains(allowedOld, call):
			want = allows
		case slices.Contains(forbiddenCalls, call) || slices.Contains(forbiddenOld, call):
			want = refused
		}
		if got != want {
			t.Errorf("call %d: %#x, want %#x", call, got, want)
		}
		if got := verdict(unix.AUDIT_ARCH_I386, call); got != kills {
			t.Errorf("call %d in 32 bits: %#x", call, got)
		}
		if got := verdict(ownArch(), call|x32); got != unknown {
			t.Errorf("call %d in the x32 table: %#x", call, got)
		}
	}
	if counts[allows] < 200 || counts[allows] > 330 || counts[refused] < 30 {
		t.Errorf("%v", counts)
	}
	for _, call := range []uintptr{unix.SYS_IO_SETUP, unix.SYS_VMSPLICE, unix.SYS_MOUNT, unix.SYS_UNSHARE,
		unix.SYS_SETNS, unix.SYS_PTRACE, unix.SYS_BPF, unix.SYS_KEYCTL, unix.SYS_IO_URING_SETUP, unix.SYS_CLONE3,
		unix.SYS_MEMFD_CREATE, unix.SYS_SHMGET, unix.SYS_OPENAT2, unix.SYS_USERFAULTFD, unix.SYS_OPEN_TREE,
		unix.SYS_MSGGET} {
		if verdict(ownArch(), call) == allows {
			t.Errorf("call %d is allowed", call)
		}
	}
}

func TestArgumentsAreJudged(t *testing.T) {
	verdict := judge(t)
	const high = 1 << 32
	for _, tt := range []struct {
		name string
		call uintptr
		args []uint64
		want uint32
	}{
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, refused},
		{"unix socket, high bits", unix.SYS_SOCKET, []uint64{unix.AF_UNIX | high, unix.SOCK_STREAM, 0}, refused},
		{"a pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, allows},
		{"a pair of packets", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK, 0},
			allows},
		{"a pair that sends to anybody", unix.SYS_SOCKETPAIR,
			[]uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC, 0}, refused},
		{"a pair that the kernel makes one", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_RAW | high, 0},
			refused},
		{"memory of one's own", unix.SYS_MMAP, []uint64{0, 4096, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, allows},
		{"a file that is shared", unix.SYS_MMAP, []uint64{0, 4096, 3, unix.MAP_SHARED}, allows},
		{"shared memory", unix.SYS_MMAP, []uint64{0, 4096, 3,
			unix.MAP_SHARED | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE | high}, refused},
		{"shared memory, as it is checked", unix.SYS_MMAP,
			[]uint64{0, 4096, 3, unix.MAP_SHARED_VALIDATE | unix.MAP_ANONYMOUS}, refused},
		{"tcp socket", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allows},
		{"sctp socket", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, refused},
		{"netlink socket", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, refused},
		{"netlink socket, high bits", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK | high, unix.SOCK_RAW, 0}, refused},
		{"vsock socket", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, refused},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refused},
		{"TIOCSTI, high bits", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, refused},
		{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX | 7*high}, refused},
		{"TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allows},
		// The accumulator of another generator, after a failed condition, was compared as a call's number.
		{"an argument like a call's number", unix.SYS_SOCKET, []uint64{uint64(unix.SYS_IOCTL), 0, 0}, refused},
		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allows},
		{"thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allows},
		{"clone a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refused},
		{"clone a mount namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS}, refused},
		{"chmod", unix.SYS_FCHMODAT, []uint64{0, 0, 0o1777}, allows},
		{"chmod u+s", unix.SYS_FCHMODAT, []uint64{0, 0, 0o4755}, refused},
		{"chmod g+s", unix.SYS_FCHMOD, []uint64{0, 0o2755}, refused},
		{"fchmodat2 u+s, high bits", unix.SYS_FCHMODAT2, []uint64{0, 0, 0o4755 | high}, refused},
		{"mknod u+s", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFREG | 0o4755}, refused},
		{"mknod", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o644}, allows},
		{"create", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o755}, allows},
		{"create u+s", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT | unix.O_WRONLY, 0o4755}, refused},
		{"create g+s", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o2755}, refused},
		{"an unnamed file u+s", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR, 0o4755}, refused},
		{"open with rubbish for a mode", unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY, 0xffff_ffff}, allows},
		{"ask for the personality", unix.SYS_PERSONALITY, []uint64{0xffff_ffff}, allows},
		{"READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x0400000}, refused},
	} {
		if got := verdict(ownArch(), tt.call, tt.args...); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// TestACommandLimitsItself: it sets no limits of others, by no spelling of their number.
func TestACommandLimitsItself(t *testing.T) {
	programs, err := filterProgram(false)
	must.OK(t, err)
	verdict := judgeBy(t, programs.own)
	const high = 1 << 32
	for _, tt := range []struct {
		name string
		call uintptr
		args []uint64
		want uint32
	}{
		{"its own", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CPU, 4096, 0}, allows},
		{"read another's", unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU, 0, 4096}, allows},
		{"the init's", unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU, 4096, 0}, refused},
		{"the init's, high bits", unix.SYS_PRLIMIT64, []uint64{1 | high, unix.RLIMIT_CPU, high, 0}, refused},
		{"another thread's", unix.SYS_PRLIMIT64, []uint64{77, unix.RLIMIT_CPU, 4096, 4096}, refused},
		{"anything else", unix.SYS_WRITE, []uint64{1, 1, 1}, allows},
	} {
		if got := verdict(ownArch(), tt.call, tt.args...); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// TestUnixSocketsAreTheOperatorsChoice: with them the filter is the same but for them.
func TestUnixSocketsAreTheOperatorsChoice(t *testing.T) {
	programs, err := filterProgram(true)
	must.OK(t, err)
	with, without := judgeBy(t, programs.all), judge(t)
	for call := range uintptr(1024) {
		for _, args := range [][]uint64{{0, 0, 0}, {unix.AF_UNIX, unix.SOCK_DGRAM, 0},
			{unix.AF_NETLINK, unix.SOCK_RAW, 0}, {unix.AF_VSOCK, unix.SOCK_STREAM, 0}} {
			opened := args[0] == unix.AF_UNIX && (call == unix.SYS_SOCKET || call == unix.SYS_SOCKETPAIR)
			if a, b := with(ownArch(), call, args...), without(ownArch(), call, args...); a != b && !opened || opened &&
				(a != allows || b != refused) {
				t.Errorf("call %d %v: %#x with Unix sockets, %#x without", call, args, a, b)
			}
		}
	}
}
