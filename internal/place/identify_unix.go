//go:build unix

package place

import (
	"io/fs"
	"os"
	"syscall"
)

// Identify says which file it is, and how many names it has.
func Identify(info fs.FileInfo) (id ID, names uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, 0
	}
	return ID{uint64(st.Dev), st.Ino}, uint64(st.Nlink) //nolint:unconvert // the types differ between systems
}

// foreign reports whether a file is another user's.
func foreign(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}
