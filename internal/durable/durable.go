// Package durable makes names survive a power loss. A file that was synced is on the disk; its name is there when its
// directory was synced too.
package durable

import "os"

// SyncDir makes the names in a directory last: those of files and directories that were made, linked, renamed or
// removed there before.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return Sync(d)
}
