//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// cluster is three NATS servers.
type cluster struct {
	s     *system
	nodes [3]*process
	urls  [3]string
	args  [3][]string
	// start starts a node, for the first time or again.
	start func(i int)
	// gates stand between nodes: gates[i][j] is in the way when i dials j. Nil where nothing stands between them.
	gates [3][3]*gate
	js    [3]jetstream.JetStream // on each node, and never on another one
	// streams are all that there are.
	streams []string
}

// store is where a node has its streams.
func (c *cluster) store(i int) string { return filepath.Join(c.s.stores, fmt.Sprint("store-", i)) }

// threeNodes starts three NATS servers as one cluster, and makes the streams with three replicas. args are more of each
// node's.
func (s *system) threeNodes(args ...string) *cluster {
	c := s.threeNodesWith(nil, args...)
	c.form()
	return c
}

// threeNodesBehindGates does so with a gate in each node's way to each other one.
func (s *system) threeNodesBehindGates() *cluster {
	s.t.Helper()
	c := s.threeNodesWith(func(c *cluster, i, j int, at string) string {
		c.gates[i][j] = &gate{}
		return c.gates[i][j].to(s.t, at)
	}, "--advertise", "127.0.0.1:1") // nobody listens there: nodes that hear of each other find no other way
	c.form()
	for i, url := range c.urls {
		nc, err := nats.Connect(url, nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
			nats.ReconnectWait(100*time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		must.OK(s.t, err)
		s.t.Cleanup(nc.Close)
		if c.js[i], err = jetstream.New(nc); err != nil {
			s.t.Fatal(err)
		}
	}
	return c
}

// threeNodesWith prepares three nodes. way says by which URL one reaches another; nil: by its own.
func (s *system) threeNodesWith(way func(c *cluster, i, j int, at string) string, args ...string) *cluster {
	s.t.Helper()
	c := &cluster{s: s}
	c.start = func(i int) { c.nodes[i] = s.spawn(c.name(i), "nats", "", "natsnode", c.args[i]...) }
	ports := s.freePorts(6)
	for i := range c.nodes {
		c.urls[i] = "nats://" + ports[i]
		var routes []string
		for j := range c.nodes {
			switch at := ports[3+j]; {
			case j == i:
			case way != nil:
				routes = append(routes, way(c, i, j, at))
			default:
				routes = append(routes, "nats://"+at)
			}
		}
		c.args[i] = append([]string{"--name", c.name(i), "--store", c.store(i), "--listen", ports[i], "--cluster",
			ports[3+i], "--routes", strings.Join(routes, ",")}, args...)
	}
	s.url = strings.Join(c.urls[:], ",")
	return c
}

func (c *cluster) name(i int) string { return fmt.Sprint("node-", i) }

// form starts the nodes, and makes the streams.
func (c *cluster) form() {
	c.s.t.Helper()
	c.s.together(func() { c.start(0) }, func() { c.start(1) }, func() { c.start(2) })
	c.s.settings.Replicas = 3
	c.s.open()
	// Later a server whose store was lost may list none.
	c.s.until(faultWait, "the streams are listed", func() bool {
		c.streams = nil
		list := c.s.js.StreamNames(c.s.context())
		for name := range list.Name() {
			c.streams = append(c.streams, name)
		}
		return list.Err() == nil && slices.Contains(c.streams, "TY_EVENT")
	})
}

// given are the ports that tests of this package have.
var given sync.Map

// freePorts are addresses that nobody listens on now, and that no other test gets. They lie below those that the system
// gives to connections: a server that is away for a moment must find its own free when it comes back.
func (s *system) freePorts(n int) (out []string) {
	s.t.Helper()
	for len(out) < n {
		port := 20_000 + rand.IntN(12_000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		must.OK(s.t, err)
		defer l.Close() // all of them at the end, or one would be given twice
		out = append(out, l.Addr().String())
	}
	return out
}

// leader is the node that leads a stream now; -1 for none. current says that both others are with it.
func (c *cluster) leader(stream string) (node int, current bool) { return c.leaderBy(c.s.js, stream) }

// leaderBy is the leader as it answers over a connection.
func (c *cluster) leaderBy(js jetstream.JetStream, stream string) (node int, current bool) {
	ctx, cancel := context.WithTimeout(c.s.context(), 2*time.Second)
	defer cancel()
	st, err := js.Stream(ctx, stream)
	if err != nil || st.CachedInfo().Cluster == nil {
		return -1, false
	}
	info := st.CachedInfo().Cluster
	current = len(info.Replicas) == 2
	for _, r := range info.Replicas {
		current = current && r.Current && !r.Offline
	}
	for i := range c.nodes {
		if info.Leader == c.name(i) {
			return i, current
		}
	}
	return -1, current
}

// ledStreams are the streams whose leaders are struck.
var ledStreams = []string{"TY_EVENT", "TY_CALL", "TY_BATCH"}

// ledStream is the one whose leader is struck; the seeds take them in turn.
func (s *system) ledStream() string { return ledStreams[int(s.seed-1)%len(ledStreams)] }

// whole waits until a stream has a leader and both others are with it, and returns the leader.
func (c *cluster) whole(stream string) (leader int) {
	c.s.t.Helper()
	c.s.until(faultWait, stream+" has a leader and two replicas that are with it", func() (current bool) {
		leader, current = c.leader(stream)
		return leader >= 0 && current
	})
	return leader
}

// allWhole waits until every stream has a leader and both others are with it.
func (c *cluster) allWhole() {
	c.s.t.Helper()
	for _, name := range c.streams {
		c.whole(name)
	}
}

// otherLeader waits until a stream is led by another node than one, as the others see it.
func (c *cluster) otherLeader(stream string, than int) {
	c.s.t.Helper()
	js := c.s.js
	if c.js[0] != nil {
		js = c.js[(than+1)%len(c.js)]
	}
	c.s.until(faultWait, stream+" has another leader", func() bool {
		i, _ := c.leaderBy(js, stream)
		return i >= 0 && i != than
	})
}

// cut cuts a node off from both others. drop says that it breaks the connections, and does not only stop what they
// carry.
func (c *cluster) cut(i int, drop bool) { c.apart(i, func(g *gate) { g.shut(drop) }) }

// heal ends every cut.
func (c *cluster) heal() {
	for i := range c.gates {
		c.apart(i, (*gate).open)
	}
}

// apart does something to all gates between a node and the others.
func (c *cluster) apart(i int, do func(*gate)) {
	for j := range c.gates {
		if j != i {
			do(c.gates[i][j])
			do(c.gates[j][i])
		}
	}
}

// deafen lets a node hear nothing of the others, who go on hearing it.
func (c *cluster) deafen(i int) {
	for j := range c.gates {
		if j != i {
			c.gates[i][j].back.shut()
			c.gates[j][i].there.shut()
		}
	}
}

// silence lets the others hear nothing of a node, which goes on hearing them.
func (c *cluster) silence(i int) {
	for j := range c.gates {
		if j != i {
			c.gates[i][j].there.shut()
			c.gates[j][i].back.shut()
		}
	}
}
