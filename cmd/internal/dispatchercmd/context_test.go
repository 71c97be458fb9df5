package dispatchercmd

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAContextNamesTheSystem: --nats-context is in place of --nats, also for commands that need no NATS system and do
// something else where none is named.
func TestAContextNamesTheSystem(t *testing.T) {
	system := testenv.Server(t)
	testenv.Broker(t, system, "/test")
	config, state := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("XDG_STATE_HOME", state)
	dir := t.TempDir()
	s := &std{out: io.Discard}
	saved := filepath.Join(dir, "saved")
	must.OK(t, s.save(t.Context(), testenv.Conn(t, system), saved, &streamsDone{}))
	calls := filepath.Join(dir, "batch.json")
	known := must.JSON(t, map[string]string{"url": system.ClientURL()})
	at := filepath.Join(config, "nats", "context")
	must.OK(t, os.MkdirAll(at, 0o700))
	for path, content := range map[string]string{filepath.Join(at, "yard.json"): string(known),
		calls: `{"calls":[{"tool":"grep","input":{"pattern":"x"}}]}`} {
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}

	// One that is not there is not passed over.
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"},
		{"restore", saved}, {"bench", "--for", "1ms", "--rounds", "1"}, {"tools"}, {"explain", calls},
		{"mcp", "--workspace", "default"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		ready := writeFunc(func(p []byte) (int, error) {
			if strings.Contains(string(p), "ready") {
				stop()
			}
			return len(p), nil
		})
		root := Command(strings.NewReader(""), ready, io.Discard)
		root.SetArgs(append(args, "--nats-context", "nowhere"))
		root.SilenceErrors, root.SilenceUsage = true, true
		if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("%q with a context that is not there: %v", args, err)
		}
		stop()
	}
	mistake(t, "there is a system already", "restore", "--nats-context", "yard", saved)
	mistake(t, "--server and --nats-context exclude each other", "batches", "--server", "http://127.0.0.1:1",
		"--nats-context", "yard")
	t.Setenv(cli.EnvName("nats-context"), "nowhere")
	mistake(t, "there is a system already", "restore", "--nats", system.ClientURL(), saved)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, says := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		root := Command(strings.NewReader(""), says, io.Discard)
		root.SetArgs([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--nats-context",
			"yard"})
		ended <- root.ExecuteContext(ctx)
		_ = says.Close() // which returns no error
	}()
	nats, told := "", false
	for lines := bufio.NewScanner(out); !told && lines.Scan(); {
		nats, told = strings.CutPrefix(lines.Text(), "nats: ")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // what it says besides
	stop()
	if err := <-ended; err != nil || nats != system.ClientURL() {
		t.Errorf("serve works with %q, want the system of the context at %s; it ended with %v", nats,
			system.ClientURL(), err)
	}
	if made, err := os.ReadDir(state); err != nil || len(made) > 0 {
		t.Errorf("a store was made on this machine: %v, %v", made, err)
	}
}
