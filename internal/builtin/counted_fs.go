package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// countedFS is a directory of the workspace for doublestar's walk. It counts every access, stops with the call's
// context, and hides .git unless it is requested. Only one goroutine uses it.
type countedFS struct {
	ctx  context.Context
	w    *workspace
	base string // the directory below the workspace's
	git  bool   // show .git

	left     int  // entries that may still be read
	unread   int  // directories that gave an error
	cut      bool // a directory has more entries than could be read
	progress func(tool.Progress)
}

// errWalkLimit stops a walk that has read all the entries it may.
var errWalkLimit = errors.New("too many directory entries")

// Open exists only because [fs.FS] requires it.
func (c *countedFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}

// Stat follows symbolic links that stay inside. A path that leads out, or is not accessible, does not exist for it.
func (c *countedFS) Stat(name string) (fs.FileInfo, error) {
	if err := c.spend(1); err != nil {
		return nil, err
	}
	if c.w.hides != nil {
		if _, err := c.w.resolve("pattern", path.Join(c.base, name)); err != nil {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
		}
	}
	info, err := c.w.root.Stat(path.Join(c.base, name))
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return info, nil
}

// ReadDir returns a directory's entries sorted by name. A directory that cannot be read is counted and treated as
// empty.
func (c *countedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := c.spend(1); err != nil {
		return nil, err
	}
	if strings.Count(name, "/") >= MaxWalkDepth {
		c.unread++
		return nil, nil
	}
	entries, has, err := c.w.readDir(c.ctx, path.Join(c.base, name), c.left)
	switch {
	case stopped(c.ctx) != nil:
		return nil, stopped(c.ctx)
	case err != nil:
		c.unread++
	}
	if !c.git {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" })
	}
	c.cut = has > c.left
	if err := c.spend(min(has, c.left)); err != nil {
		return nil, err
	}
	return entries, nil
}

// ended returns the error of a walk. A walk may end without one behind a directory that was read in part.
func (c *countedFS) ended(err error) error {
	if err == nil && c.cut {
		return errWalkLimit
	}
	return err
}

// spend counts n entries.
func (c *countedFS) spend(n int) error {
	if err := stopped(c.ctx); err != nil {
		return err
	}
	const each = 10_000
	if c.left/each != (c.left-n)/each {
		c.progress(tool.Progress{Fraction: -1, Status: fmt.Sprintf("looked at %d directory entries",
			MaxWalkEntries-c.left+n)})
	}
	if c.left -= n; c.left < 0 {
		return errWalkLimit
	}
	return nil
}
