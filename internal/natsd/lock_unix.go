//go:build unix

package natsd

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock of a file, which ends with the file. It reports whether another holds it.
func tryLock(f *os.File) (held bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return true, nil
		}
		return false, err
	}
}
