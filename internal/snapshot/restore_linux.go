package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/place"
)

// Restore sets a workspace back to what it was before a group. A workspace that others have changed since is left as it
// is, unless the wish says otherwise. A restore that was broken off is to be run again: until then the workspace is
// partly the one and partly the other.
func (s *Store) Restore(ctx context.Context, root *place.Root, w Wish) (report Report, err error) {
	top, home, leave, err := s.enter(ctx, root, &w.Key)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	l, err := readListing(filepath.Join(home, w.listingName(before)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return report, notNow("this worker sees no snapshot of the workspace before group %d of batch %s: it was taken "+
			"where this worker's directory of snapshots is not, or is no longer kept", w.Group+1, w.Batch)
	case err != nil:
		return report, err
	}
	if err := complete(home, l); err != nil {
		return report, err
	}
	if !w.Force {
		if err := s.mayRestore(ctx, top, home, &w); err != nil {
			return report, err
		}
	}
	mark, acted := filepath.Join(home, w.listingName(underway)), false
	unmark := asBefore(home, mark)
	err = keep(home, mark, &listing{head: head{Key: w.Key, Begun: time.Now(), Ticket: w.Ticket}})
	if err != nil {
		return report, err
	}
	w.Act = noting(w.Act, &acted)
	r := newRestoring(ctx, top, home, l, &w)
	r.partly = failpoint.RestorePartly
	if err := r.run(); err != nil {
		if !acted {
			return r.report, errors.Join(err, unmark())
		}
		return r.report, fmt.Errorf("the workspace is set back in part only; undo again: %w", err)
	}
	if err := unix.Syncfs(int(top.Fd())); err != nil {
		return r.report, err
	}
	if err := s.note(ctx, top, home, &w.Key, restored, w.Act); err != nil {
		return r.report, err
	}
	return r.report, os.Remove(mark)
}

// mayRestore is the refusal where a restore needs force: others have changed the workspace, or an earlier restore was
// broken off and they may have changed it since.
func (s *Store) mayRestore(ctx context.Context, top *os.File, home string, w *Wish) error {
	begun, err := readHead(filepath.Join(home, w.listingName(underway)))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && time.Since(begun.Begun) >= s.keep:
		return s.unchanged(ctx, top, home, w)
	case err != nil:
		return err
	case w.Ticket != 0 && begun.Ticket == w.Ticket && begun.Key.Group == w.Group:
		return nil
	}
	return w.refusal(nil, 0, "an earlier undo of the batch was broken off, and others may have changed something since")
}

// complete reports content that is missing in the store: nothing is changed then.
func complete(home string, l *listing) error {
	for i := range l.entries {
		if e := &l.entries[i]; e.Kind == aFile && !has(home, e.Sum, e.Size) {
			return fmt.Errorf("the store of snapshots is damaged: the content of %q is missing", e.Path)
		}
	}
	return nil
}

// shownPaths is how many paths a refusal names.
const shownPaths = 5

