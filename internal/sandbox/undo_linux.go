package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"syscall"
	"time"

	held "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/protect"
)

// record is what must be undone in a workspace after a command. It is stored in the workspace while the command runs,
// where the command cannot write it. After a worker was killed, the next one finds it.
type record struct {
	// Made are the protected places that were missing and were created for the run.
	Made []protect.Place `json:"made,omitempty"`
	// Absent are those that were missing and must not appear.
	Absent []string `json:"absent,omitempty"`
	// Mode is the directory's original mode.
	Mode fs.FileMode `json:"mode"`
}

const (
	recordName = "run"
	// maxRecordBytes bounds the reading of a record.
	maxRecordBytes = 1 << 20
	// settle is how long a sandbox may outlive its worker; 13 ms were measured.
	settle = 500 * time.Millisecond
	// maxGone is how many entries one clean-up moves before it gives up.
	maxGone = 1 << 20
)

// writeRecord writes the record: in .git if there is one, which git shows to nobody, otherwise in a directory of its
// own.
func (l *lease) writeRecord() error {
	info, err := l.lock.Stat()
	if err != nil {
		return err
	}
	l.Mode = info.Mode().Perm()
	dir := protect.MarkDir
	if l.isRepository() {
		dir = protect.GitMarkDir
		if err := l.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := l.root.Lstat(dir); err != nil || !info.IsDir() {
			return errors.Join(err, fmt.Errorf("%s is no directory", dir))
		}
	} else if err := held.Mark(l.root); err != nil {
		return err
	}
	b, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	next := path.Join(dir, recordName+".new")
	if err := l.root.WriteFile(next, b, 0o644); err != nil {
		return err
	}
	at := path.Join(dir, recordName)
	if err := l.root.Rename(next, at); err != nil {
		return err
	}
	l.recorded = at
	return nil
}

// isRepository reports whether the record is in .git.
func (l *lease) isRepository() bool {
	_, err := l.root.Lstat(".git/HEAD")
	return err == nil
}

// recover does what a killed worker could not: it undoes its record.
func (l *lease) recover(ctx context.Context) error {
	for _, dir := range []string{protect.GitMarkDir, protect.MarkDir} {
		at := path.Join(dir, recordName)
		if top, err := l.root.Lstat(parentsOf(at)[0]); err == nil && top.Mode()&fs.ModeSymlink != 0 {
			continue // no command runs if it is a link: see makeProtection
		}
		info, err := l.root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		select { // the worker is dead, and its sandbox dies with it
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		case <-time.After(settle):
		}
		var b []byte
		if err == nil && (!info.Mode().IsRegular() || info.Size() > maxRecordBytes) {
			err = errors.New("it is no plain file, or too large")
		}
		if err == nil {
			b, err = l.root.ReadFile(at)
		}
		dead := &lease{leased: l.leased, from: l.from, root: l.root, lock: l.lock, recorded: at}
		if err == nil {
			err = json.Unmarshal(b, &dead.record)
		}
		if err != nil {
			err = fmt.Errorf("a worker was killed here, and what it has to undo cannot be read (%s): %w", at, err)
			return fmt.Errorf("%w: %w", ErrViolation, errors.Join(err,
				l.from.Quarantine(held.Quarantine{Why: err.Error(), Since: time.Now().UTC()})))
		}
		if _, err := dead.undo(); err != nil {
			return fmt.Errorf("%w: %w", ErrViolation, err)
		}
	}
	return nil
}

// Recover undoes in a workspace what a killed worker has left. It does nothing in a workspace that is in use.
func Recover(ctx context.Context, root *held.Root) error {
	if q, err := root.Quarantined(); err != nil || q != nil {
		return err
	}
	for _, dir := range []string{protect.GitMarkDir, protect.MarkDir} {
		r, err := root.Open()
		if err != nil {
			return err
		}
		_, missing := r.Lstat(path.Join(dir, recordName))
		if err := r.Close(); err != nil {
			return err
		}
		if missing != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 2*settle)
		defer cancel()
		l, err := acquire(ctx, &Workspace{Root: root, Writable: true})
		if errors.Is(err, ErrBusy) {
			return nil // the user of the workspace recovers it
		}
		if err != nil {
			return err
		}
		_, err = l.release()
		return err
	}
	return nil
}

// undo removes what must not exist, then what was created for the run, then the record. It returns what must not have
// existed. If something cannot be removed, the workspace goes into quarantine.
func (l *lease) undo() (trespasses []string, err error) {
	var left []string
	for _, p := range l.Absent {
		at, there := l.appeared(p)
		if !there {
			continue
		}
		trespasses = append(trespasses, at)
		if gone := l.takeAway(at); gone != nil {
			left = append(left, at)
			err = errors.Join(err, fmt.Errorf("take %s out of the workspace: %w", at, gone))
		}
	}
	if err == nil { // while a planted place remains, the placeholder for git remains too
		for i := len(l.Made) - 1; i >= 0; i-- {
			if gone := l.removeMade(l.Made[i]); gone != nil {
				left = append(left, l.Made[i].Path)
				err = errors.Join(err, fmt.Errorf("take %s out of the workspace: %w", l.Made[i].Path, gone))
			}
		}
	}
	if err == nil {
		err = l.finishUndo()
	}
	if err == nil {
		return trespasses, nil
	}
	q := held.Quarantine{Why: "after a command: " + err.Error(), Since: time.Now().UTC(), Places: left}
	return trespasses, errors.Join(err, l.from.Quarantine(q))
}

