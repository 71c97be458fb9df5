//go:build unix && !linux

package sandbox

import (
	"errors"
	"os/exec"
	"syscall"
)

// ownSession starts a program in a new session: it has no terminal of ours, and signals to its group reach only it.
func ownSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

// tellGroup sends SIGTERM to a program's process group.
func tellGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// killTree kills a program's process group. Processes that have left the group are not found on this system.
func killTree(pid int, _ string) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		return nil
	}
	return err
}
