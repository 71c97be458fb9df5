//go:build unix

package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestASystemMovesToAClusterAndBack: a system with one replica and a batch that waits for a person is saved, and made
// anew with three replicas on a cluster, where the batch goes on; and that one with one replica on this machine. Each
// waits as a system does that was made so.
func TestASystemMovesToAClusterAndBack(t *testing.T) {
	t.Parallel()
	const store = "1000000000"
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--shards", "2", "--max-store-bytes", store)
	worker(t, d.says["nats"], dir)
	alone := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", d.says["nats"]}, args...)
	}
	read := toolyard.Call{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}
	said(t, alone("submit", "--json", batchFile(t, toolyard.Batch{ID: "over", Calls: []toolyard.Call{read}}))...)
	waits := toolyard.Batch{ID: "waits", Interactive: true, Calls: []toolyard.Call{{ID: "c2", Tool: "write_file",
		Input: input(map[string]any{"file_path": "b.txt", "content": "three\n"})}, read}}
	waits.Normalize("waits")
	must.OK(t, connect(t, d.says["nats"]).Submit(t.Context(), waits))
	asked := waiting(t, d.says["nats"], 1)[0]
	before := said(t, alone("replay", "over")...)
	saved := filepath.Join(t.TempDir(), "saved")
	said(t, alone("backup", saved)...)
	d.stop(syscall.SIGKILL)

	cluster := testenv.GuardedCluster(t, access.Principal{Role: access.Worker, Name: "default"})
	creds, _ := cluster.Creds()
	there := func(args ...string) []string {
		return append(args, "--nats", cluster.ClientURL(), "--nats-ca", cluster.CA(), "--creds", creds)
	}
	if _, stderr, status := run(t, nil, "dispatcher", there("restore", "--replicas", "3", "--ack-wait", "5s",
		saved)...); status != 2 || !strings.Contains(stderr, "two elections") {
		t.Errorf("waits that are too short for three replicas: status %d, %s", status, stderr)
	}
	said(t, there("restore", "--replicas", "3", saved)...)
	nc, err := nats.Connect(cluster.ClientURL(), nats.RootCAs(cluster.CA()),
		nats.UserCredentials(filepath.Join(creds, "operator.creds")))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	start(t, 3, "dispatcher", there("serve", "--listen", "127.0.0.1:0", "--replicas", "3", "--ack-wait", "10s")...)
	start(t, 3, "worker", there("serve", "--workspace", "default="+dir)...)
	if after := said(t, there("replay", "over")...); after != before {
		t.Errorf("a replay was\n%s\nand on the cluster is\n%s", before, after)
	}
	said(t, there("approve", "--input-sha256", asked.InputSHA256, asked.ID)...)
	testenv.Until(t, "the batch that waited is over", func() bool {
		var list []client.Approval
		must.OK(t, json.Unmarshal([]byte(said(t, there("approvals", "--json")...)), &list))
		return len(list) == 0 && strings.Contains(said(t, there("batches")...), "completed")
	})
	said(t, there("submit", batchFile(t, toolyard.Batch{ID: "new", Calls: []toolyard.Call{read}}))...)
	checkReplicas(t, nc, 3, 10*time.Second)

	again := filepath.Join(t.TempDir(), "again")
	said(t, there("backup", again)...)
	data := t.TempDir()
	if _, stderr, status := run(t, nil, "dispatcher", "restore", "--data", data, again); status != 2 ||
		!strings.Contains(stderr, "add --replicas 1") {
		t.Errorf("three replicas in an embedded server's store: status %d, %s", status, stderr)
	}
	said(t, "restore", "--data", data, "--replicas", "1", again)
	d = dispatcher(t, "--data", data)
	if after := said(t, alone("replay", "over")...); after != before {
		t.Errorf("a replay was\n%s\nand on one server again is\n%s", before, after)
	}
	worker(t, d.says["nats"], dir)
	said(t, alone("submit", batchFile(t, toolyard.Batch{ID: "back", Calls: []toolyard.Call{read}}))...)
	nc, err = nats.Connect(d.says["nats"], credsFor(t, d.says["nats"], "dispatcher"))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	checkReplicas(t, nc, 1, 3*time.Second)
}

// checkReplicas holds all streams against what a new system has, and the consumers that somebody has used since.
func checkReplicas(t *testing.T, nc *nats.Conn, replicas int, wait time.Duration) {
	t.Helper()
	js := testenv.JetStream(t, nc)
	streams, consumers := js.ListStreams(t.Context()), 0
	for s := range streams.Info() {
		if c := s.Config; c.Replicas != replicas || c.AllowDirect != (replicas == 1) ||
			c.SubjectDeleteMarkerTTL != 0 && c.SubjectDeleteMarkerTTL != wait {
			t.Errorf("stream %s has %d replicas, direct %t, markers for %s", c.Name, c.Replicas, c.AllowDirect,
				c.SubjectDeleteMarkerTTL)
		}
		if !strings.HasSuffix(s.Config.Name, "_BATCH") && !strings.HasSuffix(s.Config.Name, "_CALL") {
			continue
		}
		of := testenv.Stream(t, js, s.Config.Name)
		list := of.ListConsumers(t.Context())
		for c := range list.Info() {
			consumers++
			want := wait
			if c.Name == "dispatchers" && replicas == 1 {
				want = wait / 2
			}
			if c.Config.AckWait != want {
				t.Errorf("consumer %s of %s waits for %s, not %s", c.Name, s.Config.Name, c.Config.AckWait, want)
			}
		}
		if err := list.Err(); err != nil {
			t.Error(err)
		}
	}
	if err := streams.Err(); err != nil || consumers < 3 {
		t.Errorf("%d consumers are there, %v", consumers, err)
	}
}
