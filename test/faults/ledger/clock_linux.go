package ledger

import (
	"fmt"
	"syscall"
	"unsafe"
)

// Now reads CLOCK_MONOTONIC, in nanoseconds.
func Now() int64 {
	var ts syscall.Timespec
	const clockMonotonic = 1
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)),
		0); errno != 0 {
		panic(fmt.Errorf("read CLOCK_MONOTONIC: %w", errno)) // every kernel has it
	}
	return ts.Nano()
}
