package sandbox

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupLayer is the name of the layer; "cgroup" is the namespace.
const cgroupLayer = "cgroup_limits"

// cgroups is a delegated cgroup (version 2) in which each command gets its own group. The kernel counts there what the
// sandbox's init cannot, including kernel memory for sockets and pipes, and it counts continuously.
type cgroups struct {
	dir string
	io  bool
	// mkdir makes a group; the kernel creates its files. Tests create them themselves.
	mkdir func(dir string) error
	// left are the groups that could not be taken away when their commands ended: a process that waits for a disk may
	// outlive its end by far.
	mu   sync.Mutex
	left []string
}

const (
	// workersGroup is the worker's own group: a group whose subgroups have limits must not contain processes.
	workersGroup = "toolyard-worker"
	groupPrefix  = "toolyard-command-"
	// groupEmptyWithin is how long a group may take to become empty after it was killed.
	groupEmptyWithin = 2 * time.Second
	groupPoll        = time.Millisecond
	// groupIOWeight is a command's share of the disk; the default weight is 100.
	groupIOWeight = 50
	// groupAbandonedAfter is how old an empty group is that a killed worker has left, and not another one just made.
	groupAbandonedAfter = 10 * time.Minute
	// groupsTriedAgain is how many groups that are left are tried again when another one is made.
	groupsTriedAgain = 8
)

// needed are the controllers that a group must have.
var needed = []string{"memory", "pids"}

// delegated finds the cgroup that is delegated to this process, once. The error says why there is none.
var delegated = sync.OnceValues(func() (*cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	dir, err := ownGroup(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	return useGroup(dir, os.Getpid(), os.Getuid() == 0)
})

// ownGroup is the directory of the cgroup of a process, from the kernel's lists of mounts and groups.
func ownGroup(mountinfo, cgroup string) (string, error) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		i := slices.Index(fields, "-")
		if i < 5 || len(fields) < i+2 || fields[i+1] != "cgroup2" {
			continue
		}
		for line := range strings.Lines(cgroup) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				below, err := filepath.Rel(fields[3], path)
				if err != nil || below == ".." || strings.HasPrefix(below, "../") {
					return "", fmt.Errorf("the worker's cgroup %s lies outside of what is mounted", path)
				}
				return filepath.Join(fields[4], below), nil
			}
		}
	}
	return "", errors.New("no cgroup file system of version 2 is mounted")
}

// useGroup prepares a cgroup for commands, if this process may use it. An ordinary user may use every group
// with write access. Root may use only one that is marked as delegated, since root can write to every group.
func useGroup(dir string, pid int, root bool) (*cgroups, error) {
	if filepath.Base(dir) == workersGroup {
		dir = filepath.Dir(dir) // it was prepared before
	}
	c := &cgroups{dir: dir, mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) }}
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("look at the worker's cgroup: %w", err)
	}
	controllers := strings.Fields(string(have))
	for _, name := range needed {
		if !slices.Contains(controllers, name) {
			return nil, fmt.Errorf("the worker's cgroup has no %s controller (it has: %s)", name,
				strings.Join(controllers, " "))
		}
	}
	c.io = slices.Contains(controllers, "io")
	for _, file := range []string{".", "cgroup.procs", "cgroup.subtree_control"} {
		if err := unix.Access(filepath.Join(dir, file), unix.W_OK); err != nil {
			return nil, fmt.Errorf("the worker's cgroup was not delegated to it: %w", err)
		}
	}
	if root && !marked(dir) {
		return nil, errors.New("the worker's cgroup was not delegated to it: root may write in it, but it is not " +
			"marked (systemd's Delegate= does)")
	}
	if err := c.enable(pid); err != nil {
		return c, err
	}
	c.removeAbandoned(time.Now())
	return c, nil
}

// removeAbandoned takes away the groups that workers which were killed have left. The kernel removes none that has a
// process. What cannot be removed costs what it has cost before.
func (c *cgroups) removeAbandoned(now time.Time) {
	all, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, d := range all {
		info, err := d.Info()
		if err == nil && strings.HasPrefix(d.Name(), groupPrefix) && now.Sub(info.ModTime()) > groupAbandonedAfter {
			_ = unix.Rmdir(filepath.Join(c.dir, d.Name()))
		}
	}
}

// removeLeft tries again to take away some of the groups that are left, in turns.
func (c *cgroups) removeLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range min(groupsTriedAgain, len(c.left)) {
		dir := c.left[0]
		c.left = c.left[1:]
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			c.left = append(c.left, dir)
		}
	}
}

