package wasm

import (
	"errors"
	"io/fs"

	"github.com/tetratelabs/wazero"

	"github.com/toolyard/toolyard/internal/builtin"
)

// mounts are the directories that a module may read, for one call. Only the module's thread uses them.
type mounts struct {
	config wazero.FSConfig
	dirs   []*builtin.ShownFS
	open   map[*file]bool
	left   int // files that it may still open
	// refused says that it has tried to open more.
	refused bool
}

// errFiles is the error of a file past the limit.
var errFiles = errors.New("too many open files")

// add makes a directory readable under a name.
func (m *mounts) add(dir *builtin.ShownFS, name string) {
	m.dirs = append(m.dirs, dir)
	m.config = m.config.WithFSMount(mounted{dir, m}, name)
}

// close closes all that is open. It was only read, so errors mean nothing.
func (m *mounts) close() {
	for f := range m.open {
		_ = f.ShownFile.Close()
	}
	for _, dir := range m.dirs {
		_ = dir.Close()
	}
}

// mounted is one of the directories.
type mounted struct {
	dir *builtin.ShownFS
	m   *mounts
}

// Open opens a file or directory, if the module may have one more.
func (d mounted) Open(name string) (fs.File, error) {
	if d.m.left == 0 {
		d.m.refused = true
		return nil, &fs.PathError{Op: "open", Path: name, Err: errFiles}
	}
	f, err := d.dir.Open(name)
	if err != nil {
		return nil, err
	}
	opened := &file{f, d.m}
	if d.m.open == nil {
		d.m.open = map[*file]bool{}
	}
	d.m.open[opened] = true
	d.m.left--
	return opened, nil
}

// file is an open file, which is counted. It has no method that writes.
type file struct {
	*builtin.ShownFile
	m *mounts
}

// Close closes the file once.
func (f *file) Close() error {
	if !f.m.open[f] {
		return fs.ErrClosed
	}
	delete(f.m.open, f)
	f.m.left++
	return f.ShownFile.Close()
}
