package testenv

import (
	"sync"

	"golang.org/x/sys/unix"
)

// memoryDir is where Linux has a file system in memory.
const memoryDir = "/dev/shm"

// memoryRoom is how much of it must be free: the stores of all tests that run side by side, several times over.
const memoryRoom = 8 << 30

var memory = sync.OnceValue(func() string {
	var fs unix.Statfs_t
	err := unix.Statfs(memoryDir, &fs)
	if err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < memoryRoom ||
		unix.Access(memoryDir, unix.W_OK|unix.X_OK) != nil {
		return ""
	}
	return memoryDir
})
