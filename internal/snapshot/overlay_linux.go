package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// The names in a store for overlays.
const (
	overlays = "overlays"
	tree     = "tree" // the copy
	making   = "new"  // a copy that is not whole yet
	ranMark  = "ran-" // with the number of an exclusive group that may have run on it, and by which worker
)

// what is known of an overlay that is over.
type settlement struct {
	As string    `json:"as"` // empty: it is not over
	At time.Time `json:"at"`
	// Changes are those that were committed.
	Changes *toolyard.Overlay `json:"changes,omitempty"`
	// Kept is how many directories of other users a commit left their mode.
	Kept int `json:"kept,omitempty"`
}

const (
	committed = "committed"
	dropped   = "dropped"
)

// over reports what has become of an overlay. The zero value says that it stands, or that there was none.
func (s *Store) over(home string, k *Key) (as settlement, err error) {
	raw, err := os.ReadFile(filepath.Join(home, k.listingName(settled)))
	if errors.Is(err, fs.ErrNotExist) {
		return as, nil
	}
	if err != nil {
		return as, err
	}
	if err := json.Unmarshal(raw, &as); err != nil {
		return as, fmt.Errorf("read what has become of an overlay: %w", err)
	}
	if time.Since(as.At) > s.keep { // of another batch that had this id
		return settlement{}, nil
	}
	return as, nil
}

