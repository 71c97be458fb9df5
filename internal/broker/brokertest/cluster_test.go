package brokertest_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/brokertest"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const (
	nodes = 3
	// readyWithin is how long a cluster may take to form.
	readyWithin = time.Minute
	// poolOfRoutes is how many connections a server has to each other one: three for accounts, one for the system.
	poolOfRoutes = 4
)

// startCluster starts three servers in this process.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	servers, _ := startNodes(t)
	return servers
}

// startNodes starts three servers in this process. again starts one that was shut down.
func startNodes(t *testing.T) (out []*server.Server, again func(i int)) {
	t.Helper()
	var addresses, routes []string
	for range nodes {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		addresses = append(addresses, free.Addr().String())
		routes = append(routes, "nats://"+free.Addr().String())
		must.OK(t, free.Close())
	}
	dir := testenv.StoreDir(t)
	out = make([]*server.Server, nodes)
	again = func(i int) {
		t.Helper()
		to, err := net.ResolveTCPAddr("tcp", addresses[i])
		must.OK(t, err)
		name := fmt.Sprint("node", i)
		s, err := server.NewServer(&server.Options{
			ServerName: name, Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true,
			StoreDir: filepath.Join(dir, name), JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 28,
			Cluster: server.ClusterOpts{Name: "brokertest", Host: to.IP.String(), Port: to.Port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		})
		must.OK(t, err)
		go s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		out[i] = s
	}
	for i := range nodes {
		again(i)
	}
	formed := func() bool {
		return slices.ContainsFunc(out, func(s *server.Server) bool {
			return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == nodes
		}) && !slices.ContainsFunc(out, func(s *server.Server) bool {
			return !s.Running() || s.NumRoutes() < (nodes-1)*poolOfRoutes || !s.JetStreamIsCurrent()
		})
	}
	for end := time.Now().Add(readyWithin); !formed(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cluster does not form")
		}
	}
	return out, again
}

// TestASystemWaitsForItsServers: a system whose streams need three servers is not made where the cluster has heard
// nothing of one of them since it started, and is when that one is there. Until then whoever makes it waits.
func TestASystemWaitsForItsServers(t *testing.T) {
	t.Parallel()
	servers, again := startNodes(t)
	for _, s := range servers {
		s.Shutdown()
		s.WaitForShutdown()
	}
	again(0)
	again(1)
	for end := time.Now().Add(readyWithin); !servers[0].JetStreamIsLeader() && !servers[1].JetStreamIsLeader(); {
		if time.Now().After(end) {
			t.Fatal("two of three servers have no leader")
		}
		time.Sleep(50 * time.Millisecond)
	}
	nc := connect(t, servers[0].ClientURL())
	settings := broker.Settings{Replicas: nodes, MaxStoreBytes: 1 << 28}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := natsbroker.Open(short, nc, settings, "/test")
	if err == nil || !strings.Contains(err.Error(), "no suitable peers") || short.Err() == nil {
		t.Fatalf("it does not wait for the server: %v", err)
	}
	again(2)
	within, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	if _, err := natsbroker.Open(within, nc, settings, "/test"); err != nil {
		t.Error(err)
	}
}

// runOnCluster runs the suite on three servers, each party on another one.
func runOnCluster(t *testing.T) {
	servers := startCluster(t)
	next := 0
	brokertest.Run(t, func(t *testing.T, do func(*testing.T, brokertest.Target)) {
		do(t, brokertest.Target{
			Replicas: nodes,
			Connect: func(t *testing.T, _ string, opts ...nats.Option) *nats.Conn {
				t.Helper()
				next++
				return connect(t, servers[next%nodes].ClientURL(), opts...)
			},
		})
	})
}
