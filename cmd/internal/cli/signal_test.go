//go:build unix

package cli

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"testing"
)

func TestSignalEndsTheContext(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
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
