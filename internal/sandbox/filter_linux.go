//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// argument is a condition on one argument of a call: its bits under the mask equal one of the values. Masks cover the
// low 32 bits of arguments that the kernel reads as an int. The kernel ignores the other bits, and a filter that
// compared them could be bypassed.
type argument struct {
	index  int
	mask   uintptr
	values []uintptr
}

// opening is a call that may make a file.
type opening struct {
	call        uintptr
	flags, mode int
}

const (
	low32 = 0xffffffff
	// socketKind is the mask of a socket's type without flags.
	socketKind = 0xf
	setID      = unix.S_ISUID | unix.S_ISGID
	newSpaces  = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

// noSetID is the condition that a mode does not make a set-user-ID or set-group-ID file. In a root worker's workspace
// such a file would belong to root.
func noSetID(index int) []argument { return []argument{{index, setID, []uintptr{0}}} }

// callRules are calls that are allowed with some arguments: all conditions of a call must be true.
var callRules = map[uintptr][]argument{
	unix.SYS_CLONE:     {{0, newSpaces, []uintptr{0}}},
	unix.SYS_FCHMOD:    noSetID(1),
	unix.SYS_FCHMODAT:  noSetID(2),
	unix.SYS_FCHMODAT2: noSetID(2),
	unix.SYS_MKNODAT:   noSetID(2),
	// Other families reach outside the network namespace (VSOCK), or parts of the kernel that commands do not need.
	// [unixRules] replace these rules where Unix sockets are allowed.
	unix.SYS_SOCKET: {{0, low32, []uintptr{unix.AF_INET, unix.AF_INET6}},
		{2, low32, []uintptr{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}}},
	unix.SYS_SOCKETPAIR: {{0, low32, []uintptr{unix.AF_UNIX}},
		{1, socketKind, []uintptr{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}}},
	unix.SYS_PERSONALITY: {{0, low32, []uintptr{0, low32}}},
}

// unixRules are the socket rules if the operator allows commands to make Unix sockets. Such a socket in the workspace
// is reached by its file, in any network namespace. Without these rules there are only pairs, which reach nobody; but
// pairs of datagram sockets could send to any address.
var unixRules = map[uintptr][]argument{
	unix.SYS_SOCKET: {{0, low32, []uintptr{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}},
		{2, low32, []uintptr{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}}},
	unix.SYS_SOCKETPAIR: {{0, low32, []uintptr{unix.AF_UNIX}}},
}

// deniedArguments are calls that are allowed except with some arguments.
var deniedArguments = map[uintptr][]argument{
	// Shared pages without a file remain after the last unmapping, and count for no process.
	unix.SYS_MMAP: {{3, unix.MAP_ANONYMOUS | unix.MAP_TYPE,
		[]uintptr{unix.MAP_ANONYMOUS | unix.MAP_SHARED, unix.MAP_ANONYMOUS | unix.MAP_SHARED_VALIDATE}}},
	// typing into the terminal of the worker
	unix.SYS_IOCTL: {{1, low32, []uintptr{unix.TIOCSTI, unix.TIOCLINUX}}},
}

// filters are the programs in the kernel's format: one for everything inside, one for the command but not for the
// sandbox's init.
type filters struct{ all, own []byte }

// filterPrograms builds each filter once: without Unix sockets, and with them.
var filterPrograms = [2]func() (filters, error){sync.OnceValues(func() (filters, error) { return buildFilters(false) }),
	sync.OnceValues(func() (filters, error) { return buildFilters(true) })}

func filterProgram(unixSockets bool) (filters, error) {
	if unixSockets {
		return filterPrograms[1]()
	}
	return filterPrograms[0]()
}

func buildFilters(unixSockets bool) (f filters, err error) {
	if f.all, err = buildFilter(unixSockets); err != nil {
		return f, err
	}
	f.own, err = buildOwnFilter()
	return f, err
}

// buildOwnFilter builds the command's own filter: the command can set only its own limits. Otherwise it could end the
// init by setting the init's limits to zero.
func buildOwnFilter() ([]byte, error) {
	deny := seccomp.NewSyscallRules()
	const pid, limit = 0, 2
	rule := seccomp.PerArg{}
	rule[pid], rule[limit] = seccomp.NotEqual(0), seccomp.NotEqual(0)
	deny.Add(unix.SYS_PRLIMIT64, anyElse(rule))
	return encode(&seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny, Action: errno(unix.EPERM)}},
		Options:  seccomp.ProgramOptions{DefaultAction: seccomp.Allow, BadArchAction: seccomp.KillProcess},
	})
}

