//go:build unix

package e2e

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTheFirstStartThatIsReadySaysWhereTheCredentialsAre, also when one before it has failed; the next does not.
func TestTheFirstStartThatIsReadySaysWhereTheCredentialsAre(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer func() { _ = taken.Close() }() // nobody has connected
	for _, flag := range []string{"--listen", "--nats-listen"} {
		data := testenv.StoreDir(t)
		serve := []string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data", data}
		if _, stderr, status := run(t, nil, "dispatcher", append(serve, flag, taken.Addr().String())...); status != 2 ||
			!strings.Contains(stderr, flag+" "+taken.Addr().String()+": another process listens there") {
			t.Errorf("%s in use: exit status %d: %s", flag, status, stderr)
		}
		first := start(t, 4, "dispatcher", serve...)
		if says := first.says["credentials"]; says != filepath.Join(data, "creds") {
			t.Errorf("behind a start with %s in use it said that the credentials are in %q", flag, says)
		}
		if status := first.stop(syscall.SIGTERM); status != 0 {
			t.Errorf("exit status %d", status)
		}
		if _, err := os.Stat(filepath.Join(data, "creds", "keys", "untold")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the next start says it again (%v)", err)
		}
	}
}

// TestNATSAsksForCredentials: without any flag the embedded server lets nobody in who has none. Commands of the same
// user find those of the default directory by themselves.
func TestNATSAsksForCredentials(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	store := filepath.Join(home, "toolyard")
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := startIn(t, 4, []string{"XDG_STATE_HOME=" + home}, "dispatcher", "serve", "--listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0")
	url := d.says["nats"]
	if d.says["credentials"] != filepath.Join(store, "creds") {
		t.Errorf("it said that the credentials are in %q", d.says["credentials"])
	}
	if nc, err := nats.Connect(url); err == nil {
		nc.Close()
		t.Error("somebody without credentials was let in")
	}
	for _, name := range []string{"operator", "dispatcher", "worker", "agent"} {
		info, err := os.Stat(filepath.Join(store, "creds", name+".creds"))
		must.OK(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o; want 600", info.Name(), info.Mode().Perm())
		}
	}
	startIn(t, 3, []string{"XDG_STATE_HOME=" + home}, "worker", "serve", "--nats", url, "--workspace", "default="+dir)
	b := batchFile(t, unmarshalBatch(t, `{"calls":[{"id":"1","tool":"read_file","input":{"file_path":"a.txt"}}]}`))
	for _, how := range [][]string{{"XDG_STATE_HOME=" + home}, {"TOOLYARD_DATA=" + store}, {"TOOLYARD_CREDS=" +
		filepath.Join(store, "creds", "operator.creds")}, {"TOOLYARD_CREDS=" + filepath.Join(store, "creds")}} {
		stdout, stderr, status := newPlace(t, nil).run(nil, how, "submit", "--nats", url, "--json", b)
		if status != 0 || !strings.Contains(stdout, "one") {
			t.Errorf("with %s: exit status %d: %s", how, status, stderr)
		}
	}
	// What is wrong with credentials is said with the file, and what to do.
	other := startIn(t, 3, nil, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--data", t.TempDir())
	for _, c := range []struct {
		env  []string
		says []string
	}{
		{[]string{"XDG_STATE_HOME=" + t.TempDir()}, []string{"there are none for operator in ", "--creds"}},
		{[]string{"XDG_STATE_HOME=" + home}, []string{"does not take the credentials in " +
			filepath.Join(store, "creds", "operator.creds"), "--creds", "TOOLYARD_CREDS", "--data"}},
	} {
		_, stderr, status := newPlace(t, nil).run(nil, append(c.env, "TOOLYARD_NATS="+other.says["nats"]), "batches")
		for _, s := range append(c.says, "Authorization Violation") {
			if status != 1 || !strings.Contains(strings.ToLower(stderr), strings.ToLower(s)) {
				t.Errorf("with %s: exit status %d: %q does not say %q", c.env, status, stderr, s)
			}
		}
	}
	// The context of the nats command.
	config := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(config, "nats", "context"), 0o700))
	context := `{"url": "` + url + `", "creds": "` + filepath.Join(store, "creds", "operator.creds") + `"}`
	must.OK(t, os.WriteFile(filepath.Join(config, "nats", "context", "yard.json"), []byte(context), 0o600))
	if _, stderr, status := newPlace(t, nil).run(nil, []string{"XDG_CONFIG_HOME=" + config, "XDG_STATE_HOME=" +
		t.TempDir()}, "batches", "--nats-context", "yard"); status != 0 {
		t.Errorf("with a context: exit status %d: %s", status, stderr)
	}
}

