// Package place holds the directories of workspaces, and says which places in them a path means, for rules that are
// written about places.
package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Forms returns the workspace-relative forms of a path, with slashes: as it is written, and, where that is another,
// where it leads when symbolic links are followed as far as there is something. None when it cannot be told, or is
// outside of the workspace: rules read that strictly. A link whose target is missing cannot be told, as what is written
// through it makes the target.
//
// A relative path is one in the workspace dir, an absolute one may name it as it was given or as links resolve it.
func Forms(dir, path string) []string {
	if dir == "" {
		return nil
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	return forms(dir, root, path)
}

// forms gives the forms of a path in a directory that is called dir, and is root when its links are followed.
func forms(dir, root, path string) []string {
	if path == "" || strings.ContainsRune(path, 0) {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = dir + "/" + path
	}
	if !plainly(path) {
		return nil
	}
	path = filepath.Clean(path)
	written, ok := within(dir, path)
	if !ok {
		if written, ok = within(root, path); !ok {
			return nil
		}
	}
	leads, ok := follow(path)
	if !ok {
		return nil
	}
	real, ok := within(root, leads)
	switch {
	case !ok:
		return nil
	case real == written:
		return []string{written}
	}
	return []string{written, real}
}

// plainly reports whether each ".." of a path leads up from the name that is written before it. Behind a link it leads
// up from where the link leads.
func plainly(path string) bool {
	for at := 0; ; {
		next := strings.Index(path[at:], "/..")
		if next < 0 {
			return true
		}
		at += next + len("/..")
		if at < len(path) && path[at] != '/' {
			continue // a name that begins with dots
		}
		before := filepath.Clean(path[:at-len("/..")])
		real, ok := follow(before)
		up, upOK := follow(filepath.Dir(before))
		if !ok || !upOK || filepath.Dir(real) != up {
			return false
		}
	}
}

func within(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	return filepath.ToSlash(rel), err == nil && filepath.IsLocal(rel)
}

// follow resolves the deepest part of a path that exists.
func follow(path string) (string, bool) {
	for there, rest := path, ""; ; {
		real, err := filepath.EvalSymlinks(there)
		if err == nil {
			return filepath.Join(real, rest), true
		}
		parent := filepath.Dir(there)
		if !errors.Is(err, fs.ErrNotExist) || parent == there {
			return "", false
		}
		if _, err := os.Lstat(there); !errors.Is(err, fs.ErrNotExist) {
			return "", false // a link that leads to nothing, yet
		}
		there, rest = parent, filepath.Join(filepath.Base(there), rest)
	}
}

func isNotDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
