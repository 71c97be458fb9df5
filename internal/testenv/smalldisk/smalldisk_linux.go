// Package smalldisk gives tests a disk to fill: a tmpfs of a few megabytes in a mount namespace of its own,
// which goes with the process. It needs the right to mount, or a kernel that lets anybody make user namespaces, as the
// sandbox's tests do; where there is neither the test fails.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// inside names the directory to the process that is to mount the disk there.
const inside = "TOOLYARD_TEST_SMALL_DISK"

// Run runs the rest of a test in a process of its own, with a disk of so many bytes on a directory. What Run is called
// with is the test itself: nothing of it stands before or behind the call.
func Run(t *testing.T, bytes int64, test func(t *testing.T, dir string)) {
	t.Helper()
	if dir := os.Getenv(inside); dir != "" {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
			t.Fatalf("mount a disk of %d bytes: %v", bytes, err)
		}
		test(t, dir)
		return
	}
	dir := t.TempDir()
	self, err := os.Executable()
	must.OK(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+
		strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+dir)
	cmd.SysProcAttr = alone()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the test on a disk of %d bytes: %v", bytes, err)
	}
}

// Command makes a command start with a disk of so many bytes on a directory, which only it and its children see. Others
// reach it with [Reach] once it runs.
func Command(cmd *exec.Cmd, dir string, bytes int64) {
	cmd.Args = append([]string{"sh", "-c", `mount -t tmpfs -o "size=$1" tmpfs "$2" && shift 2 && exec "$@"`, "sh",
		fmt.Sprint(bytes), dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = alone()
}

// alone are the attributes of a process with mounts of its own, none of which anybody else sees.
func alone() *syscall.SysProcAttr {
	if mayMount() {
		return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // which also makes them private
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

// mayMount reports whether this process may mount: root in a container often may not.
func mayMount() bool {
	status, err := os.ReadFile("/proc/self/status")
	_, caps, ok := strings.Cut(string(status), "\nCapEff:\t")
	caps, _, _ = strings.Cut(caps, "\n")
	n, bad := strconv.ParseUint(caps, 16, 64)
	const sysAdmin = 21
	return err == nil && ok && bad == nil && n&(1<<sysAdmin) != 0
}

// Reach is a path as a process sees it.
func Reach(pid int, path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), path)
}

// Fill writes a file until the disk is full, but for so many bytes, and returns its name.
func Fill(t testing.TB, dir string, but int64) string {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	must.OK(t, err)
	defer f.Close()
	var fs syscall.Statfs_t
	for block := make([]byte, 64<<10); ; {
		must.OK(t, syscall.Statfs(dir, &fs))
		left := int64(fs.Bavail)*fs.Bsize - but
		if left <= 0 {
			return path
		}
		_, err := f.Write(block[:min(left, int64(len(block)))])
		if errors.Is(err, syscall.ENOSPC) {
			return path
		}
		must.OK(t, err)
	}
}
