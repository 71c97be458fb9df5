package snapshot

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/toolyard/toolyard/internal/protect"
)

// The kinds of entries.
const (
	aDir     = "d"
	aFile    = "f"
	aLink    = "l"
	aPipe    = "p"
	aSocket  = "s"
	aDevice  = "b" // of either kind
	atTheTop = ""  // the path of the workspace's directory itself
)

// entry is one name of a workspace. Paths and targets are bytes: they need not be valid UTF-8.
type entry struct {
	Path []byte `json:"p"`
	Kind string `json:"k"`
	// Mode has the permission bits, with those for other users' rights and the sticky bit.
	Mode uint32 `json:"m"`
	UID  uint32 `json:"u"`
	GID  uint32 `json:"g"`
	// Changed and Touched are the times of the content's and the inode's last change, in nanoseconds.
	Changed int64  `json:"c"`
	Touched int64  `json:"t"`
	Size    int64  `json:"s,omitempty"`
	Sum     string `json:"h,omitempty"`
	Target  []byte `json:"l,omitempty"`
	// Shared names the inode of a file that has more than one name.
	Shared string `json:"i,omitempty"`
	// Inode is the number of the inode. Listings of older versions do not have it.
	Inode uint64 `json:"n,omitempty"`
}

// same reports whether nobody has changed what an entry says. Another file may have the same times: it was written at
// the same tick of the clock, and got the name with its directory, which touches neither. Another inode is a change
// unless both contents are known to be equal.
func (e *entry) same(o *entry) bool {
	return e.alike(o) && (e.known(o) || e.Sum != "" && e.Sum == o.Sum)
}

// known reports whether the content is the same if two entries are alike. Links have their targets in their entries,
// and nothing else but files has a content.
func (e *entry) known(o *entry) bool { return e.Kind != aFile || e.Inode != 0 && e.Inode == o.Inode }

// alike reports whether two entries say the same of a name, but for the inode and the content. Directories change by
// what is in them: those names have entries of their own.
func (e *entry) alike(o *entry) bool {
	if e.Kind != o.Kind || e.Mode != o.Mode || e.UID != o.UID || e.GID != o.GID {
		return false
	}
	return e.Kind == aDir ||
		e.Changed == o.Changed && e.Touched == o.Touched && e.Size == o.Size && string(e.Target) == string(o.Target)
}

// own reports whether a path is Toolyard's own: what is noted there is about what is under way, and not of the
// workspace.
func own(p string) bool { return p == protect.MarkDir || p == protect.GitMarkDir }

// join is [path.Join] for a name that is not cleaned.
func join(dir, name string) string {
	if dir == atTheTop {
		return name
	}
	return dir + "/" + name
}

// head begins a stored listing.
type head struct {
	Version int       `json:"version"`
	Key     Key       `json:"key"`
	Begun   time.Time `json:"begun"`
	Entries int       `json:"entries"`
	// Ticket is the number under which a restore has begun.
	Ticket uint64 `json:"ticket,omitempty"`
}

const listingVersion = 1

// listing is a workspace at one time.
type listing struct {
	head
	entries []entry
}

// write stores a listing in a new file.
func (l *listing) write(file string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	l.Version, l.Entries = listingVersion, len(l.entries)
	lines := json.NewEncoder(z)
	if err := lines.Encode(l.head); err != nil {
		return err
	}
	for i := range l.entries {
		if err := lines.Encode(&l.entries[i]); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Sync()
}

// reading is a stored listing that is being read.
type reading struct {
	head
	f     *os.File
	lines *json.Decoder
}

// begin opens a stored listing.
func begin(file string) (*reading, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	r := &reading{f: f}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err == nil {
		r.lines = json.NewDecoder(z)
		err = r.lines.Decode(&r.head)
	}
	if err == nil && r.Version != listingVersion {
		err = fmt.Errorf("it has the form %d, and this program knows %d", r.Version, listingVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the listing %s: %w", path.Base(file), err), f.Close())
	}
	return r, nil
}

// next reads an entry. [io.EOF] says that all were read.
func (r *reading) next(e *entry) error {
	err := r.lines.Decode(e)
	if r.Entries--; errors.Is(err, io.EOF) && r.Entries != -1 || err == nil && r.Entries < 0 {
		return fmt.Errorf("the listing has another number of names than it says: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// readHead reads what a stored listing says of itself.
func readHead(file string) (head, error) {
	r, err := begin(file)
	if err != nil {
		return head{}, err
	}
	return r.head, r.f.Close()
}

// readListing reads a stored listing: all of it, or none.
func readListing(file string) (*listing, error) {
	r, err := begin(file)
	if err != nil {
		return nil, err
	}
	l := &listing{head: r.head}
	for {
		var e entry
		if err := r.next(&e); errors.Is(err, io.EOF) {
			return l, r.f.Close()
		} else if err != nil {
			return nil, errors.Join(fmt.Errorf("read the listing %s: %w", path.Base(file), err), r.f.Close())
		}
		l.entries = append(l.entries, e)
	}
}

// differences are the paths whose entries are not the same in two listings, so many at most, and how many there are.
func differences(a, b *listing, most int, hidden func(string) bool) (paths []string, all int) {
	at := make(map[string]*entry, len(a.entries))
	for i := range a.entries {
		at[string(a.entries[i].Path)] = &a.entries[i]
	}
	note := func(p string) {
		if all++; len(paths) < most && p != atTheTop && (hidden == nil || !hidden(p)) {
			paths = append(paths, p)
		}
	}
	for i := range b.entries {
		e := &b.entries[i]
		old, ok := at[string(e.Path)]
		if !ok || !old.same(e) {
			note(string(e.Path))
		}
		delete(at, string(e.Path))
	}
	for i := range a.entries { // in their order
		if p := string(a.entries[i].Path); at[p] != nil {
			note(p)
		}
	}
	return paths, all
}
