//go:build linux

// Package blockdisk gives tests a disk that can lose power and that can hang: an ext4 file system on a loop device, in
// a mount namespace that goes with the process it is for. Nothing of it is made up: what the process has synced is on
// the image, what it has not is in the kernel's memory only. It needs root and loop devices; where there is neither
// the test fails.
package blockdisk

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// freeWait is how long the kernel may take to unmount what a killed process had mounted.
const freeWait = 30 * time.Second

// Format makes the image of an empty disk of so many bytes.
func Format(t testing.TB, image string, bytes int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a disk that can lose power is a file system of its own, and mounting one needs root")
	}
	f, err := os.Create(image)
	must.OK(t, err)
	must.OK(t, f.Truncate(bytes))
	must.OK(t, f.Close())
	out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-m", "0", image).CombinedOutput()
	if err != nil {
		t.Fatalf("make a file system: %v: %s", err, out)
	}
}

// Command makes a command start with the disk of an image on a directory, which only it and its children see. Others
// reach it with smalldisk.Reach once it runs. The process that had the disk before must be gone.
func Command(t testing.TB, cmd *exec.Cmd, image, dir string) {
	t.Helper()
	free(t, image)
	cmd.Args = append([]string{"sh", "-c", `mount -t ext4 -o loop "$1" "$2" && shift 2 && exec "$@"`, "sh",
		image, dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // which also makes the mounts private
}

// Mount mounts the disk of an image on a directory, and returns where the test reaches it and what unmounts it.
func Mount(t testing.TB, image, dir string) (disk string, unmount func()) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo mounted; exec sleep 1000000") // it has the disk until it is killed
	Command(t, cmd, image, dir)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	unmount = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(unmount)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("the disk is not there: %q, %v", line, err)
	}
	return smalldisk.Reach(cmd.Process.Pid, dir), unmount
}

// free waits until no loop device has the image: two at a time would not see each other's writes.
func free(t testing.TB, image string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), freeWait)
	defer cancel()
	for {
		users, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		must.OK(t, err)
		used := false
		for _, path := range users {
			text, err := os.ReadFile(path) // it is gone when the device has just been freed
			used = used || err == nil && strings.TrimSpace(string(text)) == image
		}
		if !used {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is still mounted after %s", image, freeWait)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The requests of a file system, of linux/fs.h and the file systems' own headers.
const (
	requestFreeze   = 0xC0045877 // FIFREEZE
	requestThaw     = 0xC0045878 // FITHAW
	requestShutdown = 0x8004587D // EXT4_IOC_SHUTDOWN
	shutdownAtOnce  = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH: not even the journal is written
)

// LosePower ends the file system at dir as a power loss does: what was not synced never reaches the disk, also what the
// kernel was about to write. Whoever still writes gets an error, so the process is stopped before and killed
// afterwards.
func LosePower(t testing.TB, dir string) {
	t.Helper()
	if err := request(dir, func(fd int) error {
		return unix.IoctlSetPointerInt(fd, requestShutdown, shutdownAtOnce)
	}); err != nil {
		t.Fatalf("cut the power of %s: %v", dir, err)
	}
}

// Hang makes the disk at dir hang: whoever writes waits until [GoOn]. What was written before is synced.
func Hang(dir string) error {
	return request(dir, func(fd int) error { return unix.IoctlSetInt(fd, requestFreeze, 0) })
}

// GoOn ends what Hang has begun.
func GoOn(dir string) error {
	return request(dir, func(fd int) error { return unix.IoctlSetInt(fd, requestThaw, 0) })
}

func request(dir string, do func(fd int) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := do(int(d.Fd())); err != nil {
		return fmt.Errorf("ioctl: %w", err)
	}
	return nil
}
