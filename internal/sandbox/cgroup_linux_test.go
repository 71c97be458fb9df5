package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// aGroup is a directory that looks like a cgroup with some controllers. Its files take what is written and do nothing.
func aGroup(t *testing.T, controllers string) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, fillGroup(dir, controllers))
	return dir
}

func fillGroup(dir, controllers string) error {
	files := map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": "77\n",
		"cgroup.kill": "", "memory.max": "max",
		"memory.oom.group": "0", "memory.swap.max": "max", "pids.max": "max",
		"memory.events": "low 0\noom 0\noom_kill 0\n", "io.weight": "default 100"}
	var err error
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return err
}

func contentOf(t *testing.T, dir, name string) string {
	t.Helper()
	b := must.Read(t, filepath.Join(dir, name))
	return string(b)
}

func TestOwnGroup(t *testing.T) {
	const mounts = "22 1 0:20 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup " +
		"rw,memory\n31 1 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	for _, tt := range []struct{ mounts, cgroup, want string }{
		{mounts, "4:memory:/x\n0::/user.slice/worker.service\n", "/sys/fs/cgroup/user.slice/worker.service"},
		{mounts, "0::/\n", "/sys/fs/cgroup"},
		{strings.Replace(mounts, "0:27 / ", "0:27 /a ", 1), "0::/a/b\n", "/sys/fs/cgroup/b"},
		{strings.Replace(mounts, "0:27 / ", "0:27 /a ", 1), "0::/c\n", ""},
		{mounts, "4:memory:/x\n", ""},
		{"22 1 0:20 / /proc rw - proc proc rw\n", "0::/\n", ""},
		{"rubbish\n\n-\n", "0::/\n", ""},
	} {
		if got, err := ownGroup(tt.mounts, tt.cgroup); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: %q, %v", tt.cgroup, got, err)
		}
	}
}

// TestGroupsThatAreNotOurs: a cgroup is used only when it was delegated, with the controllers that bound memory and
// processes.
func TestGroupsThatAreNotOurs(t *testing.T) {
	for name, tt := range map[string]struct {
		controllers, says string
		pid               int
		root              bool
	}{
		"without memory":                {"cpu pids", "memory", 77, false},
		"without processes":             {"memory io", "pids", 77, false},
		"root's, and not marked":        {"memory pids io", "not marked", 77, true},
		"with somebody else's process":  {"memory pids io", "process 77", 78, false},
		"a directory that is no cgroup": {"", "look at", 77, false},
	} {
		dir := aGroup(t, tt.controllers)
		if tt.controllers == "" {
			dir = t.TempDir()
		}
		if c, err := useGroup(dir, tt.pid, tt.root); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// TestACommandsGroup: what the kernel is told about a command, in the files that it has for that.
func TestACommandsGroup(t *testing.T) {
	dir := aGroup(t, "cpuset cpu io memory pids")
	c := &cgroups{dir: dir, io: true, mkdir: func(dir string) error {
		return errors.Join(os.MkdirAll(dir, 0o755),
			fillGroup(dir, "memory pids io"))
	}}
	must.OK(t, c.enable(77))
	if got := contentOf(t, dir, "cgroup.subtree_control"); got != "+memory +pids +io" {
		t.Errorf("%q", got)
	}
	if got := contentOf(t, dir, workersGroup+"/cgroup.procs"); !strings.HasPrefix(got, "77") {
		t.Errorf("%q", got)
	}
	g, err := c.make(Limits{Memory: 100 << 20, Processes: 20})
	must.OK(t, err)
	must.OK(t, g.add(4242))
	for name, want := range map[string]string{"memory.max": "121634816", "memory.swap.max": "0",
		"memory.oom.group": "1", "pids.max": "60", "io.weight": "50", "cgroup.procs": "4242"} {
		if got := contentOf(t, g.dir, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q", name, got)
		}
	}
	if g.outOfMemory() {
		t.Error("nothing was killed, and it says so")
	}
	must.OK(t, os.WriteFile(filepath.Join(g.dir, "memory.events"),
		[]byte("max 9\noom 1\noom_kill 12\noom_group_kill 1\n"), 0o644))
	if !g.outOfMemory() {
		t.Error("the kernel has killed, and nobody says so")
	}
}

// TestAGroupThatCannotBeLimited: a command is not run in a group whose limits could not be set.
func TestAGroupThatCannotBeLimited(t *testing.T) {
	dir := aGroup(t, "memory pids")
	// the kernel puts no files in
	c := &cgroups{dir: dir, mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) }}
	if g, err := c.make(Limits{Memory: 1 << 20}); err == nil {
		t.Errorf("%+v", g)
	}
	left, err := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it was left there: %q %v", left, err)
	}
}

