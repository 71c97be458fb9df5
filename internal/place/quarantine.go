package place

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard/internal/protect"
)

// Quarantine says why nothing may be done in a workspace.
type Quarantine struct {
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	// Places are what could not be taken away.
	Places []string `json:"places,omitempty"`
}

// A quarantine is noted in the workspace itself, so that every worker sees it, also after a restart. Several workers
// may note one at the same time, on several machines: each writes a mark of its own, and whoever clears them removes
// only those that it has read. No lock is needed, which not every file system has.
const (
	// markName is the name of the first mark, and begins those of the others.
	markName = "quarantine"
	// quarantineMark is where the first one is.
	quarantineMark = protect.MarkDir + "/" + markName
)

// marksIgnored has git not show the directory of marks.
const marksIgnored = ".gitignore"

// The limits of marks.
const (
	maxMarkBytes = 64 << 10 // what is read of a mark
	maxMarks     = 64       // marks that are read at a time
	maxMarkTries = 10       // attempts to write a mark while others clear a quarantine
)

// isMark reports whether a name in the directory of marks is that of a mark.
func isMark(name string) bool { return name == markName || strings.HasPrefix(name, markName+"-") }

// Quarantine moves the workspace to quarantine, beside what it is in quarantine for already. Where the error says that
// the mark could not be written, it holds for this root alone, for as long as something is there that it is about.
func (r *Root) Quarantine(q Quarantine) error {
	b, err := json.MarshalIndent(q, "", "  ")
	if err == nil {
		err = r.note(append(b, '\n'))
	}
	if err == nil {
		return nil
	}
	for {
		held := r.quarantine.Load()
		if r.quarantine.CompareAndSwap(held, joined(held, &q)) {
			return fmt.Errorf("note the quarantine: %w", err)
		}
	}
}

// note writes a mark, whole or not at all. Whoever clears a quarantine at the same time may remove the directory of
// marks or the file that is not a mark yet; then it begins again.
func (r *Root) note(content []byte) (err error) {
	for range maxMarkTries {
		if err = r.noteOnce(content); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (r *Root) noteOnce(content []byte) error {
	if err := Mark(r.held); err != nil {
		return err
	}
	own := rand.Text()
	begun := path.Join(protect.MarkDir, "."+own)
	err := r.held.WriteFile(begun, content, 0o644)
	if err == nil {
		// Workers of older versions look for the first mark only.
		if r.held.Link(begun, quarantineMark) != nil { // it is there, or the file system has no links
			return r.held.Rename(begun, quarantineMark+"-"+own)
		}
	}
	return errors.Join(err, removed(r.held.Remove(begun)))
}

// removed is the error of removing what may have gone.
func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) || isNotDirectory(err) {
		return nil
	}
	return err
}

// joined is the quarantine for what both are about. One may be nil.
func joined(a, b *Quarantine) *Quarantine {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := &Quarantine{Why: a.Why, Since: a.Since, Places: slices.Concat(a.Places, b.Places)}
	if a.Since.IsZero() || !b.Since.IsZero() && b.Since.Before(a.Since) {
		both.Since = b.Since
	}
	if !strings.Contains(a.Why, b.Why) {
		both.Why += "; " + b.Why
	}
	slices.Sort(both.Places)
	both.Places = slices.Compact(both.Places)
	return both
}

// Quarantined returns why the workspace is in quarantine; nil when it is not. A mark that cannot be read is one.
func (r *Root) Quarantined() (*Quarantine, error) {
	read, err := r.marks()
	return read.all, err
}

// marks are what says that a workspace is in quarantine.
type marks struct {
	all *Quarantine
	// held is the one that this root alone holds.
	held  *Quarantine
	names []string // of the files
	// unsaid says that one of them names no place.
	unsaid bool
}

// marks reads why the workspace is in quarantine.
func (r *Root) marks() (m marks, err error) {
	if q := r.quarantine.Load(); q != nil {
		if len(q.Places) == 0 || len(r.left(q)) > 0 {
			m.held = q
			m.add(q)
		} else {
			r.quarantine.CompareAndSwap(q, nil)
		}
	}
	names, err := r.markNames()
	if err != nil {
		return m, fmt.Errorf("look for the mark of a quarantine: %w", err)
	}
	for _, name := range names {
		q, err := r.readMark(name)
		if err != nil {
			return m, fmt.Errorf("look for the mark of a quarantine: %w", err)
		}
		if q != nil {
			m.names = append(m.names, name)
			m.add(q)
		}
	}
	return m, nil
}