// settle notes what has become of an overlay, and removes it. What cannot be removed now a sweep removes.
func settle(ctx context.Context, home string, k *Key, as settlement) error {
	as.At = time.Now()
	raw, err := json.Marshal(as)
	if err != nil {
		return err
	}
	temp, file := filepath.Join(home, unnamed, k.listingName(settled)), filepath.Join(home, k.listingName(settled))
	if err := os.WriteFile(temp, raw, 0o600); err != nil {
		return err
	}
	f, err := os.Open(temp)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return err
	}
	if err := os.Rename(temp, file); err != nil {
		return err
	}
	if err := durable.SyncDir(home); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(home, unswept), nil, 0o600); err != nil { // their content may go
		return err
	}
	for _, kind := range []string{base, made, commit} {
		if err := os.Remove(filepath.Join(home, k.listingName(kind))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return removeOverlay(ctx, home, k.batchName())
}

// Overlay opens the directory on which the calls of a batch run, and makes it as a copy of the workspace if there is
// none. ran are the exclusive groups of the batch that may have run on it before. by is the worker that is about to
// claim the call of an exclusive group, k.Group; empty: the call only reads. The overlay gets a mark of that worker and
// group. Whose mark counts is decided by the claim: a worker that finds that the call is another's, or has ended, has
// made a copy on which nothing has run. The errors say that the call has no overlay to run on, as those of
// [Store.Take]. The caller closes what is opened.
func (s *Store) Overlay(ctx context.Context, root *place.Root, k Key, by string, ran []Ran) (*place.Root, error) {
	if root == nil {
		return nil, tool.SetupRequired("the batch is to run on an overlay, and this worker has no directory for the "+
			"workspace %q", k.Workspace)
	}
	dir, err := s.overlay(ctx, root, k, by, ran)
	if err != nil {
		return nil, err
	}
	over, err := root.Beside(dir)
	if err != nil {
		return nil, Unusable(err)
	}
	return over, nil
}

// overlay is the directory of [Store.Overlay].
func (s *Store) overlay(ctx context.Context, root *place.Root, k Key, by string, ran []Ran) (dir string, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, TakeTime, errSlow)
	defer cancel()
	top, home, leave, err := s.enter(limited, root, &k)
	if err != nil {
		return "", asFailure(err)
	}
	defer func() {
		if err = errors.Join(err, leave()); err != nil {
			err = asFailure(err)
		}
	}()
	at, there, err := s.stands(home, &k, ran)
	if err != nil {
		return "", err
	}
	if !there {
		if err := s.makeOverlay(limited, top, home, at, &k); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(at, tree)
	if by == "" {
		return dir, nil
	}
	for _, worker := range []string{by, ""} {
		if err := os.WriteFile(filepath.Join(at, markName(Ran{k.Group, worker})), nil, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// stands reports whether the overlay of a batch is there, and where it is or would be.
func (s *Store) stands(home string, k *Key, ran []Ran) (at string, there bool, err error) {
	at = filepath.Join(home, overlays, k.batchName())
	as, err := s.over(home, k)
	if err != nil {
		return at, false, err
	}
	if as.As != "" {
		return at, false, noOverlay("the overlay of the batch is %s", as.As)
	}
	switch seen, err := ranOn(at, ran); {
	case err != nil:
		return at, false, err
	case !seen:
		return at, false, noOverlay("an earlier call of the batch ran on an overlay that this worker does not see: its " +
			"workers must share a directory of snapshots")
	}
	_, err = os.Lstat(filepath.Join(at, tree))
	if errors.Is(err, fs.ErrNotExist) {
		return at, false, nil
	}
	return at, err == nil, err
}

// Standing opens the overlay of a batch to look at it, without a call that has the workspace. Nil: none was made yet,
// and the workspace is as its calls will find it. The caller closes what is opened.
func (s *Store) Standing(ctx context.Context, root *place.Root, k Key, ran []Ran) (over *place.Root, err error) {
	_, home, leave, err := s.enter(ctx, root, &k)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	at, there, err := s.stands(home, &k, ran)
	if err != nil || !there {
		return nil, err
	}
	return root.Beside(filepath.Join(at, tree))
}

// markName is the mark that a worker, or with an empty name any worker, may have run the call of a group.
func markName(r Ran) string {
	mark := ranMark + strconv.Itoa(r.Group)
	if r.Worker != "" {
		mark += "-" + name(r.Worker)
	}
	return mark
}

// ranOn reports whether the overlay that lies in a directory is the one on which groups have run.
func ranOn(at string, ran []Ran) (bool, error) {
	for _, r := range ran {
		if _, err := os.Lstat(filepath.Join(at, markName(r))); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

func noOverlay(format string, args ...any) error {
	return &tool.Error{Code: toolyard.SetupRequired, Message: "the call has no overlay to run on: " +
		fmt.Sprintf(format, args...)}
}

// makeOverlay copies the workspace. The copy gets its name when it is whole.
func (s *Store) makeOverlay(ctx context.Context, top *os.File, home, at string, k *Key) (err error) {
	all, err := os.ReadDir(filepath.Join(home, overlays))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	own := func(d fs.DirEntry) bool { return d.Name() == k.batchName() }
	if len(all) >= MaxOverlays && !slices.ContainsFunc(all, own) {
		return noOverlay("the workspace has %d of them already; commit or drop some", len(all))
	}
	if err := removeOverlay(ctx, home, k.batchName()); err != nil { // of a worker that died
		return err
	}
	var info Info
	l, err := s.take(ctx, top, home, k, base, &info)
	if err != nil {
		return err
	}
	if err := s.room(home, info.Bytes); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(at, making), 0o700); err != nil {
		return err
	}
	copied, err := os.Open(filepath.Join(at, making))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	if err := newRestoring(ctx, copied, home, l, &Wish{Key: *k}).run(); err != nil {
		return err
	}
	if err := s.note(ctx, copied, home, k, made, nil); err != nil { // which syncs the copy too
		return err
	}
	if err := os.Rename(filepath.Join(at, making), filepath.Join(at, tree)); err != nil {
		return err
	}
	return durable.SyncDir(at)
}

// room reports whether the disk has room for so many bytes.
func (s *Store) room(home string, bytes int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(home, &disk); err != nil {
		return err
	}
	if int64(disk.Bavail)*int64(disk.Bsize)-s.limits.MustFree < bytes { //nolint:unconvert // types differ
		return errFull
	}
	return nil
}

// removeOverlay removes the copy of a batch.
func removeOverlay(ctx context.Context, home, batch string) (err error) {
	dir, err := os.Open(filepath.Join(home, overlays))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	r := newRestoring(ctx, dir, home, &listing{}, &Wish{})
	return r.clear(dir, atTheTop, func(name string) bool {
		return name != batch && !strings.HasPrefix(name, passing) // what is left of another removal goes too
	})
}

// sweepOverlays removes the copies of which the store has no listing any more.
func sweepOverlays(ctx context.Context, home string) error {
	all, err := os.ReadDir(filepath.Join(home, overlays))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range all {
		if _, err := os.Lstat(filepath.Join(home, d.Name()+base)); !errors.Is(err, fs.ErrNotExist) {
			continue // it stands, or nobody knows
		}
		if err := removeOverlay(ctx, home, d.Name()); err != nil {
			return err
		}
	}
	return nil
}

// copyOf is an overlay that is looked at.
type copyOf struct {
	ctx     context.Context
	top     *os.File
	root    *place.Root // top, as commands have it
	was, is *listing
	changes []edit
}

// openCopy compares an overlay with the workspace that it was made from, which is at root. One on which a group has not
// run that ran is not the batch's.
func (s *Store) openCopy(ctx context.Context, home string, root *place.Root, w *Commit) (c *copyOf, err error) {
	k := &w.Key
	as, err := s.over(home, k)
	if err != nil {
		return nil, err
	}
	if as.As != "" {
		return nil, notNow("the overlay of batch %s is %s already", k.Batch, as.As)
	}
	at := filepath.Join(home, overlays, k.batchName())
	seen, err := ranOn(at, w.Ran)
	if err != nil {
		return nil, err
	}
	top, err := os.Open(filepath.Join(at, tree))
	if err == nil && !seen {
		err = errors.Join(fs.ErrNotExist, top.Close())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notNow("this worker sees no overlay of batch %s: none was made, it is no longer kept, or it is where "+
			"this worker's directory of snapshots is not", k.Batch)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, top.Close())
		}
	}()
	c = &copyOf{ctx: ctx, top: top}
	if c.root, err = root.Beside(top.Name()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.root.Close())
		}
	}()
	if w.Recover != nil {
		if err := w.Recover(ctx, c.root); err != nil {
			return nil, fmt.Errorf("undo what a killed worker has left in the overlay: %w", err)
		}
	}
	if c.was, err = readListing(filepath.Join(home, k.listingName(base))); err != nil {
		return nil, err
	}
	first, err := readListing(filepath.Join(home, k.listingName(made)))
	if err != nil {
		return nil, err
	}
	if c.is, err = s.now(ctx, top); err != nil {
		return nil, err
	}
	c.changes, err = changesOf(c.was.entries, first.entries, c.is.entries, c.sum)
	return c, err
}

func (c *copyOf) close() error { return errors.Join(c.top.Close(), c.root.Close()) }

// sum is the content of a file of the copy.
func (c *copyOf) sum(e *entry) (string, error) { return sumAt(c.ctx, c.top, string(e.Path)) }

// at opens a name of a directory's tree, one directory at a time.
func at(top *os.File, p string) (f *os.File, err error) {
	dir, name, err := (&restoring{top: top}).parent(p)
	if err != nil {
		return nil, err
	}
	f, err = open(dir, name, unix.O_RDONLY, 0)
	return f, errors.Join(err, dir.Close())
}

func sumAt(ctx context.Context, top *os.File, p string) (sum string, err error) {
	f, err := at(top, p)
	if err != nil {
		return "", err
	}
	sum, _, err = sumOf(ctx, f, nil)
	return sum, errors.Join(err, f.Close())
}

// Changes says how the overlay of a batch differs from the workspace that it was made from.
func (s *Store) Changes(ctx context.Context, root *place.Root, k Key) (o *toolyard.Overlay, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, TakeTime, errSlow)
	defer cancel()
	o, _, err = s.Diff(ctx, root, Commit{Key: k}, nil)
	return o, err
}

