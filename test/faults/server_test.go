//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/test/faults/ledger"
)

// progress waits until tools have written so many more lines.
func (s *system) progress(lines int) {
	s.t.Helper()
	before := -1
	s.until(faultWait, fmt.Sprintf("tools have written %d more lines", lines), func() bool {
		now, err := ledger.Read(s.ledger())
		if err != nil {
			s.t.Fatal(err)
		}
		if before < 0 {
			before = len(now)
		}
		return len(now) >= before+lines
	})
}

// hostPort is the address in a URL.
func (s *system) hostPort(text string) string {
	s.t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// TestServerDies (N1): the NATS server is killed under load and started again on its store, twice.
func TestServerDies(t *testing.T) {
	cell(t, "N1", func(s *system) rules {
		node := s.basic()
		s.twoOfEach("", "")
		l := s.load(mix{})
		for range 2 {
			s.progress(10 + s.rand.IntN(40))
			node.kill()
			node = s.node(s.hostPort(s.url))
		}
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// TestEmbeddedServerDies (N1): the NATS server runs in the dispatcher's process and is killed with it.
func TestEmbeddedServerDies(t *testing.T) {
	cell(t, "N1embedded", func(s *system) rules {
		start := func(listen string) *process {
			return s.spawn("dispatcher", "nats", "", "dispatcher", "serve", "--nats-listen", listen, "--data",
				s.store(),
				"--max-store-bytes", fmt.Sprint(s.settings.MaxStoreBytes), "--listen", "127.0.0.1:0", "--log-level",
				"info")
		}
		d := start(s.freePorts(1)[0])
		s.url = d.said("nats")
		s.open()
		s.together(func() { s.worker("worker-a", "") }, func() { s.worker("worker-b", "") })
		s.seesWorkers(2)
		l := s.load(mix{})
		for range 2 {
			s.progress(10 + s.rand.IntN(40))
			d.kill()
			d = start(s.hostPort(s.url))
		}
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// seesWorkers waits until the workers' tools are known to whoever plans: a dispatcher that was there before them learns
// it a moment after they are registered.
func (s *system) seesWorkers(n int) {
	s.t.Helper()
	d := s.processes[0]
	s.until(startWait, "the dispatcher has seen the workers",
		func() bool { return strings.Count(d.logged(), "worker joined") >= n })
}

// cluster is three NATS servers.
type cluster struct {
	s     *system
	nodes [3]*process
	args  [3][]string
}

// threeNodes starts three NATS servers as one cluster, and makes the streams with three replicas.
func (s *system) threeNodes() *cluster {
	s.t.Helper()
	c := &cluster{s: s}
	ports := s.freePorts(6)
	var routes, urls []string
	for i := range c.nodes {
		routes = append(routes, "nats://"+ports[3+i])
		urls = append(urls, "nats://"+ports[i])
	}
	for i := range c.nodes {
		c.args[i] = []string{"--name", fmt.Sprint("node-", i), "--store", filepath.Join(s.dir, fmt.Sprint("store-", i)),
			"--listen", ports[i], "--cluster", ports[3+i], "--routes", strings.Join(routes, ",")}
	}
	s.together(func() { c.start(0) }, func() { c.start(1) }, func() { c.start(2) })
	s.url = strings.Join(urls, ",")
	s.settings.Replicas = 3
	s.open()
	return c
}

// start starts a node, for the first time or again.
func (c *cluster) start(i int) {
	c.s.t.Helper()
	c.nodes[i] = c.s.spawn(fmt.Sprint("node-", i), "nats", "", "natsnode", c.args[i]...)
}

// freePorts are addresses that nobody listens on now. They lie below those that the system gives to connections: a
// server that is away for a moment must find its own free when it comes back.
func (s *system) freePorts(n int) (out []string) {
	s.t.Helper()
	for len(out) < n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		defer l.Close() // all of them at the end, or one would be given twice
		out = append(out, l.Addr().String())
	}
	return out
}

// leader is the node that leads a stream now; -1 for none.
func (c *cluster) leader(stream string) (node int, current bool) {
	ctx, cancel := context.WithTimeout(c.s.context(), 2*time.Second)
	defer cancel()
	st, err := c.s.js.Stream(ctx, stream)
	if err != nil || st.CachedInfo().Cluster == nil {
		return -1, false
	}
	info := st.CachedInfo().Cluster
	current = len(info.Replicas) == 2
	for _, r := range info.Replicas {
		current = current && r.Current && !r.Offline
	}
	for i := range c.nodes {
		if info.Leader == fmt.Sprint("node-", i) {
			return i, current
		}
	}
	return -1, current
}

// TestStreamLeadersDie (N2): the leader of one stream after another is killed under load, and starts again when
// another server leads.
func TestStreamLeadersDie(t *testing.T) {
	cell(t, "N2", func(s *system) rules {
		c := s.threeNodes()
		s.twoOfEach("", "")
		l := s.load(mix{})
		for _, stream := range []string{"TY_EVENT", "TY_CALL", "TY_BATCH"} {
			s.progress(5 + s.rand.IntN(20))
			dead := -1
			s.until(faultWait, stream+" has a leader and two replicas that are with it", func() bool {
				i, current := c.leader(stream)
				dead = i
				return i >= 0 && current
			})
			c.nodes[dead].kill()
			s.until(faultWait, stream+" has another leader", func() bool {
				i, _ := c.leader(stream)
				return i >= 0 && i != dead
			})
			s.progress(1)
			c.start(dead)
		}
		s.faultOver()
		l.finish()
		return rules{settle: time.Minute}
	})
}

// TestAllServersDie (N5): all three NATS servers are killed at once and started again.
func TestAllServersDie(t *testing.T) {
	cell(t, "N5", func(s *system) rules {
		c := s.threeNodes()
		s.twoOfEach("", "")
		l := s.load(mix{})
		s.progress(10 + s.rand.IntN(40))
		for _, n := range c.nodes {
			n.signal(syscall.SIGKILL)
		}
		for _, n := range c.nodes {
			n.kill()
		}
		// A node is ready when it serves clients, which does not wait for the others: so one after the other, in any
		// order.
		for _, i := range s.rand.Perm(len(c.nodes)) {
			c.start(i)
		}
		s.faultOver()
		l.finish()
		return rules{settle: time.Minute}
	})
}
