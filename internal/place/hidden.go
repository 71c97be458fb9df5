package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of what is looked through for hidden places.
const (
	MaxHiddenEntries = 1_000_000 // entries of a workspace
	MaxHidden        = 4_096     // hidden places, each with all that is below it
)

// Hidden is a place that is hidden: a file, or a directory with all that is below it.
type Hidden struct {
	Path string // relative to the workspace
	Dir  bool
	// Pins are directories above it. Under another name, or elsewhere, they would show it.
	Pins []string
}

// ID says which file it is, whatever its name.
type ID struct{ dev, ino uint64 }

// Find looks through a workspace for what is hidden: the topmost places, and what is hidden under another name, which
// a hard link or a symbolic link gives it. What cannot be looked at is an error.
func Find(root *os.Root, hides func(path string) bool) ([]Hidden, error) {
	var found []Hidden
	linked := map[ID]bool{}
	add := func(p string, dir bool) error {
		if found = append(found, Hidden{p, dir, pins(p, hides)}); len(found) > MaxHidden {
			return fmt.Errorf("permission rules hide more than %d places of the workspace", MaxHidden)
		}
		return nil
	}
	err := walk(root, hides, func(p string, e fs.DirEntry, inside bool) error {
		switch {
		case e.Type()&fs.ModeSymlink != 0 && inside:
			return nil
		case e.Type()&fs.ModeSymlink != 0:
			if info, err := leads(root, p); err == nil { // a link to nothing shows nothing
				id, _ := Identify(info)
				linked[id] = true
			}
			return nil
		case !inside:
			if err := add(p, e.IsDir()); err != nil {
				return err
			}
		}
		return note(linked, e)
	}, nil)
	if err != nil || len(linked) == 0 {
		return found, err
	}
	return found, walk(root, hides, nil, func(p string, e fs.DirEntry) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if id, _ := Identify(info); !linked[id] {
			return nil
		}
		return add(p, e.IsDir())
	})
}

// leads gives what a link leads to, as a command finds it. A root refuses links that are absolute, or lead out and
// back, also where they end in the workspace. What lies outside is no entry of the workspace, so that it hides nothing.
func leads(root *os.Root, link string) (fs.FileInfo, error) {
	if info, err := root.Stat(link); err == nil {
		return info, nil
	}
	return os.Stat(filepath.Join(root.Name(), link))
}

// pins are the directories above a hidden place that must keep their names: with another one, or elsewhere in the
// workspace, the place would be hidden no more.
func pins(p string, hides func(string) bool) (dirs []string) {
	const other = "zq-another-name"
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		below := strings.TrimPrefix(p, dir)
		if !hides(other+below) || !hides(other+"/"+other+below) {
			dirs = append(dirs, dir)
		}
	}
	slices.Reverse(dirs) // from the top
	return dirs
}

// Linked gives the hidden files of a workspace that have more than one name.
func Linked(root *os.Root, hides func(path string) bool) (map[ID]bool, error) {
	linked := map[ID]bool{}
	return linked, walk(root, hides, func(_ string, e fs.DirEntry, _ bool) error { return note(linked, e) }, nil)
}

// note keeps a hidden file that has more than one name.
func note(linked map[ID]bool, e fs.DirEntry) error {
	id, many, err := entryID(e)
	if err == nil && many {
		linked[id] = true
	}
	return err
}

// entryID says which regular file an entry is, and whether it has more than one name. One that has gone meanwhile is
// none.
func entryID(e fs.DirEntry) (id ID, many bool, err error) {
	if !e.Type().IsRegular() {
		return ID{}, false, nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return ID{}, false, nil
	}
	if err != nil {
		return ID{}, false, err
	}
	id, names := Identify(info)
	return id, names > 1, nil
}

// walk calls hidden for each hidden entry, inside when it lies in a hidden directory, and shown for each other one.
// Nil is not called, and directories that it would be called in alone are not entered.
func walk(root *os.Root, hides func(string) bool, hidden func(p string, e fs.DirEntry, inside bool) error,
	shown func(p string, e fs.DirEntry) error) error {
	entries := 0
	var down func(dir string, inside bool) error
	down = func(dir string, inside bool) error {
		f, err := root.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if errors.Is(err, fs.ErrPermission) && closed(root, dir) {
			return nil
		}
		if err != nil {
			return err
		}
		list, err := f.ReadDir(-1)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if entries += len(list); entries > MaxHiddenEntries {
			return fmt.Errorf("the workspace has more than %d entries, too many to look for those that permission "+
				"rules hide",
				MaxHiddenEntries)
		}
		for _, e := range list {
			p := path.Join(dir, e.Name())
			within := inside || hides(p)
			switch {
			case within && hidden == nil:
				continue
			case within:
				err = hidden(p, e, inside)
			case shown != nil:
				err = shown(p, e)
			}
			if err == nil && e.IsDir() {
				err = down(p, within)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return down(".", false)
}

// closed reports whether a directory that cannot be read is closed to this process for good: it is another user's,
// and no name in it can be looked up. A command has no more rights than the worker, so that nothing in it has to be
// hidden.
func closed(root *os.Root, dir string) bool {
	info, err := root.Lstat(dir)
	if err != nil || !foreign(info) {
		return false
	}
	_, err = root.Lstat(path.Join(dir, "a name"))
	return errors.Is(err, fs.ErrPermission)
}
