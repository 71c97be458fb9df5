//go:build unix

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestEdge: workers behind a nats-server of their own, which is a leaf node of the cluster with the credentials of
// their pool, run calls; when that server is replaced they go on. Whoever connects there may do what a worker of the
// pool may.
func TestEdge(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	auth := filepath.Join(t.TempDir(), "auth")
	p.ok(nil, "init-auth", auth, "--agent", "ann", "--edge", "far")
	if _, stderr, status := p.run(nil, nil, "init-auth", auth, "--update", "--edge", "far"); status != 2 ||
		!strings.Contains(stderr, "--edge") {
		t.Errorf("an update with --edge: exit status %d: %s", status, stderr)
	}
	c := testenv.StartCluster(t, auth)
	creds := func(name string) string { return filepath.Join(auth, "creds", name+".creds") }
	env := []string{"TOOLYARD_NATS=" + c.ClientURL(), "TOOLYARD_NATS_CA=" + c.CA()}
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	startIn(t, 3, append(env, "TOOLYARD_CREDS="+creds("dispatcher")), "dispatcher", "serve", "--listen", "127.0.0.1:0",
		"--replicas", "3", "--max-store-bytes", "1000000000")

	edge, stop := c.Edge(t, "far")
	startIn(t, 3, []string{"TOOLYARD_NATS=" + edge}, "worker", "serve", "--pool", "far", "--workspace", "default="+dir)
	submit := func(calls, want string) {
		t.Helper()
		b := batchFile(t, unmarshalBatch(t, `{"agent":"ann","calls":[`+calls+`]}`))
		stdout, stderr, status := p.run(nil, append(env, "TOOLYARD_CREDS="+creds("agent.ann")), "submit", "--json", b)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit status %d: %s%s", status, stdout, stderr)
		}
	}
	const read = `{"id":"%","tool":"read_file","input":{"file_path":"a.txt"}}`
	submit(strings.ReplaceAll(read, "%", "1")+`,{"id":"2","tool":"write_file",
		"input":{"file_path":"b.txt","content":"two\n"}},`+strings.ReplaceAll(read, "%", "3"), "one")

	stdout, _, status := p.run(nil, []string{"TOOLYARD_NATS=" + edge}, "batches")
	if status == 0 {
		t.Errorf("at the edge somebody lists batches: %s", stdout)
	}
	stop()
	again, _ := c.Edge(t, "far")
	startIn(t, 3, []string{"TOOLYARD_NATS=" + again}, "worker", "serve", "--pool", "far", "--workspace", "default="+dir)
	submit(strings.ReplaceAll(read, "%", "1"), "one")
}