func (m *marks) add(q *Quarantine) {
	m.all = joined(m.all, q)
	m.unsaid = m.unsaid || len(q.Places) == 0
}

// markNames are the names of marks, [maxMarks] at most.
func (r *Root) markNames() (names []string, err error) {
	dir, err := r.held.Stat(protect.MarkDir) // opening what is no directory might wait
	if err != nil || !dir.IsDir() {
		return nil, removed(err)
	}
	f, err := r.held.Open(protect.MarkDir)
	if err != nil {
		return nil, removed(err)
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(removed(err), f.Close()); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if isMark(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // the first one comes first
	return names[:min(len(names), maxMarks)], nil
}

// readMark reads a mark; nil if it has gone.
func (r *Root) readMark(name string) (*Quarantine, error) {
	at := path.Join(protect.MarkDir, name)
	info, err := r.held.Lstat(at)
	if err != nil {
		return nil, removed(err)
	}
	q := Quarantine{Why: "the mark cannot be read", Since: info.ModTime()}
	if info.Mode().IsRegular() && info.Size() <= maxMarkBytes {
		if b, err := r.held.ReadFile(at); err == nil && json.Unmarshal(b, &q) != nil {
			q.Why = "the mark cannot be read"
		}
	}
	return &q, nil
}

// left are those places of a quarantine where something still is, as far as that can be told.
func (r *Root) left(q *Quarantine) (left []string) {
	for _, p := range q.Places {
		if _, err := r.held.Lstat(p); !errors.Is(err, fs.ErrNotExist) && !isNotDirectory(err) {
			left = append(left, p)
		}
	}
	return left
}

// ClearQuarantine takes the marks away. It fails while something is there that the quarantine is about, unless keep
// says that it stays. Where that has gone, the record of what a sandbox has to undo stays, for it to undo the rest.
// When it fails, the workspace is still in quarantine.
func (r *Root) ClearQuarantine(keep bool) error {
	m, err := r.marks()
	if err != nil || m.all == nil {
		return err
	}
	if left := r.left(m.all); len(left) > 0 && !keep {
		return fmt.Errorf("%s is still there; look at it and take it away, or say with --keep that it stays",
			strings.Join(left, ", "))
	}
	if keep || m.unsaid {
		if err := errors.Join(r.forget(protect.GitMarkDir), r.forget(protect.MarkDir)); err != nil {
			return err
		}
	}
	// Last: from here on a worker may write a record of its own.
	for _, name := range m.names {
		if err := r.held.RemoveAll(path.Join(protect.MarkDir, name)); removed(err) != nil {
			return err
		}
	}
	r.quarantine.CompareAndSwap(m.held, nil)
	r.tidy()
	more, err := r.Quarantined()
	if err == nil && more != nil {
		err = fmt.Errorf("there is more that it is about: %s; clear it once more", more.Why)
	}
	return err
}

// forget removes what is in a directory of marks, but for the mark of a quarantine.
func (r *Root) forget(dir string) error {
	if top, err := r.held.Lstat(path.Dir(dir)); err == nil && !top.IsDir() {
		return nil // no sandbox has written through it
	}
	info, err := r.held.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return r.held.Remove(dir)
	}
	entries, err := fs.ReadDir(r.held.FS(), dir)
	for _, e := range entries {
		if p := path.Join(dir, e.Name()); dir != protect.MarkDir || !isMark(e.Name()) {
			err = errors.Join(err, r.held.RemoveAll(p))
		}
	}
	return err
}

// tidy removes the directories of marks that nobody needs. Where a command has begun meanwhile they stay, as they do
// when they cannot be removed: they do no harm.
func (r *Root) tidy() {
	_ = r.held.Remove(protect.GitMarkDir)
	entries, err := fs.ReadDir(r.held.FS(), protect.MarkDir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != marksIgnored }) {
		return
	}
	_ = r.held.Remove(path.Join(protect.MarkDir, marksIgnored))
	_ = r.held.Remove(protect.MarkDir)
}

// Mark makes the directory of marks in a workspace, which git does not show.
func Mark(r *os.Root) error {
	if err := r.Mkdir(protect.MarkDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := r.Lstat(protect.MarkDir); err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is no directory", protect.MarkDir))
	}
	return r.WriteFile(path.Join(protect.MarkDir, marksIgnored), []byte("*\n"), 0o644)
}