// TestCredentialsInAWorkspace: a workspace in which credentials lie is refused: the model's commands would read them.
func TestCredentialsInAWorkspace(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"state/creds/worker.creds": "a file"})
	for _, args := range [][]string{
		{"worker", "serve", "--data", filepath.Join(dir, "state")},
		{"worker", "serve", "--creds", filepath.Join(dir, "state", "creds", "worker.creds")},
		{"dispatcher", "serve", "--with-worker", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
			filepath.Join(dir, "state")},
	} {
		_, stderr, status := run(t, nil, args[0], append(args[1:], "--workspace", "default="+dir)...)
		if status != 2 || !strings.Contains(stderr, "credentials") {
			t.Errorf("%s: exit status %d: %s", args, status, stderr)
		}
	}
}

// TestCredsCommand: credentials for an agent and for the workers of a pool are made beside a running server, which
// takes them.
func TestCredsCommand(t *testing.T) {
	t.Parallel()
	data := testenv.StoreDir(t)
	p := newPlace(t, nil)
	if _, stderr, status := p.run(nil, nil, "creds", "--agent", "ann", "--data", data); status != 2 ||
		!strings.Contains(stderr, "dispatcher serve makes them") {
		t.Errorf("before there is a server: exit status %d: %s", status, stderr)
	}
	d := startIn(t, 3, nil, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
		data)
	for _, args := range [][]string{{"--agent", "an agent"}, {"--agent", "default"}, {"--pool", "words"},
		{"--pool", "default"}} {
		path := strings.TrimSpace(p.ok(nil, append([]string{"creds", "--data", data}, args...)...))
		if again := strings.TrimSpace(p.ok(nil, append([]string{"creds", "--data", data}, args...)...)); again != path {
			t.Errorf("%s: %s, and then %s", args, path, again)
		}
		nc, err := nats.Connect(d.says["nats"], nats.UserCredentials(path))
		if err != nil {
			t.Errorf("%s: %s: %v", args, path, err)
			continue
		}
		nc.Close()
	}
	for _, args := range [][]string{nil, {"--agent", "a", "--pool", "b"}, {"--pool", "_"}} {
		if _, _, status := p.run(nil, nil, append([]string{"creds", "--data", data}, args...)...); status != 2 {
			t.Errorf("%s: exit status %d; want 2", args, status)
		}
	}
}

// TestNATSBeyondThisMachine: what others reach speaks TLS, or its operator says that it is dangerous.
func TestNATSBeyondThisMachine(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	_, stderr, status := p.run(nil, nil, "serve", "--listen", "127.0.0.1:0", "--nats-listen", "0.0.0.0:0", "--data",
		t.TempDir())
	if status != 2 || !strings.Contains(stderr, "--dangerously-listen-without-tls") ||
		!strings.Contains(stderr, "--nats-cert") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	startIn(t, 3, nil, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "0.0.0.0:0", "--data",
		t.TempDir(), "--dangerously-listen-without-tls")
	cert, key := certificate(t)
	data := testenv.StoreDir(t)
	d := startIn(t, 3, nil, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "0.0.0.0:0", "--data",
		data, "--nats-cert", cert, "--nats-key", key)
	if out, stderr, status := p.run(nil, nil, "batches", "--nats", d.says["nats"], "--data", data, "--nats-ca",
		cert); status != 0 {
		t.Errorf("over TLS: exit status %d: %s%s", status, out, stderr)
	}
	if _, stderr, status := p.run(nil, nil, "batches", "--nats", d.says["nats"], "--data", data); status != 1 ||
		!strings.Contains(stderr, "certificate") {
		t.Errorf("without the certificate: exit status %d: %s", status, stderr)
	}
}
