package natsd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

const (
	// lockName is the file in the store directory whose lock means: a server lives here. It is never removed: removing
	// it would let two servers lock two files of that name.
	lockName = "server.lock"
	// holderName is the file that has the server's process id. On Windows nobody else can read a file that is locked.
	holderName = "server.pid"
)

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

// lockStore makes dir if needed and takes it for this server. Closing the lock gives it back.
func lockStore(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("natsd: make the store directory: %w", err)
	}
	lock, holder := flock.New(filepath.Join(dir, lockName)), filepath.Join(dir, holderName)
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("natsd: lock store directory %s: %w", dir, err)
	}
	if !locked {
		by, _ := os.ReadFile(holder) // only makes the message better
		return nil, &StoreInUseError{Dir: dir, Holder: strings.TrimSpace(string(by))}
	}
	if err := os.WriteFile(holder, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("natsd: write %s: %w", holder, err), lock.Close())
	}
	return lock, nil
}
