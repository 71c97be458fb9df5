package workercmd

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestAWorkerThatWaitsIsInterrupted: whoever stops a worker that waits for a system is not told that something failed.
func TestAWorkerThatWaitsIsInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := Command(io.Discard, until{"waiting for the system", stop})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"serve", "--nats", testenv.Server(t).ClientURL(), "--workspace", "default=" + t.TempDir()})
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, cli.ErrInterrupted) {
		t.Errorf("it ended with %v", err)
	}
}

// until calls do when some words are written.
type until struct {
	words string
	do    func()
}

func (u until) Write(p []byte) (int, error) {
	if strings.Contains(string(p), u.words) {
		u.do()
	}
	return len(p), nil
}
