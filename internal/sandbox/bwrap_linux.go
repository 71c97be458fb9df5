//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// bwrapPath is the only bubblewrap that is used: the distribution's own, which its AppArmor profile also names.
const bwrapPath = "/usr/bin/bwrap"

// stageDir is where bwrap mounts this program inside, until the stage unmounts it.
const stageDir = "/.toolyard"

// argsFD is the descriptor from which bwrap reads its arguments. On the command line every process of the machine could
// read them.
const argsFD = stage.ArgsFD

// bwrap lets bubblewrap make the namespaces and the mounts. The stage sets rights, filter and limits, as in the native
// backend.
type bwrap struct {
	m    *machine
	self string // this program's file
}

func newBwrap(_ context.Context, o Options) (*runner, error) {
	if os.Getuid() == 0 {
		return nil,
			fmt.Errorf("%w: %s: it cannot give root's workspaces to another user; run the worker as an ordinary user",
				ErrNoIsolation, Bwrap)
	}
	info, err := os.Lstat(bwrapPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s: it is not installed; apt-get install bubblewrap", ErrNoIsolation, Bwrap)
	}
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || st.Uid != 0 ||
		info.Mode()&(os.ModeSetuid|0o022) != 0 {
		return nil, fmt.Errorf("%w: %s: %s is %s and not root's alone, or set-user-ID; install the distribution's "+
			"package without set-user-ID",
			ErrNoIsolation, Bwrap, bwrapPath, info.Mode())
	}
	m, err := survey(o)
	if err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	named, err := os.Stat(own)
	if err != nil {
		return nil,
			fmt.Errorf("%w: %s: bwrap cannot find this program under its name any more: %w; start the worker anew",
				ErrNoIsolation, Bwrap, err)
	}
	if running, err := os.Stat(self); err != nil || !os.SameFile(named, running) {
		return nil, fmt.Errorf("%w: %s: the worker's program was replaced since it started; start it anew",
			ErrNoIsolation, Bwrap)
	}
	r := &runner{machine: m, name: Bwrap, outer: &bwrap{m: m, self: own}}
	r.groups, r.noGroups = delegated()
	return r, nil
}

func (b *bwrap) wrap(base *stage.Root, spec *stage.Spec) (*exec.Cmd, []*os.File, error) {
	args := bwrapArgs(base, spec, b.self)
	base.Build = false
	spec.Seal = []string{"", "dev", "run/secrets", "proc"}
	spec.Bound, spec.Scratch = []string{"tmp", "dev/shm"}, []string{"/tmp", "/dev/shm"}
	spec.Hide = []string{path.Join(stageDir, stage.Name)}
	fd, err := unix.MemfdCreate("bwrap-args", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "bwrap-args")
	_, err = f.WriteString(strings.Join(args, "\x00") + "\x00")
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	cmd := &exec.Cmd{
		Path: bwrapPath, Args: []string{"bwrap", "--args", strconv.Itoa(argsFD), "--", stage.Name}, Env: []string{},
		Dir: "/", ExtraFiles: []*os.File{f},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	return cmd, []*os.File{f}, err
}

// bwrapArgs translates a plan into bwrap's arguments. Every namespace is listed, because --unshare-all means "if
// possible".
func bwrapArgs(r *stage.Root, s *stage.Spec, self string) []string {
	args := []string{
		"--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--uid", strconv.Itoa(r.UID), "--gid", strconv.Itoa(r.GID), "--hostname", r.Hostname,
		"--as-pid-1", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN",
		"--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_SYS_RESOURCE", "--clearenv",
	}
	for _, e := range append([]string{"PATH=" + stageDir}, stageEnv...) {
		name, value, _ := strings.Cut(e, "=")
		args = append(args, "--setenv", name, value)
	}
	size := strconv.FormatInt(r.Bytes, 10)
	// No --dev: with it bwrap creates a second user namespace, in which nothing can be protected any more.
	args = append(args, "--proc", "/proc", "--size", size, "--perms", "0755", "--tmpfs", "/dev",
		"--size", size, "--perms", "1777", "--tmpfs", "/tmp", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm")
	for _, d := range slices.Concat(r.Dirs, s.Dirs) {
		switch d.Path {
		case "proc", "dev", "dev/shm", "tmp":
		case "run/secrets":
			args = append(args, "--size", size, "--perms", "0700", "--tmpfs", "/run/secrets")
		default:
			args = append(args, "--perms", fmt.Sprintf("%04o", d.Mode), "--dir", "/"+d.Path)
		}
	}
	for _, l := range r.Links {
		args = append(args, "--symlink", l.To, "/"+l.Path)
	}
	for _, b := range slices.Concat(r.Binds, s.Binds) {
		switch {
		case b.Device:
			args = append(args, "--dev-bind", b.Source, "/"+b.Target)
		case b.ReadOnly:
			args = append(args, "--ro-bind", b.Source, "/"+b.Target)
		default:
			args = append(args, "--bind", b.Source, "/"+b.Target)
		}
	}
	return append(args, "--perms", "0755", "--dir", stageDir, "--ro-bind", self, path.Join(stageDir, stage.Name),
		"--chdir", "/")
}
