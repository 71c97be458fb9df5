package builtin

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/toolyard/toolyard/tool"
)

// ShownFS is what a call may read of its workspace, as a file system: nothing that leads out of it, nothing that
// permission rules hide, and the content of regular files and directories only. One goroutine may use it at a time.
type ShownFS struct{ w *workspace }

// OpenShown opens the call's workspace. The caller closes it.
func OpenShown(env tool.Env) (*ShownFS, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return nil, err
	}
	return &ShownFS{w}, nil
}

// OpenDir opens another directory, of which all is shown. The caller closes it.
func OpenDir(dir string) (*ShownFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &ShownFS{&workspace{root: root}}, nil
}

// Close closes the directory. Files that were opened stay open.
func (s *ShownFS) Close() error { return s.w.root.Close() }

// Open opens a file or directory for reading. What is hidden is not there.
func (s *ShownFS) Open(name string) (*ShownFile, error) {
	fail := func(err error) (*ShownFile, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	t := target{field: "path", written: name, name: name}
	if s.w.hides != nil {
		var err error
		switch t, err = s.w.resolve(t.field, name); {
		case errors.Is(err, errHidden):
			return fail(fs.ErrNotExist)
		case err != nil:
			return fail(fs.ErrPermission)
		case t.info == nil:
			return fail(fs.ErrNotExist)
		}
	}
	info, err := s.w.root.Stat(t.name)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return &ShownFile{info: info, w: s.w, name: t.name}, nil
	}
	var f *os.File
	if err == nil {
		f, err = s.w.root.OpenFile(t.name, openFlags, 0)
	}
	if err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok && !s.w.escaped(err) {
			return fail(failed.Err)
		}
		return fail(fs.ErrPermission)
	}
	info, err = f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
	case !info.Mode().IsRegular():
		err = fs.ErrPermission
	case s.w.shownFile(t, info) != nil:
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close() // it was only read
		return fail(err)
	}
	return &ShownFile{f: f, w: s.w, name: t.name}, nil
}

// ShownFile is an open file or directory that can only be read. One that is neither says what it is, and nothing else.
type ShownFile struct {
	f    *os.File // nil: it is neither
	info fs.FileInfo
	w    *workspace
	name string
}

// Stat says what it is.
func (s *ShownFile) Stat() (fs.FileInfo, error) {
	if s.f == nil {
		return s.info, nil
	}
	return s.f.Stat()
}

// Close closes it.
func (s *ShownFile) Close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// Read reads on. A nil file of the standard library answers with an error.
func (s *ShownFile) Read(b []byte) (int, error) { return s.f.Read(b) }

// ReadAt reads at an offset.
func (s *ShownFile) ReadAt(b []byte, at int64) (int, error) { return s.f.ReadAt(b, at) }

// Seek moves to an offset.
func (s *ShownFile) Seek(offset int64, whence int) (int64, error) { return s.f.Seek(offset, whence) }

// ReadDir leaves out what is hidden.
func (s *ShownFile) ReadDir(n int) ([]fs.DirEntry, error) {
	for {
		list, err := s.f.ReadDir(n)
		list = slices.DeleteFunc(list, func(e fs.DirEntry) bool { return s.w.hidden(path.Join(s.name, e.Name())) })
		if n <= 0 || err != nil || len(list) > 0 {
			if len(list) > 0 && errors.Is(err, io.EOF) {
				err = nil
			}
			return list, err
		}
	}
}
