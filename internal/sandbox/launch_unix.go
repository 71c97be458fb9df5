//go:build unix && !linux

package sandbox

import (
	"errors"
	"os/exec"
	"syscall"
)

// ownSession puts a program into a session of its own: it has no terminal of ours, and signals to it meet only it.
func ownSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

// tellGroup tells a program's process group to stop.
func tellGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// killTree kills a program's process group. What has left the group is not found on this system.
func killTree(pid int, _ string) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}
