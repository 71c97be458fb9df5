package snapshot

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// The names in a store beside those of listings.
const (
	objects  = "objects"
	unnamed  = "new"   // files that have no name yet
	unswept  = "dirty" // stands while objects may be there that no listing names
	lockName = "lock"
)

// lockPause is how long a lock that another has is behind the next look at it.
const lockPause = 20 * time.Millisecond

var (
	errBusy = errors.New("another worker has the store's lock")
	errGone = errors.New("a sweep has taken away what the store had of the workspace, which was nothing")
)

// lock waits until nobody else uses what a store has of a workspace. [errGone] says that the home is not there, or is
// another one by now.
func lock(ctx context.Context, home string) (unlock func() error, err error) {
	file := filepath.Join(home, lockName)
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, LockWait, errBusy)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			if err := isAt(f, file); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if pause.For(ctx, lockPause) != nil {
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}

// isAt returns [errGone] if an open file has its name no more.
func isAt(f *os.File, file string) error {
	held, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, now) {
		return errGone
	}
	return err
}

// lockHome makes what a store has of a workspace, unless it is there, and locks it.
func lockHome(ctx context.Context, home string) (unlock func() error, err error) {
	for {
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, err
		}
		if unlock, err = lock(ctx, home); !errors.Is(err, errGone) {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.MkdirAll(filepath.Join(home, objects), 0o700),
		os.MkdirAll(filepath.Join(home, unnamed), 0o700))
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// enter opens a workspace and what the store has of it, and locks that. root is nil where the worker has no directory
// for the workspace.
func (s *Store) enter(ctx context.Context, root *place.Root, k *Key) (top *os.File, home string,
	leave func() error, err error) {
	if root == nil {
		return nil, "", nil, noDirectory(k)
	}
	if err := root.Check(); err != nil {
		return nil, "", nil, err
	}
	if top, err = openTop(root); err != nil {
		return nil, "", nil, err
	}
	st, err := statOf(top)
	if err != nil {
		return nil, "", nil, errors.Join(err, top.Close())
	}
	home = s.home(k.Workspace, st.Ino)
	unlock, err := lockHome(ctx, home)
	if err != nil {
		return nil, "", nil, errors.Join(err, top.Close())
	}
	return top, home, func() error { return errors.Join(top.Close(), unlock()) }, nil
}

// Take keeps what a workspace is now, unless that was done for the key before. A group that was run in part, and gave
// the workspace back while a person was asked, may find that others have changed something meanwhile: if it had changed
// nothing itself, what the workspace is now is kept; otherwise the group cannot be undone without force. Take's errors
// say that nothing was kept, and are [tool.Error]s: of code setup_required where it will not get better by itself, of
// dependency_unavailable otherwise.
func (s *Store) Take(ctx context.Context, root *place.Root, k Key) (info Info, err error) {
	if root == nil {
		return info, tool.SetupRequired("the batch is to be kept undoable, and this worker has no directory for the "+
			"workspace %q", k.Workspace)
	}
	limited, cancel := context.WithTimeoutCause(ctx, TakeTime, errSlow)
	defer cancel()
	top, home, leave, err := s.enter(limited, root, &k)
	if err != nil {
		return info, asFailure(err)
	}
	defer func() {
		if err = errors.Join(err, leave()); err != nil {
			err = asFailure(err)
		}
	}()
	file := filepath.Join(home, k.listingName(before))
	switch earlier, err := readHead(file); {
	case err == nil && time.Since(earlier.Begun) < s.keep: // an older one is of another batch that had this id
		alone, err := s.aloneSince(limited, top, home, &k)
		if err != nil || alone {
			return Info{Kept: true}, err
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return info, err
	}
	_, err = s.take(limited, top, home, &k, before, &info)
	return info, err
}

// aloneSince reports whether the snapshot of an earlier run stands. It does not where that run has changed nothing, and
// others have since.
func (s *Store) aloneSince(ctx context.Context, top *os.File, home string, k *Key) (bool, error) {
	then, err := readListing(filepath.Join(home, k.listingName(after)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // the run did not end: its batch has the workspace since
	}
	if err != nil {
		return false, err
	}
	now, err := s.now(ctx, top)
	if err != nil {
		return false, err
	}
	if _, all := differences(then, now, 0, nil); all == 0 {
		return true, nil
	}
	first, err := readListing(filepath.Join(home, k.listingName(before)))
	if err != nil {
		return false, err
	}
	if _, all := differences(first, then, 0, nil); all == 0 {
		return false, nil
	}
	return true, s.note(ctx, top, home, k, between, nil)
}

// take keeps a listing with the content.
func (s *Store) take(ctx context.Context, top *os.File, home string, k *Key, kind string, info *Info,
) (*listing, error) {
	if err := os.WriteFile(filepath.Join(home, unswept), nil, 0o600); err != nil {
		return nil, err
	}
	t := &taking{ctx: ctx, store: s, home: home, info: info, free: -1, room: -1, known: newest(home)}
	begun := time.Now()
	w := walker{ctx: ctx, limits: s.limits, file: t.file}
	if err := w.walk(top); err != nil {
		return nil, err
	}
	info.Entries = len(w.out)
	l := &listing{head: head{Key: *k, Begun: begun}, entries: w.out}
	if err := keep(home, filepath.Join(home, k.listingName(kind)), l); err != nil {
		return nil, err
	}
	return l, os.Remove(filepath.Join(home, unswept))
}

// keep gives a listing its name, when all that was stored before is on the disk.
func keep(home, file string, l *listing) error {
	temp := filepath.Join(home, unnamed, rand.Text())
	if err := l.write(temp); err != nil {
		return err
	}
	d, err := os.Open(home)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(d.Fd())) // one for all objects: a sync of each takes longer
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return err
	}
	return durable.SyncDir(home)
}

// asBefore remembers the mark of an earlier restore, if there is one, and returns what puts that back, or takes the
// mark away if there was none. A mark that cannot be read is of a restore that was broken off, which the new mark says
// too.
func asBefore(home, mark string) func() error {
	earlier, err := readListing(mark)
	switch {
	case err == nil:
		return func() error { return keep(home, mark, earlier) }
	case errors.Is(err, fs.ErrNotExist):
		return func() error { return os.Remove(mark) }
	}
	return func() error { return nil }
}

// After notes what a workspace is behind a group whose snapshot was taken: a restore then sees what others have changed
// since. It replaces what was noted behind an earlier attempt. act says, when all was looked at, whether the caller has
// still had the workspace alone.
func (s *Store) After(ctx context.Context, root *place.Root, k Key, act func() error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, TakeTime, errSlow)
	defer cancel()
	top, home, leave, err := s.enter(ctx, root, &k)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	return s.note(ctx, top, home, &k, after, act)
}

