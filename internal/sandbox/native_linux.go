//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// open makes the backends of this system, in the order in which they are tried.
func open(o Options) []Sandbox {
	return []Sandbox{&probed{name: Native, options: o, make: newNative},
		&probed{name: Bwrap, options: o, make: newBwrap}}
}

const self = stage.Self

// native makes the namespaces with the flags of clone, and leaves the mounts to the stage.
type native struct {
	m       *machine
	root    bool
	spawner *spawner

	mu sync.Mutex
	// maps are user namespaces that map a workspace's owner to the user of the commands, by owner. They contain no
	// process.
	maps map[[2]int]int
}

func newNative(_ context.Context, o Options) (*runner, error) {
	m, err := survey(o)
	if err != nil {
		return nil, err
	}
	n := &native{m: m, root: os.Getuid() == 0, maps: map[[2]int]int{}}
	n.spawner = &spawner{spawn: &stage.Spawn{UID: insideUID, GID: insideGID, HostUID: m.HostUID, HostGID: m.HostGID,
		Root: n.root, Env: stageEnv}}
	r := &runner{machine: m, name: Native, outer: n, spares: &spares{name: Native, outer: n}}
	if n.root {
		r.mount = n.mount
	}
	r.groups, r.noGroups = delegated()
	return r, nil
}

// stageEnv is for the stage's Go runtime, which runs for one command and does little: it neither collects garbage nor
// checks the limits of its cgroup.
var stageEnv = []string{"GOMAXPROCS=2", "GOGC=off", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

func (n *native) wrap(*stage.Root, *stage.Spec) (*exec.Cmd, []*os.File, error) {
	return &exec.Cmd{Path: self, Args: []string{stage.Name}, Env: stageEnv, Dir: "/",
		SysProcAttr: n.spawner.spawn.Attributes()}, nil, nil
}

// start starts a stage with the spawner, if it works.
func (n *native) start(far *os.File) (child, error) { return n.spawner.start(far) }

// mount prepares a workspace for a root worker: files of its owner appear as the command's own, and files that the
// command creates belong to the owner. Otherwise the command could write nothing, or would have to run as the owner.
func (n *native) mount(l *lease) error {
	if l.owner[0] == n.m.HostUID {
		return nil // it already belongs to the command's user
	}
	ns, err := n.mapOwner(l.owner)
	if err != nil {
		return setupError(Native, fmt.Sprintf("map the workspace's owner %d", l.owner[0]), err)
	}
	tree, err := unix.OpenTree(int(l.lock.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return setupError(Native, "open the workspace as a mount", err)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)}); err != nil {
		return errors.Join(fmt.Errorf("%w: %s: the workspace's file system cannot map its owner %d to the user %d "+
			"that commands run as: %w; "+
			"run the worker as an ordinary user, or give the workspace to that user (chown -R %d:%d)", ErrNoIsolation,
			Native, l.owner[0], n.m.HostUID, err, n.m.HostUID, n.m.HostGID), unix.Close(tree))
	}
	l.fd = tree
	return nil
}

// mapOwner returns a user namespace that maps an owner to the user of the commands.
func (n *native) mapOwner(owner [2]int) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fd, ok := n.maps[owner]; ok {
		return fd, nil
	}
	// Creating a namespace needs a process. This one is a stage whose plan never comes.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	far, near := os.NewFile(uintptr(pair[0]), "stage"), os.NewFile(uintptr(pair[1]), "worker")
	cmd := &exec.Cmd{Path: self, Args: []string{stage.Name}, Env: stageEnv, Dir: "/", ExtraFiles: []*os.File{far},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: owner[0], HostID: n.m.HostUID, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: owner[1], HostID: n.m.HostGID, Size: 1}},
			Credential:  &syscall.Credential{Uid: uint32(owner[0]), Gid: uint32(owner[1]), NoSetGroups: true},
		}}
	err = errors.Join(cmd.Start(), far.Close())
	if err != nil {
		return -1, errors.Join(err, near.Close())
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	err = errors.Join(err, near.Close()) // closing the socket ends the stage
	if waited := cmd.Wait(); err == nil {
		if _, ended := errors.AsType[*exec.ExitError](waited); !ended {
			err = waited
		}
	}
	if err != nil {
		return -1, err
	}
	n.maps[owner] = fd
	return fd, nil
}
