package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	held "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// lease is a workspace that is held for one run: what is needed to mount it, and what was created in it to protect it.
type lease struct {
	leased
	from  *held.Root
	own   bool // from was opened for this run
	root  *os.Root
	lock  *os.File
	owner [2]int // uid and gid of the directory
	// record is what must be undone at the end. It is stored in the workspace while the command runs.
	record
	recorded string // where it is stored
	// appearedAt is the place for which the watch has ended the command; empty if it has not.
	appearedAt string
}

// busyPoll is how often the lock of a busy workspace is tried again.
const busyPoll = 5 * time.Millisecond

// acquire prepares a workspace. A writable one is held exclusively, by a lock that the kernel releases if we die:
// otherwise another run would remove what this run has created.
func acquire(ctx context.Context, w *Workspace) (l *lease, err error) {
	l = &lease{from: w.Root}
	defer func() {
		if err != nil {
			_, undone := l.release()
			err = errors.Join(err, undone)
		}
	}()
	if l.from == nil {
		if l.from, err = held.Hold(w.Dir, nil); err != nil {
			return l, fmt.Errorf("%w: the workspace: %w", ErrViolation, err)
		}
		l.own = true
	}
	l.leased = leased{dir: l.from.Dir(), writable: w.Writable}
	if err := l.from.Check(); err != nil {
		return l, fmt.Errorf("%w: %w", ErrViolation, err)
	}
	if l.root, err = l.from.Open(); err != nil {
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
	if err := l.recover(ctx); err != nil { // the holder before us may have died
		return l, err
	}
	if err := l.from.Check(); err != nil { // or may have left what it could not remove
		return l, fmt.Errorf("%w: %w", ErrViolation, err)
	}
	if err := l.makeProtection(); err != nil {
		return l, err
	}
	return l, l.hide(w.Hidden)
}

// makeProtection finds what must be protected, and creates what is missing.
func (l *lease) makeProtection() error {
	set, err := l.from.Protection()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	type found struct {
		protect.Place
		parents []string
	}
	var there, missing []found
	repository := l.isRepository()
	blocked := map[string]bool{} // missing places that are created: nothing below them can appear
	for _, p := range set.Places() {
		if p.Path == protect.MarkDir && !repository { // the record will be there
			continue
		}
		info, gone, err := l.walkTo(p.Path)
		if err != nil {
			return err
		}
		parents := parentsOf(p.Path)
		switch {
		case info != nil:
			there = append(there, found{p, parents})
		case slices.ContainsFunc(parents, func(d string) bool { return blocked[d] }):
		case p.Make == "" || gone != p.Path: // what it would lie in is missing too
			l.Absent = append(l.Absent, p.Path)
		default:
			blocked[p.Path] = true
			l.Made = append(l.Made, p)
			missing = append(missing, found{p, parents})
		}
	}
	if err := l.writeRecord(); err != nil {
		return fmt.Errorf("%w: note in the workspace what is to be undone after the command: %w", ErrViolation, err)
	}
	for _, p := range l.Made {
		if err := l.make(p); err != nil {
			return err
		}
	}
	onWay := map[string]bool{}
	mark := found{Place: protect.Place{Path: path.Dir(l.recorded)}}
	mark.parents = parentsOf(mark.Path)
	all := slices.Concat(there, missing, []found{mark})
	slices.SortStableFunc(all, func(a, b found) int { return strings.Compare(a.Path, b.Path) })
	for _, p := range all {
		if slices.ContainsFunc(l.protect, func(q stage.Protected) bool {
			return !q.Writable && (q.Path == p.Path || strings.HasPrefix(p.Path, q.Path+"/"))
		}) {
			continue // it is inside a read-only place
		}
		for _, dir := range p.parents {
			if !onWay[dir] {
				onWay[dir] = true
				l.protect = append(l.protect, stage.Protected{Path: dir, Writable: true})
			}
		}
		l.protect = append(l.protect, stage.Protected{Path: p.Path})
	}
	return nil
}

// walkTo walks to a protected path. It returns what is there, or the first missing name on the way. A symbolic link
// cannot be protected: its target may be written to by another name.
func (l *lease) walkTo(p string) (info fs.FileInfo, missing string, err error) {
	for _, at := range append(parentsOf(p), p) {
		info, err = l.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil, at, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: look at %s of the workspace: %w", ErrViolation, at, err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return nil, "", fmt.Errorf("%w: %s of the workspace is %s, and so nobody can protect what lies behind "+
				"it; make it a plain file or directory",
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

func (l *lease) make(p protect.Place) error {
	var err error
	if p.Make == protect.Directory {
		err = l.root.Mkdir(p.Path, 0o755)
	} else {
		var f *os.File
		if f, err = l.root.OpenFile(p.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			_, err = f.WriteString(p.Content)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s of the workspace is missing and can't be made, so that the command could be the "+
			"first to make it: %w", ErrViolation, p.Path, err)
	}
	return nil
}

// holdsGit reports whether a placeholder prevents the command from making the workspace a repository.
func (l *lease) holdsGit() bool {
	return slices.ContainsFunc(l.Made, func(p protect.Place) bool { return p.Path == ".git" })
}

// errTrespassed ends a command that has created a protected place.
var errTrespassed = errors.New("it made something in the workspace that is protected")

// watchPoll is how often the watch checks for places that must not appear.
const watchPoll = 25 * time.Millisecond

// watch returns a context that ends when a place appears that must not: the command is then ended before it can use it.
// Call stop before the release.
func (l *lease) watch(ctx context.Context) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if len(l.Absent) == 0 {
		return ctx, func() { cancel(nil) }
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(watchPoll)
		defer every.Stop()
		for {
			select {
			case <-done:
				return
			case <-every.C:
			}
			for _, p := range l.Absent {
				var st unix.Stat_t
				if unix.Fstatat(int(l.lock.Fd()), p, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
					l.appearedAt = p
					cancel(errTrespassed)
					return
				}
			}
		}
	}()
	return ctx, func() {
		close(done)
		<-ended
		cancel(nil)
	}
}

// release removes what the command has created where nothing may appear, and returns the names. It also removes what
// was created for the run. If something cannot be removed, the workspace goes into quarantine. Then the lock is
// released.
func (l *lease) release() (trespasses []string, err error) {
	if l.recorded != "" {
		trespasses, err = l.undo()
	}
	if l.fd != 0 {
		err = errors.Join(err, syscall.Close(l.fd))
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close()) // this releases the lock
	}
	if l.root != nil {
		err = errors.Join(err, l.root.Close())
	}
	if l.own && l.from != nil {
		err = errors.Join(err, l.from.Close())
	}
	return trespasses, err
}

// trespassed says, for the model, what was created and what became of it.
func trespassed(names []string, undone error) string {
	made := "it made " + strings.Join(names, ", ") + ", which is protected"
	if undone == nil {
		return made + " and was removed"
	}
	return made + ", and not all could be removed: the workspace is in quarantine, and nothing runs in it until an " +
		"operator has looked at it"
}
