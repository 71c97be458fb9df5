//go:build unix

package dispatchercmd

import (
	"io/fs"
	"os"
	"syscall"
)

// ours reports whether a file is that of this process's user.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
