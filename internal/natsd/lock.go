package natsd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// lockName is the file in the store directory whose flock means: a server lives here. It is never removed: removing it
// would let two servers lock two files of that name.
const lockName = "server.lock"

// StoreInUseError says that another server, of this or another process, lives in the store directory.
type StoreInUseError struct {
	Dir string
	// Holder is the other server's process id, as far as known; else empty.
	Holder string
}

func (e *StoreInUseError) Error() string {
	by := "another server"
	if e.Holder != "" {
		by += " (process " + e.Holder + ")"
	}
	return fmt.Sprintf("natsd: store directory %s is in use by %s; stop it, or name another directory", e.Dir, by)
}

// lockStore makes dir if needed and takes it for this server. Closing the file gives it back.
func lockStore(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("natsd: make the store directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsd: lock store directory %s: %w", dir, err)
	}
	if held, err := tryLock(f); err != nil || held {
		var holder []byte
		if held {
			holder, _ = io.ReadAll(io.LimitReader(f, 32)) // only makes the message better
			err = &StoreInUseError{Dir: dir, Holder: strings.TrimSpace(string(holder))}
		} else {
			err = fmt.Errorf("natsd: lock store directory %s: %w", dir, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := writeHolder(f); err != nil {
		return nil, errors.Join(fmt.Errorf("natsd: write %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

func writeHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}
