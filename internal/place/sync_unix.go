//go:build unix

package place

import (
	"errors"
	"os"
)

// SyncDir syncs the names of an open directory to the disk and closes it.
func SyncDir(d *os.File) error { return errors.Join(d.Sync(), d.Close()) }