// appeared says what exists where a place was missing: the place itself, or a symbolic link on the way to it, whatever
// its target.
func (l *lease) appeared(p string) (at string, there bool) {
	for _, at := range append(parentsOf(p), p) {
		info, err := l.root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return "", false
		case errors.Is(err, fs.ErrPermission):
			if l.unlock(path.Dir(at)) != nil {
				return at, true // unknown
			}
			if info, err = l.root.Lstat(at); err != nil {
				return at, !errors.Is(err, fs.ErrNotExist)
			}
		case err != nil:
			return at, true
		}
		if at == p || info.Mode()&fs.ModeSymlink != 0 {
			return at, true
		}
	}
	return "", false
}

// takeAway moves a planted place away in one step, and then deletes it. It opens directories that the command has
// closed.
func (l *lease) takeAway(p string) error {
	// The name is new, so the command cannot have created it.
	trash := protect.MarkDir + "-" + rand.Text()
	if err := errors.Join(l.unlock("."), l.root.Mkdir(trash, 0o700)); err != nil {
		return err
	}
	moved := 0
	away := func(from string) (string, error) {
		if moved++; moved > maxGone {
			return "", fmt.Errorf("it has more than %d directories", maxGone)
		}
		to := path.Join(trash, strconv.Itoa(moved))
		err := l.root.Rename(from, to)
		if errors.Is(err, fs.ErrPermission) {
			err = nil
			for _, dir := range append(append([]string{"."}, parentsOf(from)...), from) { // its own .. changes too
				err = errors.Join(err, l.unlock(dir))
			}
			if err == nil {
				err = l.root.Rename(from, to)
			}
		}
		return to, err
	}
	top, err := away(p)
	if err != nil {
		return errors.Join(err, l.root.Remove(trash))
	}
	// Directories are moved up one by one, so that none is deeper than two levels, however deep the command has made
	// them.
	for rest := []string{top}; len(rest) > 0; rest = rest[:len(rest)-1] {
		at := rest[len(rest)-1]
		info, err := l.root.Lstat(at)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := l.unlock(at); err != nil {
				return err
			}
			entries, err := fs.ReadDir(l.root.FS(), at)
			if err != nil {
				return err
			}
			var below []string
			for _, e := range entries {
				name := path.Join(at, e.Name())
				if !e.IsDir() {
					if err := l.root.Remove(name); err != nil {
						return err
					}
					continue
				}
				to, err := away(name)
				if err != nil {
					return err
				}
				below = append(below, to)
			}
			if err := l.root.Remove(at); err != nil {
				return err
			}
			rest = append(append(rest[:len(rest)-1], below...), "") // the loop removes the last one
			continue
		}
		if err := l.root.Remove(at); err != nil {
			return err
		}
	}
	return l.root.Remove(trash)
}

// unlock gives the owner of a directory access to it.
func (l *lease) unlock(dir string) error {
	if dir == "." { // by its descriptor, because the path is not accessible
		info, err := l.lock.Stat()
		if err != nil || info.Mode()&0o700 == 0o700 {
			return err
		}
		return l.lock.Chmod(info.Mode().Perm() | 0o700)
	}
	info, err := l.root.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode()&0o700 == 0o700 {
		return err
	}
	return l.root.Chmod(dir, info.Mode().Perm()|0o700)
}

// removeMade removes what was created for the run, if it is unchanged: something else may have been put there after a
// worker was killed.
func (l *lease) removeMade(p protect.Place) error {
	info, err := l.root.Lstat(p.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	case p.Make == protect.File && (!info.Mode().IsRegular() || info.Size() != int64(len(p.Content))),
		p.Make == protect.Directory && !info.IsDir():
		return nil
	}
	remove := func() error { return l.root.Remove(p.Path) }
	if err = remove(); errors.Is(err, fs.ErrPermission) {
		if err = l.unlock(path.Dir(p.Path)); err == nil {
			err = remove()
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return err
}

// finishUndo restores the directory's mode, if the command has removed its owner's access, and removes the record.
func (l *lease) finishUndo() error {
	info, err := l.lock.Stat()
	if err == nil && info.Mode()&0o700 != l.Mode&0o700 {
		err = l.lock.Chmod(l.Mode)
	}
	if err != nil {
		return fmt.Errorf("give the workspace's directory its mode back: %w", err)
	}
	for _, dir := range []string{path.Dir(l.recorded), protect.MarkDir} {
		for _, name := range []string{recordName + ".new", recordName, ".gitignore", ""} {
			if err := l.root.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) &&
				!errors.Is(err, syscall.ENOTDIR) {
				return fmt.Errorf("take %s out of the workspace: %w", path.Join(dir, name), err)
			}
		}
	}
	return nil
}
