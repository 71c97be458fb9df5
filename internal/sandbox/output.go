package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// drainTimeout is how long output may take to arrive after all processes that could write it have ended.
const drainTimeout = 2 * time.Second

// budget is the remaining output of both streams of a command or program.
type budget struct {
	left int64
	full chan struct{} // closed when there was too much
	once sync.Once

	copied  chan error // one per finished copy
	readers []*os.File
}

func newBudget(bytes int64) *budget {
	const streams = 2
	return &budget{left: bytes, full: make(chan struct{}), copied: make(chan error, streams)}
}

// over is closed when there was too much output.
func (b *budget) over() <-chan struct{} { return b.full }

func (b *budget) isOver() bool { return atomic.LoadInt64(&b.left) < 0 }

// pipe makes a stream whose output goes to a writer (nil: nowhere), as far as it fits. It returns the program's end;
// the caller closes it after passing it on.
func (b *budget) pipe(to io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.readers = append(b.readers, r)
	go func() { b.copied <- errors.Join(b.copy(to, r), r.Close()) }()
	return w, nil
}

// drain waits for pending output of processes that have ended.
func (b *budget) drain() (err error) {
	late := time.NewTimer(drainTimeout)
	defer late.Stop()
	for range b.readers {
		select {
		case e := <-b.copied:
			err = errors.Join(err, e)
		case <-late.C:
			closeAll(b.readers) // a process that still writes has escaped, and loses its reader
			return errors.Join(err, errors.New("the output did not end with its program"))
		}
	}
	return err
}

// copy passes on what fits and drops the rest, until the end.
func (b *budget) copy(to io.Writer, from io.Reader) error {
	if to == nil {
		to = io.Discard
	}
	buf := make([]byte, 32<<10)
	var failed error
	for {
		n, err := from.Read(buf)
		left := atomic.AddInt64(&b.left, -int64(n))
		if left < 0 {
			b.once.Do(func() { close(b.full) })
			n = int(max(left+int64(n), 0))
		}
		if n > 0 && failed == nil {
			_, failed = to.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			return failed
		}
		if err != nil {
			return errors.Join(failed, err)
		}
	}
}

// closeAll closes files of which a program has copies.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // pipes and sockets, of which nothing was written here
	}
}
