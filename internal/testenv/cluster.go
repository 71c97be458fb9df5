package testenv

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// System is a NATS system that asks for credentials.
type System interface {
	ClientURL() string
	// Creds is the directory of its credentials.
	Creds() (dir string, made bool)
	// GuardedSince is when its accounts were made.
	GuardedSince() time.Time
}

// Patient is a system whose dispatchers and workers may be silent for half a minute before others take what they have.
// It is for tests about other things, on machines that stand still for seconds.
func Patient(s System) System { return patient{s} }

type patient struct{ System }

// patientWait is how long they may be silent.
const patientWait = 30 * time.Second

// Cluster is a system of several nodes, with TLS, from the files that init-auth writes.
type Cluster struct {
	dir, url string
	since    time.Time
	leaves   []*url.URL
}

// ClientURL is where clients connect.
func (c *Cluster) ClientURL() string { return c.url }

// Creds is for [System].
func (c *Cluster) Creds() (dir string, made bool) { return filepath.Join(c.dir, "creds"), true }

// GuardedSince is for [System].
func (c *Cluster) GuardedSince() time.Time { return c.since }

// Edge starts a nats-server beside the workers of a pool, from the files that init-auth has written for it, and stops
// it with the test. It returns its URL, and what stops it before. Of what the files say, only addresses and directories
// are changed.
func (c *Cluster) Edge(t testing.TB, pool string) (clientURL string, stop func()) {
	t.Helper()
	dir := filepath.Join(c.dir, "edge", pool)
	path := filepath.Join(dir, "nats.conf")
	conf, err := os.ReadFile(path)
	must.OK(t, err)
	here := strings.NewReplacer(clusterAt+"/worker.creds", filepath.Join(c.dir, "creds", "worker."+pool+".creds"),
		clusterAt+"/", dir+"/").Replace(string(conf))
	must.OK(t, os.WriteFile(path, []byte(here), 0o600))
	s := configured(t, path, func(o *server.Options) {
		for _, r := range o.LeafNode.Remotes {
			r.URLs = c.leaves
		}
	})
	if !s.ReadyForConnections(readyWait) {
		t.Fatalf("the server at the edge was not ready after %s", readyWait)
	}
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// CA is the file of the certificate of its CA.
func (c *Cluster) CA() string { return filepath.Join(c.dir, "ca.pem") }

// settings are those that brokers on a system begin with, and options those that their connections need.
func settings(t testing.TB, s System) (broker.Settings, []nats.Option) {
	t.Helper()
	if c, ok := s.(*Cluster); ok {
		return broker.Settings{Replicas: 3, MaxStoreBytes: 1 << 30, Shards: Shards(t)},
			[]nats.Option{nats.RootCAs(c.CA())}
	}
	with := broker.Settings{Shards: Shards(t)}
	if _, ok := s.(patient); ok {
		with.BatchAckWait, with.CallAckWait, with.WorkerTTL = patientWait, patientWait, patientWait
	}
	return with, nil
}

// clusterAt is where the written configuration says that a node's files are.
const clusterAt = "/etc/nats"

// GuardedCluster is a cluster of three nodes for principals.
func GuardedCluster(t testing.TB, who ...access.Principal) *Cluster {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "auth")
	err := natsd.Cluster{
		Access: natsd.Access{Dir: filepath.Join(dir, "creds"), Exports: natsbroker.Exports(),
			Grants: natsbroker.Grants},
		Nodes: []string{"node-1", "node-2", "node-3"}, Principals: who, At: clusterAt, Store: "/data",
	}.Write(dir)
	must.OK(t, err)
	return StartCluster(t, dir)
}

// StartCluster starts a nats-server from each node's files in a directory that init-auth has written, and stops them
// with the test. Of what the files say, only addresses and directories are changed.
func StartCluster(t testing.TB, dir string) *Cluster {
	t.Helper()
	c := &Cluster{dir: dir, since: time.Now()}
	entries, err := os.ReadDir(filepath.Join(dir, "nodes"))
	must.OK(t, err)
	var nodes []string
	for _, e := range entries {
		nodes = append(nodes, e.Name())
	}
	// Each node has its routes at an address of its own, which the others know.
	var routes []*url.URL
	var ports []int
	for range 2 * len(nodes) { // those for the edge are the second half
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			t.Fatal("no port")
		}
		ports = append(ports, addr.Port)
		at := &url.URL{Scheme: "tls", Host: fmt.Sprintf("127.0.0.1:%d", addr.Port)}
		if len(routes) < len(nodes) {
			routes = append(routes, at)
		} else {
			c.leaves = append(c.leaves, at)
		}
		must.OK(t, l.Close())
	}
	var urls []string
	var servers []*server.Server
	for i, node := range nodes {
		dir := filepath.Join(c.dir, "nodes", node)
		path := filepath.Join(dir, "nats.conf")
		conf, err := os.ReadFile(path)
		must.OK(t, err)
		here := strings.ReplaceAll(string(conf), clusterAt+"/", dir+"/")
		must.OK(t, os.WriteFile(path, []byte(here), 0o600))
		s := configured(t, path, func(o *server.Options) {
			o.HTTPHost, o.HTTPPort, o.ClientAdvertise = "", 0, ""
			o.Cluster.Host, o.Cluster.Port, o.Routes, o.StoreDir = "127.0.0.1", ports[i], routes, StoreDir(t)
			if o.LeafNode.Port != 0 {
				o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", ports[len(nodes)+i]
			}
		})
		servers = append(servers, s)
		urls = append(urls, strings.Replace(s.ClientURL(), "nats://", "tls://", 1))
	}
	for _, s := range servers {
		if !s.ReadyForConnections(readyWait) {
			t.Fatalf("node %s was not ready after %s", s.Name(), readyWait)
		}
	}
	for end := time.Now().Add(readyWait); ; time.Sleep(10 * time.Millisecond) {
		if slices.ContainsFunc(servers, func(s *server.Server) bool {
			return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(servers)
		}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the cluster had no leader after %s", readyWait)
		}
	}
	c.url = strings.Join(urls, ",")
	return c
}
