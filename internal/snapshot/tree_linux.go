package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/place"
)

// open opens a name of a directory. It follows no symbolic link, and waits for nobody at a pipe.
func open(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, mode)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

func openDir(dir *os.File, name string) (*os.File, error) {
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// openTop opens the directory of a workspace.
func openTop(root *place.Root) (top *os.File, err error) {
	held, err := root.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	return held.Open(".")
}

func stat(dir *os.File, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return &st, nil
}

func statOf(f *os.File) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return &st, nil
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// inode names a file among all of the machine.
func inode(st *unix.Stat_t) string { return fmt.Sprintf("%d:%d", uint64(st.Dev), st.Ino) }

// permissions are what a mode has beside the kind.
const permissions uint32 = 0o7777

// entryOf is what a listing says of a name, without content and target.
func entryOf(p string, st *unix.Stat_t) entry {
	e := entry{Path: []byte(p), Mode: uint32(st.Mode) & permissions, UID: st.Uid, GID: st.Gid,
		Changed: st.Mtim.Nano(), Touched: st.Ctim.Nano(), Inode: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = aDir
	case unix.S_IFREG:
		e.Kind, e.Size = aFile, st.Size
		if st.Nlink > 1 {
			e.Shared = inode(st)
		}
	case unix.S_IFLNK:
		e.Kind = aLink
	case unix.S_IFIFO:
		e.Kind = aPipe
	case unix.S_IFSOCK:
		e.Kind = aSocket
	default:
		e.Kind = aDevice
	}
	return e
}

// maxTargetBytes is how long the target of a symbolic link can be on Linux.
const maxTargetBytes = 4_096

func target(dir *os.File, name string) ([]byte, error) {
	text := make([]byte, maxTargetBytes+1)
	n, err := unix.Readlinkat(int(dir.Fd()), name, text)
	if err == nil && n > maxTargetBytes {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return nil, &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return text[:n], nil
}

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 1_024

// each calls see for the names of a directory, as they are read.
func each(dir *os.File, see func(names []string) error) error {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		if len(names) > 0 {
			if err := see(names); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var (
	errMany = errors.New("the workspace has too many names")
	errDeep = errors.New("the workspace has directories that lie too deep in one another")
)

// walker lists a workspace.
type walker struct {
	ctx    context.Context
	limits Limits
	// file is called for each regular file before its entry is listed. Nil: not called.
	file func(dir *os.File, name string, e *entry) error
	out  []entry
}

// walk lists a workspace: a directory before what is in it, names in their order.
func (w *walker) walk(top *os.File) error {
	st, err := statOf(top)
	if err != nil {
		return err
	}
	w.out = append(w.out, entryOf(atTheTop, st))
	return w.dir(top, atTheTop, 1)
}

func (w *walker) dir(dir *os.File, at string, depth int) error {
	if depth > w.limits.Depth {
		return fmt.Errorf("%w: %q", errDeep, at)
	}
	var names []string
	err := each(dir, func(some []string) error {
		if names = append(names, some...); len(names)+len(w.out) > w.limits.Entries {
			return errMany
		}
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %q: %w", at, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		p := join(at, name)
		if own(p) {
			continue
		}
		if err := w.name(dir, name, p, depth); err != nil && !errors.Is(err, unix.ENOENT) { // it is gone meanwhile
			return err
		}
	}
	return nil
}

func (w *walker) name(dir *os.File, name, p string, depth int) (err error) {
	st, err := stat(dir, name)
	if err != nil {
		return err
	}
	e := entryOf(p, st)
	switch e.Kind {
	case aLink:
		if e.Target, err = target(dir, name); err != nil {
			return err
		}
	case aFile:
		if w.file != nil {
			if err := w.file(dir, name, &e); err != nil {
				return err
			}
		}
	case aDir:
		below, err := openDir(dir, name)
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		w.out = append(w.out, e)
		return errors.Join(w.dir(below, p, depth+1), below.Close())
	}
	w.out = append(w.out, e)
	if len(w.out) > w.limits.Entries {
		return errMany
	}
	return nil
}
