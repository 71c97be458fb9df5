//go:build failpoints && !linux

package failpoint

import (
	"os"
	"syscall"
)

// stopHere stops the process. What stands behind it may still be done.
func stopHere() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
