package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/toolyard/toolyard/tool"
)

// openFlags prevent an open from waiting for the other end of a FIFO, and from acquiring a controlling terminal.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// openFile opens a target for reading. It checks the type of the open file again, because the name may refer to another
// file since it was resolved.
func (w *workspace) openFile(t target) (*os.File, fs.FileInfo, error) {
	f, err := w.root.OpenFile(t.name, openFlags, 0)
	if err != nil {
		return nil, nil, w.fault(t.field, t.written, "open", err)
	}
	info, err := f.Stat()
	if err == nil {
		if err = isRegular(t.field, t.written, info); err == nil {
			err = w.shownFile(t, info)
		}
	} else {
		err = w.fault(t.field, t.written, "look at", err)
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return f, info, nil
}

// readAll reads a target of at most max bytes.
func (w *workspace) readAll(ctx context.Context, t target, max int64) ([]byte, fs.FileInfo, error) {
	f, info, err := w.openFile(t)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // it was only read
	if info.Size() > max {
		return nil, nil, tooLarge(t, info.Size(), max)
	}
	data, err := io.ReadAll(io.LimitReader(untilStopped{ctx, f}, max+1))
	switch {
	case stopped(ctx) != nil:
		return nil, nil, stopped(ctx)
	case err != nil:
		return nil, nil, w.fault(t.field, t.written, "read", err)
	case int64(len(data)) > max:
		return nil, nil, tooLarge(t, int64(len(data)), max)
	}
	return data, info, nil
}

func tooLarge(t target, size, max int64) error {
	return tool.Invalid("%s %s has %d bytes or more; this tool takes files of at most %d", t.field, show(t.written),
		size, max)
}

// readDir reads a directory, and returns at most max entries sorted by name, without those that are hidden. has is how
// many entries it has, hidden ones too; with more than max it may not have been read to its end.
func (w *workspace) readDir(ctx context.Context, name string, max int) (entries []fs.DirEntry, has int, err error) {
	f, err := w.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() // it was only read
	const chunk = 512
	for err == nil && len(entries) <= max {
		if err = stopped(ctx); err != nil {
			return nil, 0, err
		}
		var part []fs.DirEntry
		part, err = f.ReadDir(chunk)
		entries = append(entries, part...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	has = len(entries)
	if w.hides != nil {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return w.hidden(path.Join(name, e.Name())) })
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries[:min(len(entries), max)], has, err
}

// untilStopped is a reader that fails once the context has ended.
type untilStopped struct {
	ctx context.Context
	r   io.Reader
}

func (u untilStopped) Read(p []byte) (int, error) {
	if err := stopped(u.ctx); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
