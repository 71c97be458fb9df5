//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSpread: on a cluster of three servers with accounts one server leads the streams of three shards. spread says
// what would move, moves it while a batch runs, and the streams of each kind are then led by two servers.
func TestSpread(t *testing.T) {
	t.Parallel()
	const shards = 3
	cluster := testenv.GuardedCluster(t, access.Principal{Role: access.Worker, Name: "default"})
	dir, _ := cluster.Creds()
	at := func(args ...string) []string {
		return append(args, "--nats", cluster.ClientURL(), "--nats-ca", cluster.CA(), "--creds", dir)
	}
	ws := workspace(t, map[string]string{"a.txt": "one\n"})
	start(t, 3, "dispatcher", at("serve", "--listen", "127.0.0.1:0", "--replicas", "3", "--shards", "3",
		"--max-store-bytes", "1000000000")...)
	start(t, 3, "worker", at("serve", "--workspace", "default="+ws)...)
	nc, err := nats.Connect(cluster.ClientURL(), nats.RootCAs(cluster.CA()),
		nats.UserCredentials(dir+"/operator.creds"))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	b, err := natsbroker.Attach(t.Context(), nc, "/test")
	must.OK(t, err)
	// leaders are how many servers lead streams, of each kind that every shard has.
	leaders := func() map[string]map[string]bool {
		t.Helper()
		all, err := b.Leaders(t.Context())
		must.OK(t, err)
		out, of := map[string]map[string]bool{}, map[string]int{}
		for _, l := range all {
			if out[l.Kind] == nil {
				out[l.Kind] = map[string]bool{}
			}
			out[l.Kind][l.Leader] = true
			of[l.Kind]++
		}
		for kind, n := range of {
			if n < shards { // only shard 0 has it
				delete(out, kind)
			}
		}
		return out
	}
	all, err := b.Leaders(t.Context())
	must.OK(t, err)
	first := all[0].Leader
	for _, l := range all {
		if l.Leader != first && strings.HasPrefix(l.Stream, "TY") {
			must.OK(t, b.Lead(t.Context(), shard.Move{Stream: l.Stream, From: l.Leader, To: first}))
		}
	}
	if text := said(t, at("spread", "--dry-run")...); !strings.Contains(text, "would move") ||
		len(leaders()["TY_EVENT"]) != 1 {
		t.Errorf("what would move: %s", text)
	}
	batch := batchFile(t, unmarshalBatch(t,
		`{"agent":"ann","calls":[{"id":"1","tool":"read_file","input":{"file_path":"a.txt"}}]}`))
	submitted := make(chan string, 1)
	go func() {
		stdout, stderr, status := run(t, nil, "dispatcher", at("submit", batch)...)
		if status != 0 {
			stdout = "failed: " + stdout + stderr
		}
		submitted <- stdout
	}()
	var moves []shard.Move
	if text := said(t, at("spread", "--json")...); json.Unmarshal([]byte(text), &moves) != nil || len(moves) == 0 {
		t.Errorf("the moves: %s", text)
	}
	if out := <-submitted; strings.HasPrefix(out, "failed") {
		t.Errorf("a batch meanwhile: %s", out)
	}
	for kind, servers := range leaders() {
		if len(servers) != shards {
			t.Errorf("streams of kind %s are led by %v", kind, servers)
		}
	}
	if all, err = b.Leaders(t.Context()); err != nil {
		t.Fatal(err)
	}
	consumers, err := b.ConsumersOf(t.Context(), all)
	if apart := shard.Join(all, consumers); err != nil || len(consumers) < shards || len(apart) > 0 {
		t.Errorf("of %d consumers these are not led where their stream is: %v (%v)", len(consumers), apart, err)
	}
	homes := ""
	for n := range shards {
		homes += fmt.Sprintf("shard %d is led by %s\n", n, shard.Homes(all)[n])
	}
	if text := said(t, at("spread")...); !strings.HasPrefix(text, "0 leaders of ") || !strings.HasSuffix(text, homes) {
		t.Errorf("again, and each shard is led by one server:\n%s\n%s", text, homes)
	}
}