// Diff says how the overlay of a batch differs from the workspace that it was made from, and shows it with differ where
// that is not nil. What the wish hides is named by nobody.
func (s *Store) Diff(ctx context.Context, root *place.Root, w Commit, differ Differ) (o *toolyard.Overlay, text string,
	err error) {
	top, home, leave, err := s.enter(ctx, root, &w.Key)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, leave()) }()
	_ = top // the workspace itself is not looked at
	c, err := s.openCopy(ctx, home, root, &w)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if w.Hidden != nil {
		c.changes = slices.DeleteFunc(c.changes, func(c edit) bool { return w.Hidden(c.path()) })
	}
	o = summary(c.changes)
	if differ == nil {
		return o, "", nil
	}
	text, err = c.diff(home, differ)
	return o, text, err
}

// diff shows the changes.
func (c *copyOf) diff(home string, differ Differ) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "The overlay changes %d names: %s.\n", len(c.changes), summary(c.changes))
	for i := range c.changes {
		ch := &c.changes[i]
		if i == MaxDiffs || b.Len() > MaxOverlayBytes {
			fmt.Fprintf(&b, "%d more names are not shown.\n", len(c.changes)-i)
			break
		}
		diff, note, err := c.one(home, ch, differ)
		if err != nil {
			return "", err
		}
		if note != "" {
			note = " (" + note + ")"
		}
		fmt.Fprintf(&b, "%s %q%s\n", ch.what(), ch.path(), note)
		if b.Len()+len(diff) > MaxOverlayBytes {
			diff = "The diff is too long to be shown.\n"
		}
		b.WriteString(diff)
	}
	return b.String(), nil
}

