//go:build linux || darwin || freebsd

package natsd

import (
	"fmt"
	"syscall"
)

// disk is how much room there is on the disk under a directory, for this user, and in all.
func disk(dir string) (free, total int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("look at the disk under %s: %w", dir, err)
	}
	block := int64(fs.Bsize) //nolint:unconvert // its type differs between systems
	return int64(fs.Bavail) * block, int64(fs.Blocks) * block, nil
}
