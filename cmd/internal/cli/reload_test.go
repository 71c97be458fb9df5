//go:build unix

package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestReload: SIGHUP runs all steps in their order, also behind one that fails, and also those that were added late.
func TestReload(t *testing.T) {
	var r Reload
	ran := make(chan string, 8)
	r.On("first", func() error { ran <- "first"; return errors.New("the file is not there") })
	r.Follow(t.Context(), testenv.Log(t))
	r.On("second", func() error { ran <- "second"; return nil })
	for range 2 {
		must.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		for _, want := range []string{"first", "second"} {
			if got := <-ran; got != want {
				t.Fatalf("step %s ran; want %s", got, want)
			}
		}
	}
}

// TestReloadWhileTheProgramStarts: a signal that comes before a step is added, as while a program waits for NATS, has
// that step run too: what it reads was read before the signal.
func TestReloadWhileTheProgramStarts(t *testing.T) {
	var r Reload
	begun, ended := make(chan struct{}), make(chan struct{})
	first, late := 0, 0
	r.On("first", func() error {
		if first++; first == 1 {
			close(begun)
			<-ended
		}
		return nil
	})
	r.Follow(t.Context(), testenv.Log(t))
	must.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-begun
	close(ended)
	r.On("late", func() error { late++; return errors.New("the file is wrong") })
	if first != 1 || late != 1 {
		t.Errorf("the first step ran %d times, and the one that was added behind the signal %d times; want 1", first, late)
	}
}

// stopping is set in the environment of a process that stops while it is told to reload.
const stopping = "TOOLYARD_TEST_STOPPING"

// TestReloadWhileTheProgramStops: a signal that comes while a program lets its calls finish does not end it. It is in a
// process of its own, which the signal would end.
func TestReloadWhileTheProgramStops(t *testing.T) {
	if os.Getenv(stopping) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), stopping+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("a program that was told to reload while it stopped: %v\n%s", err, out)
		}
		return
	}
	status := Main(ending(func(ctx context.Context) error {
		var r Reload
		r.Follow(ctx, slog.New(slog.DiscardHandler))
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		for range 200 { // nothing says when those that follow the signal have seen the end
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}), []string{}, t.Output())
	if status != ExitOK {
		t.Errorf("status %d", status)
	}
}
