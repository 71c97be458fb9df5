package brokertest_test

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker/brokertest"
	"github.com/toolyard/toolyard/internal/testenv"
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
	var addresses, routes []string
	for range nodes {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, free.Addr().String())
		routes = append(routes, "nats://"+free.Addr().String())
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
	}
	dir := testenv.StoreDir(t)
	var out []*server.Server
	for i, address := range addresses {
		to, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("node", i)
		s, err := server.NewServer(&server.Options{
			ServerName: name, Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true,
			StoreDir: filepath.Join(dir, name), JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 28,
			Cluster: server.ClusterOpts{Name: "brokertest", Host: to.IP.String(), Port: to.Port},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		out = append(out, s)
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
	return out
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
