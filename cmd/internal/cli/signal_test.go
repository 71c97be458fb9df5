//go:build unix

package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
)

func TestSignalEndsTheContext(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		var stderr bytes.Buffer
		status := Main(ending(func(ctx context.Context) error {
			if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("wait for results: %w", ctx.Err())
		}), []string{}, &stderr)
		if status != ExitInterrupted || stderr.String() != "prog: interrupted\n" {
			t.Errorf("%s: status %d, %q", sig, status, &stderr)
		}
	}
}

// TestHangupReloads: SIGHUP does not end a command that reads its files again then.
func TestHangupReloads(t *testing.T) {
	var stderr bytes.Buffer
	status := Main(ending(func(ctx context.Context) error {
		var r Reload
		read := make(chan struct{})
		r.On("a file", func() error { close(read); return nil })
		r.Follow(ctx, slog.New(slog.DiscardHandler))
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		select {
		case <-read:
		case <-ctx.Done():
		}
		return ctx.Err()
	}), []string{}, &stderr)
	if status != ExitOK || stderr.Len() > 0 {
		t.Errorf("status %d, %q", status, &stderr)
	}
}