// TestGroupsThatAreLeftGo: the group of a command whose processes take long to end is taken away later, and those that
// a killed worker has left when another one starts. Such a group is of nobody else: it is empty, and not new.
func TestGroupsThatAreLeftGo(t *testing.T) {
	t.Parallel()
	dir := aGroup(t, "memory pids")
	must.OK(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("memory pids"), 0o644))
	left := func() (names []string) {
		names, err := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
		must.OK(t, err)
		return names
	}
	long := time.Now().Add(-time.Hour)
	for n := range 100 {
		group := filepath.Join(dir, groupPrefix+"OLD"+strconv.Itoa(n))
		must.OK(t, errors.Join(os.Mkdir(group, 0o755), os.Chtimes(group, long, long)))
	}
	young, busy := filepath.Join(dir, groupPrefix+"YOUNG"), filepath.Join(dir, groupPrefix+"BUSY")
	must.OK(t, errors.Join(os.Mkdir(young, 0o755), os.MkdirAll(filepath.Join(busy, "a process"), 0o755),
		os.Chtimes(busy, long, long)))
	c, err := useGroup(dir, 77, false)
	must.OK(t, err)
	if got := left(); !slices.Equal(got, []string{busy, young}) {
		t.Errorf("%d groups are left, want the one that is in use and the one that is new", len(got))
	}
	c.mkdir = func(dir string) error { return errors.Join(os.MkdirAll(dir, 0o755), fillGroup(dir, "memory pids")) }
	for range 20 {
		g, err := c.make(Limits{Memory: 1 << 20})
		must.OK(t, err)
		if g.end() == nil { // the directory is not empty, as one of the kernel is that has processes
			t.Fatal("a group that is in use was taken away")
		}
		names, err := os.ReadDir(g.dir)
		must.OK(t, err)
		for _, name := range names { // and now they have ended
			must.OK(t, os.Remove(filepath.Join(g.dir, name.Name())))
		}
	}
	if got := left(); len(got) > 3 {
		t.Errorf("%d groups are left, 20 commands later", len(got))
	}
}

// TestEveryLayerIsNamed: each layer either holds, and is named, or does not, and is named with the reason. What is
// asked for here is asked of the kernel, and not of the sandbox.
func TestEveryLayerIsNamed(t *testing.T) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	landlock := errno == 0 && version >= 2
	_, noGroup := delegated()
	each(t, func(t *testing.T, box Sandbox) {
		caps, err := box.Probe(t.Context())
		must.OK(t, err)
		for layer, gives := range map[string]bool{"landlock": landlock, "landlock_scopes": landlock && version >= 6,
			cgroupLayer: noGroup == nil} {
			missing := slices.IndexFunc(caps.Missing, func(m string) bool {
				return strings.HasPrefix(m, layer+": ") &&
					len(m) > len(layer)+10
			})
			if slices.Contains(caps.Layers, layer) != gives || gives == (missing >= 0) &&
				(landlock || layer != "landlock_scopes") {
				t.Errorf("%s: the kernel gives it: %t; holds: %q, missing: %q", layer, gives, caps.Layers, caps.Missing)
			}
		}
		for _, layer := range []string{"userns", "mount", "pid", "net", "ipc", "uts", "cgroup", "caps", "no_new_privs",
			"seccomp", "rlimits"} {
			if !slices.Contains(caps.Layers, layer) {
				t.Errorf("%s is not named in %q", layer, caps.Layers)
			}
		}
		for _, layer := range []string{"user_limits", "socket_limits"} { // of /proc/sys, which may be read-only here
			missing := slices.ContainsFunc(caps.Missing,
				func(m string) bool { return strings.HasPrefix(m, layer+": /proc/sys/") })
			if slices.Contains(caps.Layers, layer) == missing {
				t.Errorf("%s: holds: %q, missing: %q", layer, caps.Layers, caps.Missing)
			}
		}
	})
}
