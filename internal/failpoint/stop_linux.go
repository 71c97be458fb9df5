//go:build failpoints

package failpoint

import (
	"os"
	"runtime"
	"syscall"
)

// stopHere stops the process, and returns when it goes on. The signal goes to the thread that asks for it: one to the
// whole process may be taken by another, and this one would go on for a while.
func stopHere() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
}
