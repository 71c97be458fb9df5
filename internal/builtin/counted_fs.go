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

// countedFS is a directory of the workspace as doublestar walks it: every look is counted and stops with the call's
// context, and .git stays out of sight unless it is asked for. It is used by one goroutine.
type countedFS struct {
	ctx  context.Context
	w    *workspace
	base string // the directory below the workspace's
	git  bool   // show .git

	left     int // entries that may still be looked at
	unread   int // directories that gave an error
	progress func(tool.Progress)
}

// errWalkLimit stops a walk that has looked at all the entries it may.
var errWalkLimit = errors.New("too many directory entries")

// Open is not how a walk looks at files; it is there because [fs.FS] has it.
func (c *countedFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}

// Stat follows symbolic links that stay inside. What leads out, or can't be seen, is not there.
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

// ReadDir gives a directory's entries sorted by name. A directory that can't be read is counted and is as if empty.
func (c *countedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := c.spend(1); err != nil {
		return nil, err
	}
	if strings.Count(name, "/") >= MaxWalkDepth {
		c.unread++
		return nil, nil
	}
	entries, more, err := c.w.readDir(c.ctx, path.Join(c.base, name), c.left)
	switch {
	case stopped(c.ctx) != nil:
		return nil, stopped(c.ctx)
	case err != nil:
		c.unread++
	}
	if !c.git {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" })
	}
	if err := c.spend(len(entries)); err != nil {
		return nil, err
	}
	if more {
		c.left = 0
	}
	return entries, nil
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
