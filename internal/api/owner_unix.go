//go:build unix

package api

import (
	"io/fs"
	"os"
	"syscall"
)

// own reports whether a file belongs to the user of this process.
func own(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int64(s.Uid) == int64(os.Geteuid())
}
