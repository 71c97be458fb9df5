package stage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// takeArchives takes the archives of Keep from the descriptors, of which they are the last.
func (w *watch) takeArchives() error {
	k := w.spec.Keep
	if k == nil {
		return nil
	}
	take := func(wanted bool, name string) (f *os.File, err error) {
		if !wanted {
			return nil, nil
		}
		last := len(w.fds) - 1
		if last < streams {
			return nil, fmt.Errorf("no descriptor of the archive to %s", name)
		}
		f, w.fds = os.NewFile(uintptr(w.fds[last]), name), w.fds[:last]
		_, err = f.Seek(0, io.SeekStart) // an earlier stage may have had it
		return f, err
	}
	var err error
	if w.to, err = take(k.To, "write"); err == nil {
		w.from, err = take(k.From, "read")
	}
	return err
}

// unpack fills the directory of Keep.
func (w *watch) unpack() error {
	k := w.spec.Keep
	if k == nil {
		return nil
	}
	root, err := os.OpenRoot(k.Dir)
	if err != nil {
		return err
	}
	if w.standing, err = standing(root); err == nil && w.from != nil {
		err = errors.Join(unpack(root, bufio.NewReader(w.from), k), w.from.Close())
	}
	return errors.Join(err, root.Close())
}

// standing are the names in a directory that belong to the sandbox and not to the command: mounts, such as a workspace
// below /tmp, and the directories on the way to them. The value says that nothing of it is the command's.
func standing(root *os.Root) (map[string]bool, error) {
	found := map[string]bool{}
	top, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		found[name] = !d.IsDir() || device(info) != device(top)
		if d.IsDir() && found[name] {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// device is the file system on which a file lies.
func device(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Dev) }

// pack keeps what is in the directory of Keep. Only this process runs by now. Nil: nobody has asked for it.
func (w *watch) pack() *Kept {
	if w.to == nil {
		return nil
	}
	k := w.spec.Keep
	root, err := os.OpenRoot(k.Dir)
	if err != nil {
		return &Kept{Problem: err.Error()}
	}
	out := bufio.NewWriter(w.to)
	kept, err := pack(root, out, k, w.standing)
	if err == nil {
		err = out.Flush()
	}
	if err = errors.Join(err, root.Close(), w.to.Close()); err != nil {
		kept.Problem = err.Error()
	}
	return &kept
}

// maxDepth is how deep directories of an archive may lie in one another. What is deeper is left out.
const maxDepth = 64

// errTooMuch says that an archive would exceed its limits.
var errTooMuch = errors.New("too much")

// pack writes an archive of a directory: an [Entry] for each name, with the content of files behind it, and an empty
// one at the end. It changes nothing, follows no link, and leaves out what it cannot read and what is [standing].
func pack(root *os.Root, out io.Writer, k *Keep, ours map[string]bool) (kept Kept, err error) {
	err = fs.WalkDir(anyNames{root}, ".", func(name string, d fs.DirEntry, failed error) error {
		if name == "." {
			return failed
		}
		if failed != nil { // a directory whose entry is written, and whose names cannot be read
			kept.Left++
			return fs.SkipDir
		}
		if whole, found := ours[name]; found {
			if whole && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		e, skip := entryOf(root, name, d)
		switch {
		case name == k.Note && k.Note != "":
			kept.Note = note(root, name, k.MaxNote)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case skip != nil:
			kept.Left++
			if errors.Is(skip, fs.SkipDir) {
				return fs.SkipDir
			}
			return nil
		}
		kept.Names, kept.Bytes = kept.Names+1, kept.Bytes+e.Size
		if kept.Names > k.Names || kept.Bytes > k.Bytes {
			return fmt.Errorf("%w: more than %d names or %d bytes", errTooMuch, k.Names, k.Bytes)
		}
		if e.Kind != FileEntry {
			return Write(out, &e)
		}
		f, err := root.Open(name)
		if err != nil { // its mode forbids it
			kept.Names, kept.Bytes, kept.Left = kept.Names-1, kept.Bytes-e.Size, kept.Left+1
			return nil
		}
		err = Write(out, &e)
		if err == nil {
			_, err = io.CopyN(out, f, e.Size)
		}
		return errors.Join(err, f.Close())
	})
	if err == nil {
		err = Write(out, &Entry{})
	}
	return kept, err
}

// anyNames is a directory whose names need not be UTF-8, as those that [os.Root.FS] opens must.
type anyNames struct{ root *os.Root }

func (d anyNames) Open(name string) (fs.File, error) { return d.root.Open(name) }

// validPath is [fs.ValidPath] for names that need not be UTF-8.
func validPath(name string) bool { return fs.ValidPath(strings.ToValidUTF8(name, "_")) }

// entryOf describes one name. skip says that it is left out, and [fs.SkipDir] with all that is in it.
func entryOf(root *os.Root, name string, d fs.DirEntry) (e Entry, skip error) {
	info, err := d.Info()
	if err != nil {
		return e, err
	}
	e = Entry{Path: name, Mode: uint32(info.Mode().Perm()), Time: info.ModTime().UnixNano()}
	switch info.Mode().Type() {
	case fs.ModeDir:
		if e.Kind = DirEntry; strings.Count(name, "/") >= maxDepth {
			return e, fs.SkipDir
		}
	case 0:
		e.Kind, e.Size = FileEntry, info.Size()
	case fs.ModeSymlink:
		e.Kind = LinkEntry
		e.To, err = root.Readlink(name)
		return e, err
	default:
		return e, errors.New("no file")
	}
	return e, nil
}

// note reads a file of at most limit bytes; nil if there is none.
func note(root *os.Root, name string, limit int64) []byte {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return nil
	}
	content, err := root.ReadFile(name)
	if err != nil {
		return nil
	}
	return content
}

// unpack makes in an empty directory what an archive has. Nothing outside of the directory is touched, whatever the
// archive says.
func unpack(root *os.Root, in io.Reader, k *Keep) error {
	var dirs []Entry
	var names, bytes int64
	for {
		var e Entry
		if err := Read(in, &e); err != nil {
			return fmt.Errorf("the archive is cut: %w", err)
		}
		if e.Kind == 0 {
			break
		}
		if names, bytes = names+1, bytes+e.Size; names > k.Names || e.Size < 0 || bytes > k.Bytes {
			return fmt.Errorf("the archive has %w: more than %d names or %d bytes", errTooMuch, k.Names, k.Bytes)
		}
		if !validPath(e.Path) || e.Path == "." || strings.ContainsRune(e.Path, 0) {
			return fmt.Errorf("the archive has the name %q", e.Path)
		}
		var err error
		switch e.Kind {
		case DirEntry:
			err = root.Mkdir(e.Path, 0o700)
			dirs = append(dirs, e)
		case LinkEntry:
			err = root.Symlink(e.To, e.Path)
		case FileEntry:
			err = unpackFile(root, &e, in)
		default:
			err = fmt.Errorf("%s is of the kind %d", e.Path, e.Kind)
		}
		if err != nil {
			return err
		}
	}
	// A directory may forbid what lies in it to be made, and gets a new time by it.
	for i := len(dirs) - 1; i >= 0; i-- {
		d, err := root.Open(dirs[i].Path)
		if err != nil {
			return err
		}
		err = dress(d, &dirs[i])
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(root *os.Root, e *Entry, in io.Reader) error {
	if dir := path.Dir(e.Path); dir != "." {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s does not lie in a directory (%w)", e.Path, errors.Join(err, fs.ErrInvalid))
		}
	}
	f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.CopyN(f, in, e.Size); err == nil {
		err = dress(f, e)
	}
	return errors.Join(err, f.Close())
}

// dress gives an open file or directory the mode and the time of its entry.
func dress(f *os.File, e *Entry) error {
	if err := f.Chmod(fs.FileMode(e.Mode) & fs.ModePerm); err != nil {
		return err
	}
	t := unix.NsecToTimespec(e.Time)
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []unix.Timespec{t, t}, 0)
}
