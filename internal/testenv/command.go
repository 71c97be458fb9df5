package testenv

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// commandWait is how long a command may take to be ready on a busy machine.
const commandWait = 2 * time.Minute

// Start starts a command that serves, waits for the line of standard output that begins with last and ": ", and returns
// what stood behind the colon of this line and of those before it. The command ends with the test, and must end well.
func Start(t testing.TB, cmd *exec.Cmd, last string) (says map[string]string) {
	t.Helper()
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	says = map[string]string{}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			what, text, ok := strings.Cut(lines.Text(), ": ")
			if !ok {
				continue
			}
			says[what] = text
			if what == last {
				close(ready)
				break
			}
		}
		_, err := io.Copy(io.Discard, out) // a full pipe would stop the command
		ended <- errors.Join(lines.Err(), err)
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		if err := errors.Join(<-ended, cmd.Wait()); err != nil {
			t.Errorf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
	})
	select {
	case <-ready:
		return says
	case err := <-ended:
		ended <- err
		t.Fatalf("%s has ended before it said %q", strings.Join(cmd.Args, " "), last)
	case <-time.After(commandWait):
		t.Fatalf("%s did not say %q within %s", strings.Join(cmd.Args, " "), last, commandWait)
	}
	return nil
}
