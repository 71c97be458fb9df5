//go:build !unix

package place

import "os"

// SyncDir closes an open directory. Windows syncs none: it refuses to, and keeps names in the file system's journal.
func SyncDir(d *os.File) error { return d.Close() }
