package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
)

// Commit makes the changes of an overlay in the workspace. Where others have changed the same names since, nothing is
// changed, unless the wish says otherwise. A commit that was broken off is to be run again, and goes on then: what it
// changes is stored before the first change.
func (s *Store) Commit(ctx context.Context, root *place.Root, w Commit) (o *toolyard.Overlay, err error) {
	top, home, leave, err := s.enter(ctx, root, &w.Key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if as, err := s.over(home, &w.Key); err != nil || as.As == committed {
		w.kept(as.Kept)
		return as.Changes, err
	}
	c, err := s.openCopy(ctx, home, root, &w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.root.Check(); err != nil { // what it is in quarantine for would be in the workspace then
		return nil, err
	}
	was := make(map[string]*entry, len(c.was.entries))
	for i := range c.was.entries {
		was[string(c.was.entries[i].Path)] = &c.was.entries[i]
	}
	file := filepath.Join(home, w.listingName(commit))
	l, err := readListing(file)
	partly := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		l, err = s.toCommit(c, home, &w.Key)
	}
	if err != nil {
		return nil, err
	}
	all := planned(l, was)
	o = summary(all)
	if err := complete(home, l); err != nil {
		return nil, err
	}
	if err := c.unguarded(root, all, w.Hidden); err != nil {
		return nil, err
	}
	if !w.Force {
		if err := s.free(ctx, top, all, partly, &w); err != nil {
			return nil, err
		}
	}
	if !partly {
		if err := keep(home, file, l); err != nil {
			return nil, err
		}
	}
	acted := false
	r := newRestoring(ctx, top, home, &listing{}, &Wish{Key: w.Key, Act: noting(w.Act, &acted), Progress: w.Progress})
	r.apart, r.partly, r.total = true, failpoint.CommitPartly, len(all)
	if err := r.apply(all, was, w.Force, partly); err != nil {
		if !partly && !acted {
			return nil, errors.Join(err, os.Remove(file)) // no commit has begun
		}
		return nil, fmt.Errorf("the overlay is committed in part only; commit it again: %w", err)
	}
	if partly {
		if err := r.sweep(all); err != nil {
			return nil, fmt.Errorf("remove what a commit that was broken off has left: %w", err)
		}
	}
	if err := unix.Syncfs(int(top.Fd())); err != nil {
		return nil, err
	}
	if err := settle(ctx, home, &w.Key, settlement{As: committed, Changes: o, Kept: r.report.Modes}); err != nil {
		return o, err
	}
	w.kept(r.report.Modes)
	return o, nil
}

func (w *Commit) kept(modes int) {
	if w.Kept != nil {
		w.Kept(modes)
	}
}

// noting is what says whether a change may still be made, and notes that one may. Nil: it may.
func noting(act func() error, acted *bool) func() error {
	return func() error {
		if act != nil {
			if err := act(); err != nil {
				return err
			}
		}
		*acted = true
		return nil
	}
}

// sweep removes the files that a commit which was broken off was about to give their names.
func (r *restoring) sweep(all []edit) error {
	swept := map[string]bool{}
	for i := range all {
		parent := path.Dir(all[i].path())
		if swept[parent] {
			continue
		}
		swept[parent] = true
		dir, _, err := r.parent(join(parent, "."))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // it is no more
			continue
		}
		if err != nil {
			return err
		}
		err = each(dir, func(names []string) error {
			for _, name := range names {
				if !strings.HasPrefix(name, passing) || !strings.HasSuffix(name, passed) {
					continue
				}
				if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) &&
					!errors.Is(err, unix.EISDIR) {
					return err
				}
			}
			return nil
		})
		if err = errors.Join(err, dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// toCommit keeps the content of what an overlay changes, and lists it. The listing has no name yet.
func (s *Store) toCommit(c *copyOf, home string, k *Key) (*listing, error) {
	if len(c.changes) > maxCommittedNames {
		return nil, errMany
	}
	if err := os.WriteFile(filepath.Join(home, unswept), nil, 0o600); err != nil {
		return nil, err
	}
	t := &taking{ctx: c.ctx, store: s, home: home, info: &Info{}, free: -1, room: -1}
	l := &listing{head: head{Key: *k, Begun: time.Now()}}
	for i := range c.changes {
		ch := &c.changes[i]
		if ch.is == nil {
			l.entries = append(l.entries, entry{Path: ch.was.Path, Kind: gone})
			continue
		}
		e := *ch.is
		if e.Kind == aFile {
			dir, name, err := (&restoring{top: c.top}).parent(string(e.Path))
			if err != nil {
				return nil, err
			}
			err = t.file(dir, name, &e)
			if err = errors.Join(err, dir.Close()); err != nil {
				return nil, err
			}
		}
		l.entries = append(l.entries, e)
	}
	return l, nil
}

// unguarded refuses changes in places that are protected in the workspace since its git was set up to run or read them,
// and were not in the overlay: nothing kept commands from writing there. Force is about the work of others, and allows
// none of it.
func (c *copyOf) unguarded(root *place.Root, all []edit, hidden func(string) bool) error {
	now, err := root.Protection()
	if err != nil {
		return unguarded(err.Error())
	}
	was, err := c.root.Protection()
	if err != nil {
		return unguarded(err.Error())
	}
	for _, p := range now.Since(was) {
		for _, at := range append(root.Forms(p.Path), p.Path) {
			there := protect.Place{Path: at}
			for i := range all {
				e := &all[i]
				inWay := (protect.Place{Path: e.path()}).Holds(at) && e.is != nil && e.is.Kind != aDir
				if !inWay && !there.Holds(e.path()) {
					continue
				}
				if hidden != nil && hidden(e.path()) {
					return unguarded(p.Why)
				}
				return unguarded(fmt.Sprintf("%q: %s", e.path(), p.Why))
			}
		}
	}
	return nil
}

func unguarded(why string) error {
	return &tool.Error{Code: toolyard.SandboxViolation, Message: "the overlay was not committed: it changes what " +
		"became a protected place of the workspace after the overlay was made, so that nothing has kept its commands " +
		"from that (" + why + "). Take that out of git's configuration, or make the other changes by hand"}
}

// planned are the changes of a commit. was is the workspace that the overlay was made from.
func planned(l *listing, was map[string]*entry) (all []edit) {
	for i := range l.entries {
		c := edit{was: was[string(l.entries[i].Path)], is: &l.entries[i]}
		if c.is.Kind == gone {
			c.is = nil
		}
		if c.was != nil || c.is != nil {
			all = append(all, c)
		}
	}
	return all
}

// free reports names that others have changed since the overlay was made.
func (s *Store) free(ctx context.Context, top *os.File, all []edit, partly bool, w *Commit) error {
	now, err := s.now(ctx, top)
	if err != nil {
		return err
	}
	paths, err := conflicts(all, now.entries, partly, func(have *entry) (string, error) {
		return sumAt(ctx, top, string(have.Path))
	})
	if err != nil || len(paths) == 0 {
		return err
	}
	many := len(paths)
	if w.Hidden != nil {
		paths = slices.DeleteFunc(paths, w.Hidden)
	}
	such := ""
	if len(paths) > 0 {
		such = fmt.Sprintf(", such as %q", paths[:min(len(paths), shownPaths)])
	}
	return notNow("the overlay was not committed: others have changed %d of the names that it changes%s. With force that "+
		"is lost", many, such)
}

// apply makes changes in a workspace: what is to be removed goes first, the deepest names before what they are in.
func (r *restoring) apply(all []edit, was map[string]*entry, force, partly bool) error {
	for i := len(all) - 1; i >= 0; i-- {
		c := &all[i]
		if c.is != nil && (c.was == nil || c.was.Kind == c.is.Kind) && !force {
			continue
		}
		if err := r.makeWay(c, force); err != nil {
			return fmt.Errorf("remove %q: %w", c.path(), err)
		}
	}
	var dirs []*entry
	for i := range all {
		if all[i].is == nil {
			continue
		}
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		e := all[i].is
		if err := r.put(e, force); err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
		if e.Kind == aDir {
			dirs = append(dirs, e)
		}
	}
	for _, e := range slices.Backward(dirs) { // when nothing is put into them any more
		dir, err := r.openAt(string(e.Path))
		if err != nil {
			return err
		}
		if err := errors.Join(r.attributes(dir, e), dir.Close()); err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
	}
	if err := r.removeDeep(); err != nil {
		return err
	}
	return r.lock(all, was, partly)
}

// letIn lets the worker change the names of a directory of its own that it may only read; one of another user stays as
// it is. p is its path. In a commit [restoring.lock] takes that back. A restore gives each directory its mode when its
// names are set back.
func (r *restoring) letIn(dir *os.File, p string) error {
	st, err := statOf(dir)
	if err != nil || uint32(st.Mode)&ownersAll == ownersAll {
		return err
	}
	if err := r.act(); err != nil {
		return err
	}
	mode := uint32(st.Mode) & permissions
	err = unix.Fchmod(int(dir.Fd()), mode|ownersAll)
	if err == nil {
		r.opened[p] = mode
	} else if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// lock gives the directories that letIn has opened, and that the commit does not change, the modes that they had. Of
// those that a commit opened which was broken off nothing is known but the modes in the overlay's first listing, was.
func (r *restoring) lock(all []edit, was map[string]*entry, partly bool) error {
	changed := make(map[string]bool, len(all))
	for i := range all {
		changed[all[i].path()] = true
	}
	for i := range all {
		p := parent(all[i].path())
		if _, known := r.opened[p]; !known && partly && was[p] != nil && was[p].Mode&ownersAll != ownersAll {
			r.opened[p] = was[p].Mode
		}
	}
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(r.opened))) { // those in it first
		if changed[p] {
			continue
		}
		if err := r.close(p, r.opened[p]); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return nil
}

// close gives a directory its mode back, unless it has another one by now than letIn has given it.
func (r *restoring) close(p string, mode uint32) (err error) {
	dir, err := r.openAt(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	st, err := statOf(dir)
	if err != nil || uint32(st.Mode)&permissions != mode|ownersAll {
		return err
	}
	return unix.Fchmod(int(dir.Fd()), mode)
}

// openAt opens a directory of the workspace.
func (r *restoring) openAt(p string) (*os.File, error) {
	if p == atTheTop {
		return openDir(r.top, ".")
	}
	return at(r.top, p)
}

// makeWay removes a name that goes, or that becomes something of another kind. By force it goes with all that is in it.
func (r *restoring) makeWay(c *edit, force bool) (err error) {
	dir, name, err := r.parent(c.path())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // it is gone, or something is in the way, which goes too
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	st, err := stat(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	have := entryOf(c.path(), st)
	if c.is != nil && have.Kind == c.is.Kind {
		return nil
	}
	if err := r.letIn(dir, parent(c.path())); err != nil {
		return err
	}
	if have.Kind != aDir || force {
		gone, err := r.remove(dir, name, c.path(), 1)
		if err == nil && !gone {
			err = errors.New("something in it cannot be removed")
		}
		return err
	}
	if err := r.act(); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return err
	}
	r.did(&r.report.Removed)
	return nil
}

// put makes a name what it is in the overlay.
func (r *restoring) put(e *entry, force bool) (err error) {
	if string(e.Path) == atTheTop {
		return nil
	}
	dir, name, err := r.parent(string(e.Path))
	if force && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
		if err := r.makeParents(string(e.Path)); err != nil {
			return err
		}
		dir, name, err = r.parent(string(e.Path))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := r.letIn(dir, parent(string(e.Path))); err != nil {
		return err
	}
	st, err := stat(dir, name)
	if errors.Is(err, unix.ENOENT) {
		st, err = nil, nil
	}
	if err != nil {
		return err
	}
	switch e.Kind {
	case aDir:
		if st != nil && isDir(st) {
			r.did(&r.report.Unchanged)
			return nil
		}
		if err := r.act(); err != nil {
			return err
		}
		if err := unix.Mkdirat(int(dir.Fd()), name, ownersAll); err != nil {
			return err
		}
		r.did(&r.report.Written)
	case aFile:
		return r.file(dir, name, e, st)
	case aLink:
		return r.link(dir, name, e, st)
	case aPipe:
		return r.pipe(dir, name, e, st)
	default:
		r.report.Left = append(r.report.Left, string(e.Path))
	}
	return nil
}

// parentMode is that of a directory which others have removed, and which a commit by force makes again.
const parentMode = 0o755

// makeParents makes the directories of a path that are not there. What is there instead goes.
func (r *restoring) makeParents(p string) error {
	for at := range len(p) {
		if p[at] != '/' {
			continue
		}
		dir, name, err := r.parent(p[:at])
		if err != nil {
			return err
		}
		st, err := stat(dir, name)
		if err == nil && isDir(st) {
			if err := dir.Close(); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			st, err = nil, nil
		}
		if err == nil {
			err = r.letIn(dir, parent(p[:at]))
		}
		if err == nil && st != nil {
			_, err = r.remove(dir, name, p[:at], 1)
		}
		if err == nil {
			err = r.act()
		}
		if err == nil {
			err = unix.Mkdirat(int(dir.Fd()), name, parentMode)
		}
		if err == nil {
			err = r.toOwner(dir, name)
		}
		if err = errors.Join(err, dir.Close()); err != nil {
			return err
		}
		r.did(&r.report.Written)
	}
	return nil
}

// toOwner gives a directory that a worker has made which is root to the workspace's owner, as whom commands run, and
// who could not write to it. Its group is that of its own directory where that gives it to all that is in it.
func (r *restoring) toOwner(dir *os.File, name string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	top, err := statOf(r.top)
	if err != nil {
		return err
	}
	in, err := statOf(dir)
	if err != nil {
		return err
	}
	group := int(top.Gid)
	if in.Mode&unix.S_ISGID != 0 {
		group = -1
	}
	return r.owned(unix.Fchownat(int(dir.Fd()), name, int(top.Uid), group, unix.AT_SYMLINK_NOFOLLOW))
}