// note keeps a listing without the content, if that may still be done when it is made. Nil: it may.
func (s *Store) note(ctx context.Context, top *os.File, home string, k *Key, kind string, act func() error) error {
	begun := time.Now()
	l, err := s.now(ctx, top)
	if err != nil {
		return err
	}
	if act != nil {
		if err := act(); err != nil {
			return err
		}
	}
	l.head = head{Key: *k, Begun: begun}
	return keep(home, filepath.Join(home, k.listingName(kind)), l)
}

// now is what a directory is, without the content.
func (s *Store) now(ctx context.Context, top *os.File) (*listing, error) {
	w := walker{ctx: ctx, limits: s.limits}
	if err := w.walk(top); err != nil {
		return nil, err
	}
	return &listing{entries: w.out}, nil
}

var (
	errSlow    = errors.New("the time for a snapshot is over")
	errBig     = errors.New("the files of the workspace have too many bytes")
	errFull    = errors.New("the store has no room")
	errUnquiet = errors.New("a file changes while it is read")
)

// asFailure says what an error means for the call that the snapshot is for.
func asFailure(err error) error {
	if said, ok := errors.AsType[*tool.Error](err); ok {
		return said
	}
	switch {
	case errors.Is(err, errMany):
		return unable(err, "it has more than %d names", MaxEntries)
	case errors.Is(err, errDeep):
		return unable(err, "its directories lie more than %d deep in one another", MaxDepth)
	case errors.Is(err, errBig):
		return unable(err, "its files have more than %d bytes", int64(MaxBytes))
	case errors.Is(err, errFull):
		return unable(err, "there is no room left for it; an operator must make some")
	case errors.Is(err, errSlow):
		return unable(err, "it took longer than %s", TakeTime)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return unable(err, "the worker may not read all of it; an operator can see what")
	}
	return failed(err)
}

// trusted is how old a file's last change must be for its content to be known by its times: the clocks of a file system
// are coarse, and those of another machine may be wrong.
const trusted = time.Minute

// ofWorkspace reports whether a file is a listing of a workspace with its content.
func ofWorkspace(file string) bool {
	return strings.HasSuffix(file, before) || strings.HasSuffix(file, base)
}

// newest are the files of the snapshot that was taken last, by path, as far as they can be known by inode and times.
func newest(home string) map[string]*entry {
	names, err := os.ReadDir(home)
	if err != nil {
		return nil // then all files are read
	}
	var last fs.FileInfo
	for _, n := range names {
		if info, err := n.Info(); ofWorkspace(n.Name()) && err == nil &&
			(last == nil || info.ModTime().After(last.ModTime())) {
			last = info
		}
	}
	if last == nil {
		return nil
	}
	l, err := readListing(filepath.Join(home, last.Name()))
	if err != nil {
		return nil
	}
	known := map[string]*entry{}
	for i := range l.entries {
		if e := &l.entries[i]; e.Kind == aFile && e.Touched < l.Begun.Add(-trusted).UnixNano() {
			known[string(e.Path)] = e
		}
	}
	return known
}

