package builtin

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// target is the resolved place of a path inside the workspace.
type target struct {
	field, written string
	// name is the path below the workspace's directory, without symbolic links and ".."; "." is the directory itself.
	name string
	// info is the file's info. Nil if it does not exist.
	info fs.FileInfo
	// have is the deepest existing directory on the way: the parent of name, if only the last name is missing.
	have string
}

// resolve follows a path one name at a time. [os.Root] would follow it too. But it refuses absolute links that stay
// inside, returns the same error for a link out and for a broken name, and does not tell a writer which file a link
// refers to. The result is still opened through the root, which is safe if names are replaced in between.
//
// A path whose last names are missing is not an error here: see [target.exist]. A path that leads to a file for which
// the call has no lock is one: the lock was taken by the path alone.
func (w *workspace) resolve(field, written string) (target, error) {
	t, err := w.find(field, written)
	if err == nil && strings.Contains("/"+written+"/", "/../") { // rules and hooks read it by its names alone
		if plain, e := w.find(field, path.Clean(written)); e != nil || plain.name != t.name {
			return t, tool.Invalid("%s %s has .. behind a symbolic link; give %s instead", field, show(written),
				show(t.name))
		}
	}
	if err != nil || len(w.locks) == 0 {
		return t, err
	}
	if name, ok := registry.FileLock(t.name); !ok || !tool.Hold(w.locks, name, true) {
		return t, tool.Invalid("%s %s leads by a symbolic link to %s, and this batch has named locks; give the path %s "+
			"itself", field, show(written), show(t.name), show(t.name))
	}
	return t, nil
}

// find is resolve without the look at locks.
func (w *workspace) find(field, written string) (target, error) {
	t := target{field: field, written: written, name: "."}
	names, needsDir, err := w.split(field, written)
	if err != nil {
		return t, err
	}
	steps, links := 0, 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if steps++; steps > MaxPathSteps {
			return t, tooManyNames(field, written)
		}
		if name == ".." {
			if t.name == "." {
				return t, leavesError(field, written)
			}
			t.name = path.Dir(t.name)
			continue
		}
		next := path.Join(t.name, name)
		if w.hidden(next) {
			return t, hiddenFault(t)
		}
		info, err := w.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return w.missing(t, name, names, needsDir)
		case err != nil:
			return t, w.fault(field, written, "look at", err)
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > MaxSymlinks {
				return t, tool.Invalid("%s %s goes through more than %d symbolic links; it may lead round in a circle",
					field, show(written), MaxSymlinks)
			}
			more, err := w.follow(t, next)
			if err != nil {
				return t, err
			}
			if more.absolute {
				t.name = "."
			}
			names = append(more.names, names...)
		case !info.IsDir() && (len(names) > 0 || needsDir):
			return t, tool.Invalid("%s %s goes through %s, which is %s and not a directory", field, show(written),
				show(next), kind(info.Mode()))
		default:
			t.name, t.info = next, info
		}
	}
	// A path may end in ".." or in a link to the directory itself, so the target is examined once more.
	if t.info, err = w.root.Lstat(t.name); err != nil {
		return t, w.fault(field, written, "look at", err)
	}
	t.have = path.Dir(t.name)
	return t, nil
}

// missing ends a path at a missing name. The remaining names must go down: ".." after a missing name is undefined.
func (w *workspace) missing(t target, name string, rest []string, needsDir bool) (target, error) {
	t.have, t.info = t.name, nil
	t.name = path.Join(t.name, name)
	for _, name := range rest {
		if name == ".." {
			return t, w.notThere(t)
		}
		t.name = path.Join(t.name, name)
	}
	if w.hidden(t.name) {
		return t, hiddenFault(t)
	}
	if needsDir {
		return t, w.notThere(t)
	}
	return t, nil
}

// link is the content of a symbolic link.
type link struct {
	names    []string
	absolute bool // the names start at the workspace's directory, not at the link's
}

// follow reads a symbolic link. An absolute one must name the workspace's directory.
func (w *workspace) follow(t target, name string) (link, error) {
	text, err := w.root.Readlink(name)
	if err != nil {
		return link{}, w.fault(t.field, t.written, "follow", err)
	}
	if !strings.HasPrefix(text, "/") {
		return link{names: splitNames(text)}, nil
	}
	names, ok := w.inside(text)
	if !ok {
		return link{}, leavesError(t.field, t.written)
	}
	return link{names: names, absolute: true}, nil
}

// exist returns an error if a target does not exist.
func (w *workspace) exist(t target) error {
	if t.info == nil {
		return w.notThere(t)
	}
	return nil
}

// regular returns an error if a target is not a regular file.
func (w *workspace) regular(t target) error {
	if err := w.exist(t); err != nil {
		return err
	}
	return isRegular(t.field, t.written, t.info)
}

// directory returns an error if a target is not a directory.
func (w *workspace) directory(t target) error {
	if err := w.exist(t); err != nil {
		return err
	}
	if !t.info.IsDir() {
		return tool.Invalid("%s %s is %s; give a directory", t.field, show(t.written), kind(t.info.Mode()))
	}
	return nil
}

// isRegular returns an error if info is not that of a regular file.
func isRegular(field, written string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return tool.Invalid("%s %s is a directory; give a file, and use glob to see what is in it", field,
			show(written))
	}
	return tool.Invalid("%s %s is %s; only regular files can be used", field, show(written), kind(info.Mode()))
}

// kind names a file's type, with its article.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe (FIFO)"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func isNameTooLong(err error) bool  { return errors.Is(err, syscall.ENAMETOOLONG) }
func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
