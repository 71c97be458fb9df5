package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// lease is a workspace that is held for one run: what it needs to be mounted, and what was put into it to protect it.
type lease struct {
	leased
	root  *os.Root
	lock  *os.File
	owner [2]int // uid and gid of the directory
	// made are the protected paths that were missing and stand there for the run, watched those that must not appear.
	made, watched []string
}

// busyPoll is how often a workspace that is in use is asked for again.
const busyPoll = 5 * time.Millisecond

// take makes a workspace ready. A writable one is held alone, by a lock that the kernel gives back if we die: what is put
// into it for one run would be taken from under another.
func take(ctx context.Context, w *Workspace) (l *lease, err error) {
	dir, err := filepath.EvalSymlinks(w.Dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
	}
	l = &lease{leased: leased{dir: dir, writable: w.Writable}}
	defer func() {
		if err != nil {
			_, undone := l.release()
			err = errors.Join(err, undone)
		}
	}()
	if l.root, err = os.OpenRoot(dir); err != nil {
		return l, fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
	}
	if l.lock, err = l.root.Open("."); err != nil {
		return l, fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(l.lock.Fd()), &st); err != nil {
		return l, fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
	}
	l.dev, l.ino, l.owner = st.Dev, st.Ino, [2]int{int(st.Uid), int(st.Gid)}
	if !w.Writable {
		return l, l.hide(w.Hidden)
	}
	for {
		err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return l, fmt.Errorf("%w: lock the workspace: %w", ErrViolation, err)
		}
		select {
		case <-ctx.Done():
			return l, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		case <-time.After(busyPoll):
		}
	}
	if err := l.guard(); err != nil {
		return l, err
	}
	return l, l.hide(w.Hidden)
}

// guard finds what is to be protected, and makes what is missing.
func (l *lease) guard() error {
	onWay := map[string]bool{}
	for _, p := range protections {
		info, missing, err := l.look(p.Path)
		if err != nil {
			return err
		}
		parents := parentsOf(p.Path)
		switch {
		case missing == "" && info != nil: // it is there
			leftover := p.Make != "" && l.isOurs(p, info)
			if p.Path == ".git" && info.IsDir() && !leftover {
				parents = append(parents, p.Path) // what is protected lies in it
				info = nil
			}
			if leftover {
				l.made = append(l.made, p.Path)
			}
		case missing != p.Path || slices.Contains(l.made, filepath.Dir(p.Path)): // what it would lie in is missing, or ours
			continue
		case p.Make == "":
			l.watched = append(l.watched, p.Path)
			continue
		default:
			if err := l.make(p); err != nil {
				return err
			}
		}
		for _, dir := range parents {
			if !onWay[dir] {
				onWay[dir] = true
				l.protect = append(l.protect, stage.Protected{Path: dir, Writable: true})
			}
		}
		if !onWay[p.Path] {
			l.protect = append(l.protect, stage.Protected{Path: p.Path})
		}
	}
	return nil
}

func parentsOf(p string) (dirs []string) {
	for i, c := range p {
		if c == '/' {
			dirs = append(dirs, p[:i])
		}
	}
	return dirs
}

// look walks to a protected path. It returns what is there, or the first name on the way that is missing. A symbolic link
// can't be protected: where it leads may be written by another name.
func (l *lease) look(p string) (info fs.FileInfo, missing string, err error) {
	for _, at := range append(parentsOf(p), p) {
		info, err = l.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, at, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: look at %s of the workspace: %w", ErrViolation, at, err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return nil, "", fmt.Errorf("%w: %s of the workspace is %s, and so nobody can protect what lies behind it; make it a plain file or directory",
				ErrViolation, at, kind(info.Mode()))
		}
	}
	return info, "", nil
}

func kind(m fs.FileMode) string {
	if m&fs.ModeSymlink != 0 {
		return "a symbolic link"
	}
	return "no plain file"
}

// isOurs recognises what a run put there whose worker died before it could take it away.
func (l *lease) isOurs(p protection, info fs.FileInfo) bool {
	switch {
	case p.Make == makeDir && info.IsDir() && p.Path == ".git":
		entries, err := fs.ReadDir(l.root.FS(), p.Path)
		return err == nil && len(entries) == 0
	case p.Make == makeFile && p.Content != "" && info.Mode().IsRegular() && info.Size() == int64(len(p.Content)):
		content, err := l.root.ReadFile(p.Path)
		return err == nil && string(content) == p.Content
	}
	return false
}

func (l *lease) make(p protection) error {
	var err error
	if p.Make == makeDir {
		err = l.root.Mkdir(p.Path, 0o755)
	} else {
		var f *os.File
		if f, err = l.root.OpenFile(p.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			_, err = f.WriteString(p.Content)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s of the workspace is missing and can't be made, so that the command could be the first to make it: %w", ErrViolation, p.Path, err)
	}
	l.made = append(l.made, p.Path)
	return nil
}

// holdsGit reports whether a placeholder keeps the command from making the workspace a repository.
func (l *lease) holdsGit() bool { return slices.Contains(l.made, ".git") }

// release takes away what was put into the workspace, and what the command has put where nothing may appear, whose names
// it returns. It gives the workspace back.
func (l *lease) release() (trespasses []string, err error) {
	if l.root == nil {
		return nil, nil
	}
	for _, p := range slices.Backward(l.made) {
		if gone := l.root.Remove(p); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("take %s out of the workspace: %w", p, gone))
		}
	}
	for _, p := range l.watched {
		if _, missing := l.root.Lstat(p); missing != nil {
			continue
		}
		trespasses = append(trespasses, p)
		if gone := l.root.RemoveAll(p); gone != nil {
			err = errors.Join(err, fmt.Errorf("take %s out of the workspace: %w", p, gone))
		}
	}
	if l.fd != 0 {
		err = errors.Join(err, syscall.Close(l.fd))
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close()) // with it the lock
	}
	return trespasses, errors.Join(err, l.root.Close())
}

// trespassed says what was made, for the model.
func trespassed(names []string) string {
	return "it made " + strings.Join(names, ", ") + ", which is protected and was removed"
}
