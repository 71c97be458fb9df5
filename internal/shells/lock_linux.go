package shells

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/pause"
)

// lockPause is how long a lock that another has is behind the next look at it.
const lockPause = 5 * time.Millisecond

var errBusy = errors.New("another worker has the lock of the shells")

// lock waits until nobody else uses the store, and makes its directory.
func (s *Store) lock(ctx context.Context) (unlock func() error, err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.path(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, LockWait, errBusy)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if pause.For(ctx, lockPause) != nil {
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}
