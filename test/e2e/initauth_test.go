//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestInitAuth: on a cluster from the files that init-auth writes, a dispatcher, a worker and a person do their work
// with the credentials that are meant for each; an agent's credentials list nobody's batches.
func TestInitAuth(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	auth := filepath.Join(t.TempDir(), "auth")
	readme := strings.TrimSpace(p.ok(nil, "init-auth", auth, "--agent", "ann"))
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tls://nats-1:4222,tls://nats-2:4222,tls://nats-3:4222", "--replicas 3",
		"`creds/agent.ann.creds`", "`creds/worker.default.creds`", "`nodes/nats-3`"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the README does not say %s", want)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{auth}, "--update"},
		{[]string{t.TempDir(), "--update"}, "has no keys"},
		{[]string{auth, "--update", "--node", "x"}, "--node"},
		{[]string{t.TempDir(), "--node", "../x"}, "no host name"},
		{[]string{t.TempDir(), "--node", "x", "--node", "x"}, "twice"},
		{[]string{t.TempDir(), "--at", "nats"}, "absolute"},
		{[]string{t.TempDir(), "--pool", "_"}, "--pool"},
		{nil, "takes one DIR, not 0"},
	} {
		_, stderr, status := p.run(nil, nil, append([]string{"init-auth"}, c.args...)...)
		if status != 2 || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit status %d: %s", c.args, status, stderr)
		}
	}
	c := testenv.StartCluster(t, auth)
	creds := func(name string) string { return filepath.Join(auth, "creds", name+".creds") }
	env := []string{"TOOLYARD_NATS=" + c.ClientURL(), "TOOLYARD_NATS_CA=" + c.CA()}
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	startIn(t, 3, append(env, "TOOLYARD_CREDS="+creds("dispatcher")), "dispatcher", "serve", "--listen", "127.0.0.1:0",
		"--replicas", "3", "--max-store-bytes", "1000000000")
	startIn(t, 3, append(env, "TOOLYARD_CREDS="+creds("worker.default")), "worker", "serve", "--workspace",
		"default="+dir)
	b := batchFile(t, unmarshalBatch(t,
		`{"agent":"ann","calls":[{"id":"1","tool":"read_file","input":{"file_path":"a.txt"}}]}`))
	stdout, stderr, status := p.run(nil, append(env, "TOOLYARD_CREDS="+creds("operator")), "submit", "--json", b)
	if status != 0 || !strings.Contains(stdout, "one") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if stdout, _, status = p.run(nil, append(env, "TOOLYARD_CREDS="+creds("agent.ann")), "batches"); status == 0 {
		t.Errorf("with an agent's credentials it lists batches: %s", stdout)
	}
	if got := strings.TrimSpace(p.ok(nil, "init-auth", auth, "--update", "--agent", "bob")); !strings.Contains(got,
		"accounts.conf") {
		t.Errorf("an update says %q", got)
	}
	if _, err := os.Stat(creds("agent.bob")); err != nil {
		t.Error(err)
	}
}
