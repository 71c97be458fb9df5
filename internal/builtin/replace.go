package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/tool"
)

// The modes of new files and directories, before the process's umask. A file that is replaced keeps its permission
// bits, and its owner as far as the worker may give files away. Other hard links to it keep the old content, because a
// new file takes the name.
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
	var made []string
	var temp string
	defer func() {
		if err == nil {
			return
		}
		var left error
		if temp != "" {
			left = w.root.Remove(temp)
		}
		err = withLeftovers(err, errors.Join(left, w.removeEmpty(made)))
	}()
	mode, exact := newFileMode, false
	if t.info != nil {
		mode, exact = t.info.Mode().Perm(), true
	}
	for range dirTries {
		if temp, err = w.makeTemp(t, dir, &made, content, mode, exact); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		t.have = "." // another call has failed and removed a directory that it had made
	}
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
	temp, made = "", nil // the content has its name: nothing is to be taken away
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

// dirTries is how often a write makes the directories of its target, if others remove them meanwhile.
const dirTries = 3

// makeTemp is writeTemp in a directory that is made if it is missing; made gets the directories that it has made.
func (w *workspace) makeTemp(t target, dir string, made *[]string, content []byte, mode fs.FileMode, exact bool,
) (name string, err error) {
	if err := w.makeDirs(t, dir, made); err != nil {
		return "", err
	}
	return w.writeTemp(t, dir, content, mode, exact)
}

// makeDirs creates the missing directories of a target, and adds those to made, the topmost first. One that another
// call makes meanwhile is not among them.
func (w *workspace) makeDirs(t target, dir string, made *[]string) error {
	if t.info != nil || t.have == dir {
		return nil
	}
	next, rest := t.have, dir
	if t.have != "." {
		rest = strings.TrimPrefix(dir, t.have+"/")
	}
	for name := range strings.SplitSeq(rest, "/") {
		next = path.Join(next, name)
		switch err := w.root.Mkdir(next, newDirMode); {
		case err == nil:
			*made = append(*made, next)
			w.maker(path.Dir(next)).giveDir(w.root, next)
		case !errors.Is(err, fs.ErrExist): // a file in the way is the error of what is below it
			return w.fault(t.field, t.written, "make the directories of", err)
		}
	}
	return nil
}

// removeEmpty removes directories, the last one first, as far as they are empty: what others have put there stays.
func (w *workspace) removeEmpty(dirs []string) error {
	for _, dir := range slices.Backward(dirs) {
		switch err := w.root.Remove(dir); {
		case errors.Is(err, fs.ErrExist): // it is not empty
			return nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
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
	w.ownerFor(t, dir).give(f)
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

// ownerFor is to whom the new content of a target belongs.
func (w *workspace) ownerFor(t target, dir string) owner {
	if t.info != nil {
		return ownerOf(t.info)
	}
	return w.maker(dir)
}

// syncDir syncs a directory's names to the disk.
func (w *workspace) syncDir(name string) error {
	d, err := w.root.Open(name)
	if err != nil {
		return err
	}
	return durable.Sync(d)
}
