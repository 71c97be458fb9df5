//go:build unix

package durable

import (
	"errors"
	"os"
)

// Sync syncs the names of an open directory to the disk and closes it.
func Sync(d *os.File) error { return errors.Join(d.Sync(), d.Close()) }