// one shows a change.
func (c *copyOf) one(home string, ch *edit, differ Differ) (diff, note string, err error) {
	if e := ch.is; e != nil && e.Kind != aFile || ch.was != nil && ch.was.Kind != aFile {
		return "", ch.kinds(), nil
	}
	if ch.was != nil && ch.is != nil && ch.was.Mode != ch.is.Mode {
		note = fmt.Sprintf("mode %04o, was %04o", ch.is.Mode, ch.was.Mode)
	}
	var sides [2][]byte
	for i, e := range []*entry{ch.was, ch.is} {
		if e == nil {
			continue
		}
		if e.Size > maxComparedBytes {
			return "", "too long to be compared", nil
		}
		var f *os.File
		if i == 0 {
			f, err = os.Open(objectFile(home, e.Sum))
		} else {
			f, err = at(c.top, string(e.Path))
		}
		if err != nil {
			return "", "", err
		}
		text, err := io.ReadAll(io.LimitReader(&patient{c.ctx, f}, maxComparedBytes))
		if err = errors.Join(err, f.Close()); err != nil {
			return "", "", err
		}
		sides[i] = append([]byte{}, text...) // an empty file is one
	}
	diff, why := differ(ch.path(), sides[0], sides[1])
	switch {
	case note == "":
		note = why
	case why != "":
		note += "; " + why
	}
	return diff, note, nil
}

// kinds says what a name was and is.
func (c *edit) kinds() string {
	var said []string
	for _, e := range []*entry{c.was, c.is} {
		if e == nil {
			continue
		}
		what := map[string]string{aDir: "directory", aFile: "file", aLink: "symbolic link", aPipe: "pipe",
			aSocket: "socket", aDevice: "device"}[e.Kind]
		if e.Kind == aLink {
			what += fmt.Sprintf(" to %q", e.Target)
		}
		said = append(said, fmt.Sprintf("%s, mode %04o", what, e.Mode))
	}
	return strings.Join(said, "; now ")
}

// Drop removes the overlay of a batch.
func (s *Store) Drop(ctx context.Context, root *place.Root, w Commit) (err error) {
	_, home, leave, err := s.enter(ctx, root, &w.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	as, err := s.over(home, &w.Key)
	if err != nil {
		return err
	}
	switch _, begun := os.Lstat(filepath.Join(home, w.listingName(commit))); {
	case as.As == dropped:
		return nil
	case as.As != "":
		return notNow("the overlay of batch %s is %s already", w.Batch, as.As)
	case begun == nil:
		return notNow("the overlay of batch %s is committed in part; commit it again, and undo that", w.Batch)
	case !errors.Is(begun, fs.ErrNotExist):
		return begun
	}
	w.Recover = nil                           // it goes with all that is in it
	c, err := s.openCopy(ctx, home, root, &w) // one that is not there is no overlay
	if err != nil {
		return err
	}
	if err := c.close(); err != nil {
		return err
	}
	if w.Act != nil {
		if err := w.Act(); err != nil {
			return err
		}
	}
	return settle(ctx, home, &w.Key, settlement{As: dropped})
}
