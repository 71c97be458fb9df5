//go:build unix

package dispatchercmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestEventsForAPipe: where nobody reads the pipe that the events go to, the command ends when it is interrupted.
func TestEventsForAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "events")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(cli.ErrInterrupted)
	opened := make(chan error, 1)
	go func() { opened <- (&outputFlags{events: pipe}).open(ctx) }()
	select {
	case err := <-opened:
		if !errors.Is(err, cli.ErrInterrupted) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for somebody who reads")
	}
	if reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil { // ends what still waits
		t.Error(err)
	} else if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// TestEventsForAReaderThatStops: where the reader of the pipe takes nothing more, the command ends when it is
// interrupted.
func TestEventsForAReaderThatStops(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "events")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must.OK(t, err)
	out := outputFlags{events: pipe}
	must.OK(t, out.open(t.Context()))
	ctx, interrupt := context.WithCancelCause(t.Context())
	written := make(chan error, 1)
	go func() {
		written <- out.writeEvents(ctx, func(yield func([]byte, error) bool) {
			for n := 0; yield(make([]byte, 1<<10), nil); n++ {
				if n == 32 {
					interrupt(cli.ErrInterrupted)
				}
			}
		})
	}()
	select {
	case err := <-written:
		if !errors.Is(err, cli.ErrInterrupted) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the reader")
	}
	if err := reader.Close(); err != nil { // ends what still writes
		t.Error(err)
	}
}
