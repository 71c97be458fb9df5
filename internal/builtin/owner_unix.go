//go:build unix

package builtin

import (
	"io/fs"
	"os"
	"syscall"
)

// owner is to whom something belongs; a part that is negative is as it comes.
type owner struct{ user, group int }

// ownerOf is to whom an existing file belongs.
func ownerOf(info fs.FileInfo) owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{int(st.Uid), int(st.Gid)}
	}
	return owner{-1, -1}
}

// maker is to whom something new in a directory of the workspace belongs. What a worker makes that is root belongs to
// the workspace's owner, as what commands make: to those it would be another user's, which they cannot write.
func (w *workspace) maker(dir string) owner {
	as := owner{-1, -1}
	if os.Geteuid() != 0 {
		return as
	}
	if top, err := w.root.Stat("."); err == nil {
		as = ownerOf(top)
	}
	if in, err := w.root.Stat(dir); err == nil && in.Mode()&fs.ModeSetgid != 0 { // it gives its group to what is in it
		as.group = -1
	}
	return as
}

// give gives an open file to an owner, as far as this process may and the file system can. Otherwise the file is the
// worker's own, as with any program that saves files by a rename.
func (o owner) give(f *os.File) {
	if o != (owner{-1, -1}) && f.Chown(o.user, o.group) != nil {
		_ = f.Chown(-1, o.group) // at least the group, where the worker is in it
	}
}

// giveDir is give for a new directory. No link is followed that somebody puts in its place.
func (o owner) giveDir(root *os.Root, name string) {
	if o != (owner{-1, -1}) {
		_ = root.Lchown(name, o.user, o.group)
	}
}