// taking is one snapshot that is being taken.
type taking struct {
	ctx   context.Context
	store *Store
	home  string
	info  *Info
	known map[string]*entry
	// free is what may still be written to the disk, and room what may be added to the store; -1: not measured yet.
	free, room int64
}

// tries is how often a file is read that changes meanwhile.
const tries = 3

// file keeps the content of a file.
func (t *taking) file(dir *os.File, name string, e *entry) error {
	if k := t.known[string(e.Path)]; k != nil && k.known(e) && k.Size == e.Size && k.Changed == e.Changed &&
		k.Touched == e.Touched && has(t.home, k.Sum, k.Size) {
		e.Sum = k.Sum
		return t.count(e.Size)
	}
	for range tries {
		switch err := t.read(dir, name, e); {
		case err == nil:
			return t.count(e.Size)
		case !errors.Is(err, errUnquiet):
			return fmt.Errorf("%q: %w", e.Path, err)
		}
	}
	return fmt.Errorf("%w: %q", errUnquiet, e.Path)
}

func (t *taking) count(size int64) error {
	if t.info.Bytes += size; t.info.Bytes > t.store.limits.Bytes {
		return errBig
	}
	return nil
}

func objectFile(home, sum string) string { return filepath.Join(home, objects, sum[:2], sum[2:]) }

// has reports whether a store has a content.
func has(home, sum string, size int64) bool {
	info, err := os.Lstat(objectFile(home, sum))
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// read keeps the content of a file, if it does not change meanwhile, and completes its entry.
func (t *taking) read(dir *os.File, name string, e *entry) (err error) {
	f, err := open(dir, name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := statOf(f)
	if err != nil {
		return err
	}
	now := entryOf(string(e.Path), st)
	if now.Kind != aFile {
		return errUnquiet
	}
	if t.info.Bytes+now.Size > t.store.limits.Bytes {
		return errBig
	}
	if now.Sum, err = t.object(f, now.Size); err != nil {
		return err
	}
	if st, err = statOf(f); err != nil {
		return err
	}
	if then := entryOf(string(e.Path), st); !then.alike(&now) {
		return errUnquiet
	}
	*e = now
	return nil
}

// object keeps the content of an open file, and returns its sum.
func (t *taking) object(f *os.File, size int64) (sum string, err error) {
	sum, read, err := sumOf(t.ctx, f, nil)
	if err != nil || read != size {
		return "", errors.Join(err, orUnquiet(read == size))
	}
	if has(t.home, sum, size) {
		return sum, nil
	}
	if err := t.makeRoom(size); err != nil {
		return "", err
	}
	temp := filepath.Join(t.home, unnamed, rand.Text())
	to, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	named := false
	defer func() {
		if err = errors.Join(err, to.Close()); !named {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	copied, _, err := copyTo(t.ctx, to, f)
	if err != nil || copied != sum {
		return "", errors.Join(err, orUnquiet(copied == sum))
	}
	file := objectFile(t.home, sum)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	if err := os.Rename(temp, file); err != nil {
		return "", err
	}
	named = true
	t.info.New += size
	failpoint.Hit(failpoint.SnapshotPartly)
	if t.store.stored != nil {
		return sum, t.store.stored()
	}
	return sum, nil
}

func orUnquiet(ok bool) error {
	if ok {
		return nil
	}
	return errUnquiet
}

// patient reads until a context ends.
type patient struct {
	ctx context.Context
	r   io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	return p.r.Read(b)
}

// sumOf reads a file from its beginning, and writes it to another where that is given.
func sumOf(ctx context.Context, f *os.File, to io.Writer) (sum string, size int64, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	h := sha256.New()
	var into io.Writer = h
	if to != nil {
		into = io.MultiWriter(h, to)
	}
	size, err = io.Copy(into, &patient{ctx, f})
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// copyTo gives an empty file the content of another, and returns its sum. Where the file system can, the two share it
// until one of them is changed.
func copyTo(ctx context.Context, to, from *os.File) (sum string, size int64, err error) {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return sumOf(ctx, to, nil)
	}
	return sumOf(ctx, from, to)
}

// makeRoom reports whether there is room for an object.
func (t *taking) makeRoom(size int64) error {
	if t.room < 0 {
		used, err := t.used()
		if err != nil {
			return err
		}
		var disk unix.Statfs_t
		if err := unix.Statfs(t.home, &disk); err != nil {
			return err
		}
		t.room = t.store.limits.Store - used
		t.free = int64(disk.Bavail)*int64(disk.Bsize) - t.store.limits.MustFree //nolint:unconvert // types differ
	}
	t.room -= size
	t.free -= size
	if t.room < 0 || t.free < 0 {
		return errFull
	}
	return nil
}

// used is what the store has of the workspace, in bytes.
func (t *taking) used() (bytes int64, err error) {
	err = filepath.WalkDir(t.home, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
