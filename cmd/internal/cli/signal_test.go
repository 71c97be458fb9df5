//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
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

// signaled is the variable that makes a test the program that is signaled.
const signaled = "TOOLYARD_TEST_SIGNALED"

// beSignaled runs the test once more as a program, and signals it until its context has ended. closes ends its work.
func beSignaled(t *testing.T, sig syscall.Signal) (cmd *exec.Cmd, closes io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env, cmd.Stderr = append(os.Environ(), signaled+"=1"), t.Output()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.OK(t, errors.Join(err1, err2, cmd.Start()))
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ended"; {
		must.OK(t, cmd.Process.Signal(sig))
	}
	return cmd, in
}

// tidyUp is a program that is signaled: it tidies up until its input ends.
func tidyUp(ctx context.Context) error {
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("ended")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// TestASignalThatComesTwice: a supervisor signals a program, and what has started the program passes the same signal
// on. What the program has begun is tidied up all the same.
func TestASignalThatComesTwice(t *testing.T) {
	if os.Getenv(signaled) != "" {
		ctx, _ := withSignals(context.Background(), func() <-chan time.Time { return nil })
		must.OK(t, tidyUp(ctx))
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // under nohup it would be ignored there
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd, closes := beSignaled(t, sig)
		for range 2 {
			if err := cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(closes.Close(), cmd.Wait()); err != nil {
			t.Errorf("%s: %v", sig, err)
		}
	}
}

// TestASecondSignalEndsTheProcess, when it comes later than one that is passed on.
func TestASecondSignalEndsTheProcess(t *testing.T) {
	if os.Getenv(signaled) != "" {
		os.Exit(Main(ending(tidyUp), []string{}, os.Stderr))
	}
	t.Parallel()
	cmd, _ := beSignaled(t, syscall.SIGTERM)
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	testenv.Until(t, "it is gone", func() bool {
		select {
		case err := <-gone:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.String() != "signal: terminated" {
				t.Errorf("it ended with %v", err)
			}
			return true
		default:
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
			return false
		}
	})
}
