package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// The modes of new files and directories, before the process's umask. A file that is replaced keeps its permission
// bits. Its owner becomes the worker's user, and other hard links to it keep the old content, because a new file takes
// the name.
const (
	newFileMode fs.FileMode = 0o666
	newDirMode  fs.FileMode = 0o777
)

// replace gives a target new content in one visible step: a rename, directly after same reported that the target is
// unchanged and the worker confirmed that it may still act for this call. Before that it writes a temporary file beside
// the target. If it fails, it removes the temporary file and the directories that it made; what it cannot remove is in
// the error for the operator. A process that is killed leaves a file named .toolyard-*.tmp.
func (w *workspace) replace(ctx context.Context, env tool.Env, t target, content []byte,
	same func() error) (err error) {
	dir := path.Dir(t.name)
	made, err := w.makeDirs(t, dir)
	var temp string
	defer func() {
		if err == nil {
			return
		}
		var left error
		if temp != "" {
			left = w.root.Remove(temp)
		}
		if made != "" {
			left = errors.Join(left, w.removeEmpty(dir, made))
		}
		err = withLeftovers(err, left)
	}()
	if err != nil {
		return err
	}
	mode, exact := newFileMode, false
	if t.info != nil {
		mode, exact = t.info.Mode().Perm(), true
	}
	temp, err = w.writeTemp(t, dir, content, mode, exact)
	if err != nil {
		return err
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	if err := same(); err != nil {
		return err
	}
	if err := env.CommitPoint(); err != nil {
		return fmt.Errorf("%s %s was not written: the worker may no longer act for this call: %w", t.field,
			show(t.written), err)
	}
	if err := w.root.Rename(temp, t.name); err != nil {
		return w.fault(t.field, t.written, "write", err)
	}
	temp, made = "", "" // the content has its name: nothing is to be taken away
	if err := w.syncDir(dir); err != nil {
		return &tool.Error{
			Code: toolyard.ExecutionFailed,
			Message: fmt.Sprintf("%s %s was written, but it is not certain that this survives a crash of the "+
				"machine; read it before you go on", t.field, show(t.written)),
			Err: err,
		}
	}
	return nil
}

// withLeftovers adds a failed clean-up to a failure, for the operator, if the failure has a field for that.
func withLeftovers(failure, left error) error {
	if left == nil {
		return failure
	}
	left = fmt.Errorf("clean up: %w", left)
	if e, ok := errors.AsType[*tool.Error](failure); ok {
		both := *e
		both.Err = errors.Join(e.Err, left)
		return &both
	}
	return errors.Join(failure, left)
}

// makeDirs creates the missing directories of a target, and returns the topmost new one; "" if there is none.
func (w *workspace) makeDirs(t target, dir string) (made string, err error) {
	if t.info != nil || t.have == dir {
		return "", nil
	}
	rest := dir
	if t.have != "." {
		rest = strings.TrimPrefix(dir, t.have+"/")
	}
	first, _, _ := strings.Cut(rest, "/")
	made = path.Join(t.have, first)
	if err := w.root.MkdirAll(dir, newDirMode); err != nil {
		return "", withLeftovers(w.fault(t.field, t.written, "make the directories of", err), w.removeEmpty(dir, made))
	}
	return made, nil
}

// removeEmpty removes the directories from dir up to top that exist and are empty.
func (w *workspace) removeEmpty(dir, top string) error {
	for {
		if err := w.root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dir == top || dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

// writeTemp writes content to a new file in dir and syncs it. exact says that the file gets this mode whatever the
// umask is. If the file exists, its name is returned even with an error.
func (w *workspace) writeTemp(t target, dir string, content []byte, mode fs.FileMode, exact bool) (name string,
	err error) {
	name = path.Join(dir, ".toolyard-"+rand.Text()+".tmp")
	create := mode
	if exact {
		create = 0o600 // nobody else may read the new content before the mode is set
	}
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, create)
	if err != nil {
		return "", w.fault(t.field, t.written, "write", err)
	}
	_, err = f.Write(content)
	if err == nil && exact {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return name, w.fault(t.field, t.written, "write", err)
	}
	return name, nil
}

// syncDir syncs a directory's names to the disk.
func (w *workspace) syncDir(name string) error {
	d, err := w.root.Open(name)
	if err != nil {
		return err
	}
	return place.SyncDir(d)
}