func buildFilter(unixSockets bool) ([]byte, error) {
	deny, allow, forbid := seccomp.NewSyscallRules(), seccomp.NewSyscallRules(), seccomp.NewSyscallRules()
	for call, args := range deniedArguments {
		deny.Add(call, matching(args))
	}
	for _, o := range append([]opening{{unix.SYS_OPENAT, 2, 3}}, oldOpens...) {
		for _, makes := range []uintptr{unix.O_CREAT, unix.O_TMPFILE &^ unix.O_DIRECTORY} {
			for _, bit := range []uintptr{unix.S_ISUID, unix.S_ISGID} {
				rule := seccomp.PerArg{}
				rule[o.mode] = seccomp.MaskedEqual(bit, bit)
				if o.flags >= 0 {
					rule[o.flags] = seccomp.MaskedEqual(makes, makes)
				}
				deny.Add(o.call, anyElse(rule))
			}
		}
		allow.Add(o.call, seccomp.MatchAll{})
	}
	for _, rules := range []map[uintptr][]argument{callRules, oldRules} {
		for call, args := range rules {
			if with, ok := unixRules[call]; ok && unixSockets {
				args = with
			}
			allow.Add(call, matching(args))
		}
	}
	for _, list := range [][]uintptr{allowedCalls, allowedOld} {
		for _, call := range list {
			allow.Add(call, seccomp.MatchAll{})
		}
	}
	for _, list := range [][]uintptr{forbiddenCalls, forbiddenOld} {
		for _, call := range list {
			forbid.Add(call, seccomp.MatchAll{})
		}
	}
	return encode(&seccomp.Program{
		RuleSets: []seccomp.RuleSet{
			{Rules: deny, Action: errno(unix.EPERM)}, {Rules: allow, Action: seccomp.Allow},
			{Rules: forbid, Action: errno(unix.EPERM)},
		},
		Options: seccomp.ProgramOptions{DefaultAction: errno(unix.ENOSYS), BadArchAction: seccomp.KillProcess},
	})
}

// encode returns a program in the kernel's format.
func encode(p *seccomp.Program) ([]byte, error) {
	code, _, err := p.Build()
	if err != nil {
		return nil, fmt.Errorf("build the system call filter: %w", err)
	}
	var out []byte
	for _, i := range code {
		out = binary.NativeEndian.AppendUint16(out, i.OpCode)
		out = append(out, i.JumpIfTrue, i.JumpIfFalse)
		out = binary.NativeEndian.AppendUint32(out, i.K)
	}
	return out, nil
}

func errno(e syscall.Errno) seccomp.Action { return seccomp.ReturnError.Code(uint16(e)) }

// anyElse allows any value for the arguments that a rule does not mention.
func anyElse(rule seccomp.PerArg) seccomp.PerArg {
	for i := range rule {
		if rule[i] == nil {
			rule[i] = seccomp.AnyValue{}
		}
	}
	return rule
}

// matching is the rule that all conditions are true.
func matching(args []argument) seccomp.SyscallRule {
	rules := []seccomp.PerArg{{}}
	for _, a := range args {
		var with []seccomp.PerArg
		for _, rule := range rules {
			for _, v := range a.values {
				rule[a.index] = seccomp.MaskedEqual(a.mask, v)
				with = append(with, rule)
			}
		}
		rules = with
	}
	var or seccomp.Or
	for _, rule := range rules {
		or = append(or, anyElse(rule))
	}
	return or
}
