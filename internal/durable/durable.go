// Package durable makes names survive a power loss. A file that was synced is on the disk; its name is there when its
// directory was synced too.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// SyncDir makes the names in a directory last: those of files and directories that were made, linked, renamed or
// removed there before. On Windows, where directories cannot be synced, it does nothing.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
