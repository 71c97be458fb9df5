//go:build unix

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestAStoreThatHasToBeMigrated: a dispatcher says so in one line, one with --migrate does it, and from then on it
// opens as it is.
func TestAStoreThatHasToBeMigrated(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	testenv.Open(t, nc, broker.Settings{}, "/test")
	js := testenv.JetStream(t, nc)
	stream := testenv.Stream(t, js, "TY_BATCH")
	cfg := stream.CachedInfo().Config
	cfg.Subjects = cfg.Subjects[:1]
	cfg.Metadata = map[string]string{"toolyard.settings": cfg.Metadata["toolyard.settings"]}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--nats", s.ClientURL()}
	out, errs, status := run(t, nil, "dispatcher", serve...)
	if status != 1 || out != "" || strings.Count(errs, "\n") != 1 ||
		!strings.Contains(errs, "no subject ty.wake.*.* (TY_BATCH)") ||
		!strings.Contains(errs, "--migrate, once") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if status := start(t, 3, "dispatcher", append(serve, "--migrate")...).stop(syscall.SIGTERM); status != 0 {
		t.Errorf("with --migrate: status %d", status)
	}
	if status := start(t, 3, "dispatcher", serve...).stop(syscall.SIGTERM); status != 0 {
		t.Errorf("after that: status %d", status)
	}
	for _, name := range []string{"dispatcher", "worker"} {
		if out, errs, status := run(t, nil, name, "--version"); status != 0 || errs != "" ||
			!strings.Contains(out, "wire version") {
			t.Errorf("%s --version: status %d, %s%s", name, status, out, errs)
		}
	}
}