// unchanged reports a workspace in which others have changed something behind the group, or between it and later ones
// of its batch.
func (s *Store) unchanged(ctx context.Context, top *os.File, home string, w *Wish) error {
	now, err := s.now(ctx, top)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return w.refusal(nil, 0, "what is in it now cannot be compared with what the batch left")
	}
	read := func(kind string, group int) (*listing, error) {
		k := Key{Batch: w.Batch, Group: group}
		l, err := readListing(filepath.Join(home, k.listingName(kind)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, w.refusal(nil, 0, fmt.Sprintf("nobody knows what group %d has changed", group+1))
		}
		return l, err
	}
	behind, err := readListing(filepath.Join(home, w.listingName(restored)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	groups := w.Groups[max(0, slices.Index(w.Groups, w.Group)):]
	for n, g := range groups {
		next, last := now, n+1 == len(groups)
		then, err := read(after, g)
		if last && behind != nil && (err != nil || behind.Begun.After(then.Begun)) {
			then, err = behind, nil // the batch was undone since
		}
		if err == nil && !last {
			next, err = read(before, groups[n+1])
		}
		if err == nil {
			err = w.betweenRuns(home, g)
		}
		if err != nil {
			return err
		}
		if paths, all := differences(then, next, shownPaths, w.Hidden); all > 0 {
			return w.refusal(paths, all, "")
		}
	}
	return nil
}

// betweenRuns is the refusal where others have changed the workspace between two runs of a group.
func (w *Wish) betweenRuns(home string, group int) error {
	k := Key{Batch: w.Batch, Group: group}
	_, err := os.Lstat(filepath.Join(home, k.listingName(between)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return w.refusal(nil, 0, fmt.Sprintf("others have changed it while group %d waited for a person", group+1))
}

// refusal says why a workspace is not set back.
func (w *Wish) refusal(paths []string, all int, why string) error {
	if why == "" {
		if why = "others have changed 1 name since"; all != 1 {
			why = fmt.Sprintf("others have changed %d names since", all)
		}
		if len(paths) > 0 {
			why += fmt.Sprintf(", such as %q", paths)
		}
	}
	if len(w.Later) > 0 {
		why += "; since then ran in the workspace: " + strings.Join(w.Later, ", ")
	}
	return notNow("the workspace was not set back: %s. With force that is lost", why)
}

// restoring is one restore under way.
type restoring struct {
	ctx    context.Context
	top    *os.File
	home   string
	wish   *Wish
	report Report
	total  int
	// below are the entries of each directory, by its path.
	below map[string][]*entry
	// holders are the files of the listing that each inode may have, and leaders the first name of each file that has
	// several.
	holders, leaders map[string]string
	deep             []string // names at the top that are to be removed
	// apart says that a file with several names is not changed in place: the listing may not have the other names.
	apart bool
	// opened are the modes that directories had before the worker was let in.
	opened map[string]uint32
	// partly is the failpoint behind the first change; empty: none.
	partly failpoint.Name
}

func newRestoring(ctx context.Context, top *os.File, home string, l *listing, w *Wish) *restoring {
	r := &restoring{ctx: ctx, top: top, home: home, wish: w, total: len(l.entries), below: map[string][]*entry{},
		holders: map[string]string{}, leaders: map[string]string{}, opened: map[string]uint32{}}
	for i := range l.entries {
		p := string(l.entries[i].Path)
		if p == atTheTop {
			r.below["/"] = []*entry{&l.entries[i]} // which is no path
			continue
		}
		dir := atTheTop
		if at := strings.LastIndexByte(p, '/'); at >= 0 {
			dir = p[:at]
		}
		r.below[dir] = append(r.below[dir], &l.entries[i])
	}
	return r
}

// run sets everything back. The workspace's own directory gets its mode last: until then the worker may change its
// names.
func (r *restoring) run() error {
	if err := r.letIn(r.top, atTheTop); err != nil {
		return err
	}
	if err := r.dir(r.top, atTheTop); err != nil {
		return err
	}
	if err := r.removeDeep(); err != nil {
		return err
	}
	return r.attributes(r.top, r.below["/"][0])
}

// act comes before each change.
func (r *restoring) act() error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.wish.Act != nil {
		if err := r.wish.Act(); err != nil {
			return err
		}
	}
	if r.partly != "" {
		failpoint.HitIf(r.report.Removed+r.report.Written > 0, r.partly)
	}
	return nil
}

// progressEvery is after how many names a restore tells how far it is.
const progressEvery = 256

func (r *restoring) did(n *int) {
	if *n++; r.wish.Progress != nil && (r.report.Written+r.report.Unchanged)%progressEvery == 0 {
		r.wish.Progress(float64(r.report.Written+r.report.Unchanged) / float64(max(1, r.total)))
	}
}

// dir sets a directory back: first what was not there goes, which makes room, and then comes what was.
func (r *restoring) dir(dir *os.File, at string) error {
	wanted := make(map[string]*entry, len(r.below[at]))
	for _, e := range r.below[at] {
		wanted[e.name()] = e
	}
	if err := r.clear(dir, at, func(name string) bool { return wanted[name] != nil }); err != nil {
		return err
	}
	for _, e := range r.below[at] {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if err := r.one(dir, e); err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
	}
	return nil
}

func (e *entry) name() string {
	p := string(e.Path)
	return p[strings.LastIndexByte(p, '/')+1:]
}

// clear removes the names of a directory that nobody wants.
func (r *restoring) clear(dir *os.File, at string, wants func(string) bool) error {
	for again := true; again; { // names may be passed over while others are removed
		again = false
		err := each(dir, func(names []string) error {
			for _, name := range names {
				p := join(at, name)
				if wants(name) || own(p) {
					continue
				}
				gone, err := r.remove(dir, name, p, 1)
				if err != nil {
					return fmt.Errorf("remove %q: %w", p, err)
				}
				again = again || gone
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := r.removeDeep(); err != nil {
			return err
		}
	}
	return nil
}

// removeDeep removes what was moved to the top because it lay too deep.
func (r *restoring) removeDeep() error {
	for len(r.deep) > 0 {
		name := r.deep[0]
		if _, err := r.remove(r.top, name, name, 1); err != nil {
			return fmt.Errorf("remove %q: %w", name, err)
		}
		r.deep = r.deep[1:]
	}
	return nil
}

// passing begins the names that something has for a moment, and passed ends them.
const (
	passing = ".toolyard-"
	passed  = ".tmp"
)

// manyOpen is how many directories are held open while what lies in one another is removed. What is deeper goes to the
// top, and is removed from there.
const manyOpen = 128

// remove removes a name with all that is below it. It reports false if something of Toolyard's own is left there.
func (r *restoring) remove(dir *os.File, name, p string, depth int) (gone bool, err error) {
	st, err := stat(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := r.act(); err != nil {
		return false, err
	}
	if !isDir(st) {
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
			return false, err
		}
		r.did(&r.report.Removed)
		return true, nil
	}
	if depth > manyOpen {
		if st.Mode&ownersAll != ownersAll { // to lie elsewhere it is written to
			if err := r.unlock(dir, name, st); err != nil {
				return false, err
			}
		}
		if err := r.letIn(r.top, atTheTop); err != nil {
			return false, err
		}
		top := passing + rand.Text() + passed
		r.deep = append(r.deep, top)
		return true, unix.Renameat(int(dir.Fd()), name, int(r.top.Fd()), top)
	}
	below, err := r.enter(dir, name, st)
	if err != nil {
		return false, err
	}
	gone = true
	for again := true; again && err == nil; {
		again = false
		err = each(below, func(names []string) error {
			for _, name := range names {
				if own(join(p, name)) {
					gone = false
					continue
				}
				all, err := r.remove(below, name, join(p, name), depth+1)
				if err != nil {
					return err
				}
				gone, again = gone && all, again || all
			}
			return nil
		})
	}
	if err = errors.Join(err, below.Close()); err != nil || !gone {
		return false, err
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return false, err
	}
	r.did(&r.report.Removed)
	return true, nil
}

// ownersAll is what the owner of a directory needs to change what is in it.
const ownersAll uint32 = 0o700

// enter opens a directory in which names are to be changed. It gets its own mode when that is done.
func (r *restoring) enter(dir *os.File, name string, st *unix.Stat_t) (*os.File, error) {
	if st.Mode&ownersAll != ownersAll {
		if err := r.unlock(dir, name, st); err != nil {
			return nil, err
		}
	}
	return openDir(dir, name)
}

// unlock lets the worker into a directory of its own. A path would follow a link that somebody puts there meanwhile, so
// the directory is opened first, which needs no right to it. One of another user stays as it is, and so does what is in
// it where the worker may not write there.
func (r *restoring) unlock(dir *os.File, name string, st *unix.Stat_t) error {
	held, err := open(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), fs.FileMode(st.Mode&0o777|ownersAll))
	if errors.Is(err, unix.EPERM) {
		err = nil
	}
	return errors.Join(err, held.Close())
}

// one sets one name back.
func (r *restoring) one(dir *os.File, e *entry) error {
	name := e.name()
	st, err := stat(dir, name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err == nil {
		if was := entryOf(string(e.Path), st); was.Kind != e.Kind {
			if gone, err := r.remove(dir, name, string(e.Path), 1); err != nil || !gone {
				return errors.Join(err, fmt.Errorf("something else of this name cannot be removed"))
			}
			st = nil
		}
	} else {
		st = nil
	}
	switch e.Kind {
	case aDir:
		return r.subdir(dir, name, e, st)
	case aFile:
		return r.file(dir, name, e, st)
	case aLink:
		return r.link(dir, name, e, st)
	case aPipe:
		return r.pipe(dir, name, e, st)
	}
	if st == nil {
		r.report.Left = append(r.report.Left, string(e.Path))
		return nil
	}
	r.did(&r.report.Unchanged)
	return nil
}

func (r *restoring) subdir(dir *os.File, name string, e *entry, st *unix.Stat_t) (err error) {
	count := &r.report.Unchanged
	if st == nil {
		if err := r.act(); err != nil {
			return err
		}
		if err := unix.Mkdirat(int(dir.Fd()), name, ownersAll); err != nil {
			return err
		}
		if st, err = stat(dir, name); err != nil {
			return err
		}
		count = &r.report.Written
	}
	below, err := r.enter(dir, name, st)
	if err != nil {
		return err
	}
	if err = r.dir(below, string(e.Path)); err == nil {
		err = r.attributes(below, e)
	}
	r.did(count)
	return errors.Join(err, below.Close())
}

// file sets a file back. What has the content keeps its inode, and with it what no listing has.
func (r *restoring) file(dir *os.File, name string, e *entry, st *unix.Stat_t) error {
	id := string(e.Path) // of the file among those of the listing
	if e.Shared != "" {
		id = "inode " + e.Shared
	}
	if leader, ok := r.leaders[id]; ok {
		return r.sameAs(dir, name, leader, e, st)
	}
	if e.Shared != "" {
		r.leaders[id] = string(e.Path)
	}
	if st != nil && !(r.apart && st.Nlink > 1) {
		if holder, taken := r.holders[inode(st)]; !taken || holder == id {
			kept, err := r.keepFile(dir, name, e)
			if err != nil {
				return err
			}
			if kept {
				r.holders[inode(st)] = id
				r.did(&r.report.Unchanged)
				return nil
			}
		}
	}
	return r.write(dir, name, e, id)
}

// keepFile reports whether a file has the content that it should have, and sets its attributes back then.
func (r *restoring) keepFile(dir *os.File, name string, e *entry) (kept bool, err error) {
	f, err := open(dir, name, unix.O_RDONLY, 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
		return false, nil // it is written anew
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := statOf(f)
	if err != nil || st.Size != e.Size || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, err
	}
	sum, _, err := sumOf(r.ctx, f, nil)
	if err != nil || sum != e.Sum {
		return false, err
	}
	owners := r.report.Owners
	if err = r.attributes(f, e); errors.Is(err, unix.EPERM) { // it is another user's, and is written anew
		r.report.Owners = owners
		return false, nil
	}
	return err == nil, err
}

// place makes something under a name of its own, and gives it its name then. Nobody sees half of it.
func (r *restoring) place(dir *os.File, name string, make func(temp string) error) error {
	if err := r.act(); err != nil {
		return err
	}
	temp := passing + rand.Text() + passed // the next restore removes it if this one is killed
	err := make(temp)
	if err == nil {
		if err = r.act(); err == nil {
			err = unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), name)
		}
	}
	if err != nil {
		if left := unix.Unlinkat(int(dir.Fd()), temp, 0); !errors.Is(left, unix.ENOENT) {
			err = errors.Join(err, left)
		}
		return err
	}
	r.did(&r.report.Written)
	return nil
}

// write makes a file anew.
func (r *restoring) write(dir *os.File, name string, e *entry, id string) error {
	return r.place(dir, name, func(temp string) (err error) {
		from, err := os.Open(objectFile(r.home, e.Sum))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, from.Close()) }()
		to, err := open(dir, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		sum, size, err := copyTo(r.ctx, to, from)
		if err != nil {
			return err
		}
		if sum != e.Sum {
			return fmt.Errorf("the store of snapshots is damaged: it has another content")
		}
		r.report.Bytes += size
		st, err := statOf(to)
		if err != nil {
			return err
		}
		r.holders[inode(st)] = id
		return r.attributes(to, e)
	})
}

// sameAs makes a name another one of a file that is set back already.
func (r *restoring) sameAs(dir *os.File, name, leader string, e *entry, st *unix.Stat_t) error {
	from, first, err := r.parent(leader)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	is, err := stat(from, first)
	if err != nil {
		return err
	}
	if st != nil && inode(st) == inode(is) {
		r.did(&r.report.Unchanged)
		return nil
	}
	return r.place(dir, name, func(temp string) error {
		return unix.Linkat(int(from.Fd()), first, int(dir.Fd()), temp, 0)
	})
}

// parent opens the directory of a path, one name at a time.
func (r *restoring) parent(p string) (dir *os.File, name string, err error) {
	names := strings.Split(p, "/")
	if dir, err = openDir(r.top, "."); err != nil {
		return nil, "", err
	}
	for _, n := range names[:len(names)-1] {
		next, err := openDir(dir, n)
		if err = errors.Join(err, dir.Close()); err != nil {
			return nil, "", err
		}
		dir = next
	}
	return dir, names[len(names)-1], nil
}

// link sets a symbolic link back.
func (r *restoring) link(dir *os.File, name string, e *entry, st *unix.Stat_t) error {
	if st != nil {
		to, err := target(dir, name)
		if err != nil {
			return err
		}
		if was := entryOf(string(e.Path), st); string(to) == string(e.Target) && was.UID == e.UID && was.GID == e.GID &&
			was.Changed == e.Changed {
			r.did(&r.report.Unchanged)
			return nil
		}
	}
	return r.place(dir, name, func(temp string) error {
		if err := unix.Symlinkat(string(e.Target), int(dir.Fd()), temp); err != nil {
			return err
		}
		return r.attributesOf(dir, temp, e)
	})
}

// pipe sets a named pipe back. Nobody opens it: that would wait for the other end, or be taken for it.
func (r *restoring) pipe(dir *os.File, name string, e *entry, st *unix.Stat_t) error {
	if st != nil {
		if was := entryOf(string(e.Path), st); was.Mode == e.Mode && was.UID == e.UID && was.GID == e.GID {
			r.did(&r.report.Unchanged)
			return nil
		}
	}
	return r.place(dir, name, func(temp string) error {
		if err := unix.Mknodat(int(dir.Fd()), temp, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		held, err := open(dir, temp, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		if err := r.attributesOf(dir, temp, e); err != nil {
			return errors.Join(err, held.Close())
		}
		// The mode that was asked for may have lost bits to the process's own mask.
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", held.Fd()), e.Mode)
		return errors.Join(err, held.Close())
	})
}
