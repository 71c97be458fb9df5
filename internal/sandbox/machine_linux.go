//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// survey collects what a plan needs to know about this machine.
func survey(o Options) (*machine, error) {
	m := &machine{HostUID: os.Getuid(), HostGID: os.Getgid(), Namespaces: map[string]string{},
		Path: filepath.SplitList(os.Getenv("PATH")), Limits: kernelLimits{
			Core: unix.RLIMIT_CORE, CPU: unix.RLIMIT_CPU, AS: unix.RLIMIT_AS, Data: unix.RLIMIT_DATA,
			FSize: unix.RLIMIT_FSIZE, NoFile: unix.RLIMIT_NOFILE, NProc: unix.RLIMIT_NPROC,
			Stack: unix.RLIMIT_STACK, MemLock: unix.RLIMIT_MEMLOCK, MsgQueue: unix.RLIMIT_MSGQUEUE,
			SigPending: unix.RLIMIT_SIGPENDING, Nice: unix.RLIMIT_NICE, RTPrio: unix.RLIMIT_RTPRIO,
		}}
	if os.Geteuid() != m.HostUID || os.Getegid() != m.HostGID {
		return nil, fmt.Errorf("%w: the worker's real and effective user differ; start it without set-user-ID",
			ErrNoIsolation)
	}
	if m.HostUID == 0 {
		m.HostUID, m.HostGID = o.UID, o.UID
	}
	if m.HostGID == 0 {
		return nil, fmt.Errorf("%w: the worker is in root's group; run it with a group of its own", ErrNoIsolation)
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return nil, fmt.Errorf("%w: this kernel has no %s namespace: %w", ErrNoIsolation, ns, err)
		}
		m.Namespaces[ns] = own
	}
	for _, p := range systemPaths {
		info, err := os.Lstat(p)
		if err != nil {
			continue // not on this machine; the probe runs a shell, and notices if something important is missing
		}
		pl := place{Path: p, Dir: info.IsDir()}
		if info.Mode()&os.ModeSymlink != 0 {
			if pl.To, err = os.Readlink(p); err != nil {
				return nil, fmt.Errorf("%w: read the link %s: %w", ErrNoIsolation, p, err)
			}
		}
		if real, err := filepath.EvalSymlinks(filepath.Dir(p)); err != nil || real != filepath.Dir(p) {
			continue // it is behind a link, and reached through the link inside too
		}
		m.System = append(m.System, pl)
	}
	for _, p := range devicePaths {
		if info, err := os.Lstat(p); err == nil && info.Mode()&os.ModeDevice != 0 {
			m.Devices = append(m.Devices, p)
		}
	}
	programs, err := filterProgram(o.UnixSockets)
	m.Filter, m.Own = programs.all, programs.own
	return m, err
}
