package dispatchercmd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

const (
	// tempLock is the file in a temporary directory that its process holds locked.
	tempLock = "toolyard-process.lock"
	// tempHost is the file that has the name of its machine: a lock of another one, on a shared disk, may not be seen
	// here. It is written behind the lock, and nobody else takes the lock before.
	tempHost = "toolyard-process.host"
	// tempContent is what of a temporary directory is used.
	tempContent = "content"
)

// tempDir makes a temporary directory that goes with this process: it is removed by remove, or by the next process of
// the same user that makes one with that prefix when this one was killed. The lock lasts as long as remove is held.
func tempDir(prefix string, log *slog.Logger) (dir string, remove func(), err error) {
	host, err := os.Hostname()
	if err != nil { // nobody can tell later whether its process has ended
		log.Debug("the machine has no name", "error", err)
	} else {
		removeLeft(os.TempDir(), prefix, host, log)
	}
	top, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", nil, err
	}
	lock := flock.New(filepath.Join(top, tempLock))
	remove = func() {
		if err := errors.Join(os.RemoveAll(filepath.Join(top, tempContent)), lock.Close(),
			os.RemoveAll(top)); err != nil {
			log.Warn("a temporary directory was not removed", "path", top, "error", err)
		}
	}
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = errors.New("somebody else has locked it")
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(top, tempHost), []byte(host), 0o600)
	}
	dir = filepath.Join(top, tempContent)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("%s: %w", top, err)
	}
	return dir, remove, nil
}

// removeLeft removes the directories with a prefix that processes of this user have left which were killed on this
// machine.
func removeLeft(where, prefix, host string, log *slog.Logger) {
	all, err := os.ReadDir(where)
	if err != nil {
		log.Debug("temporary directories that were left are not looked for", "error", err)
		return
	}
	for _, d := range all {
		if !strings.HasPrefix(d.Name(), prefix) {
			continue
		}
		top := filepath.Join(where, d.Name())
		switch removed, err := removeUnlocked(top, host); {
		case err != nil && !errors.Is(err, fs.ErrNotExist): // or another process has removed it
			log.Info("a temporary directory that was left stays", "path", top, "error", err)
		case removed:
			log.Info("a temporary directory was removed that a killed process has left", "path", top)
		}
	}
}

// removeUnlocked removes one directory if its process has ended.
func removeUnlocked(top, host string) (removed bool, err error) {
	info, err := os.Lstat(top)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !ours(info) {
		return false, err
	}
	name := filepath.Join(top, tempLock)
	if info, err = os.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	of, err := os.ReadFile(filepath.Join(top, tempHost))
	if err != nil || host == "" || string(of) != host {
		return false, err
	}
	lock := flock.New(name)
	locked, err := lock.TryLock()
	if err != nil || !locked {
		return false, errors.Join(err, lock.Close())
	}
	// Its process is gone, and no other ever locks it: whoever makes a directory makes another one.
	err = errors.Join(os.RemoveAll(filepath.Join(top, tempContent)), lock.Close())
	if err == nil {
		err = os.RemoveAll(top)
	}
	return err == nil, err
}
