//go:build !unix

package durable

import "os"

// Sync closes an open directory. Windows syncs none: it refuses to, and keeps names in the file system's journal.
func Sync(d *os.File) error { return d.Close() }