// leave notes a group that could not be taken away.
func (c *cgroups) leave(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, dir)
}

// marked reports whether a cgroup is marked as delegated, as systemd does.
func marked(dir string) bool {
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		var value [2]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}

// enable enables the controllers for the groups below. For that, the group itself must contain no process.
func (c *cgroups) enable(pid int) error {
	on, err := os.ReadFile(filepath.Join(c.dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	want := slices.Clone(needed)
	if c.io {
		want = append(want, "io")
	}
	missing := slices.DeleteFunc(want, func(name string) bool {
		return slices.Contains(strings.Fields(string(on)),
			name)
	})
	if len(missing) == 0 {
		return nil
	}
	procs, err := os.ReadFile(filepath.Join(c.dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, p := range strings.Fields(string(procs)) {
		if p != strconv.Itoa(pid) {
			return fmt.Errorf("process %s is in the worker's cgroup beside it; give the worker one of its own", p)
		}
	}
	leaf := filepath.Join(c.dir, workersGroup)
	if err := c.mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a cgroup for the worker itself: %w", err)
	}
	if err := writeKernelFile(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move the worker into a cgroup of its own: %w", err)
	}
	return writeKernelFile(filepath.Join(c.dir, "cgroup.subtree_control"), "+"+strings.Join(missing, " +"))
}

// writeKernelFile writes to a kernel file.
func writeKernelFile(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// group is the cgroup of one command. Nil: there is none, and only the sandbox's init counts.
type group struct {
	dir string
	of  *cgroups
}

// make makes a group with a command's limits. The init and its threads are also in it.
func (c *cgroups) make(l Limits) (*group, error) {
	if c == nil {
		return nil, nil
	}
	c.removeLeft()
	g := &group{dir: filepath.Join(c.dir, groupPrefix+rand.Text()), of: c}
	if err := c.mkdir(g.dir); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	set := [][2]string{{"memory.max", strconv.FormatInt(l.Memory+initMemory, 10)}, {"memory.oom.group", "1"},
		{"pids.max", strconv.Itoa(l.Processes + initProcesses + initThreads)}}
	for _, s := range set {
		if err := writeKernelFile(filepath.Join(g.dir, s[0]), s[1]); err != nil {
			return nil, errors.Join(fmt.Errorf("set %s of a cgroup: %w", s[0], err), g.end())
		}
	}
	// the file does not exist without swap
	err := writeKernelFile(filepath.Join(g.dir, "memory.swap.max"), "0")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("set memory.swap.max of a cgroup: %w", err), g.end())
	}
	if c.io {
		// not every scheduler has it
		if err := writeKernelFile(filepath.Join(g.dir, "io.weight"), strconv.Itoa(groupIOWeight)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("set io.weight of a cgroup: %w", err), g.end())
		}
	}
	return g, nil
}

const (
	// initMemory is what the sandbox's init may use beside its command.
	initMemory = 16 << 20
	// initThreads are the init's threads beside those of its command.
	initThreads = 16
)

// add moves a process into the group; its later children are in the group too.
func (g *group) add(pid int) error {
	if g == nil {
		return nil
	}
	if err := writeKernelFile(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("put the sandbox into its cgroup: %w", err)
	}
	return nil
}

// outOfMemory reports whether the kernel killed a process of the group because of its memory limit.
func (g *group) outOfMemory() bool {
	if g == nil {
		return false
	}
	counts, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(counts, []byte("oom_kill "))
	return ok && !bytes.HasPrefix(rest, []byte("0"))
}

// end kills what is left in the group and removes it, or notes that it is left.
func (g *group) end() error {
	if g == nil {
		return nil
	}
	// Since Linux 5.14; the end of the namespace kills everything too.
	_ = writeKernelFile(filepath.Join(g.dir, "cgroup.kill"), "1")
	for deadline := time.Now().Add(groupEmptyWithin); ; time.Sleep(groupPoll) {
		err := unix.Rmdir(g.dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			g.of.leave(g.dir)
			return fmt.Errorf("take away the cgroup of a command: %w", err)
		}
	}
}

// pidOf returns the process that a descriptor refers to.
func pidOf(pidfd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte("Pid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	if err == nil && pid <= 0 {
		err = unix.ESRCH
	}
	return pid, err
}

// onlyChild returns the only child of a process.
func onlyChild(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	children := strings.Fields(string(text))
	if len(children) != 1 {
		return 0, fmt.Errorf("%d processes below bwrap", len(children))
	}
	return strconv.Atoi(children[0])
}
