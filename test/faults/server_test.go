//go:build unix

package faults

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// progress waits until tools have written so many more lines.
func (s *system) progress(lines int) {
	s.t.Helper()
	r, more := ledger.NewReader(s.ledger()), 0
	read := func() int {
		now, err := r.New()
		must.OK(s.t, err)
		return len(now)
	}
	read() // what was written before
	s.until(faultWait, fmt.Sprintf("tools have written %d more lines", lines), func() bool {
		more += read()
		return more >= lines
	})
}

// hostPort is the address in a URL.
func (s *system) hostPort(text string) string {
	s.t.Helper()
	u, err := url.Parse(text)
	must.OK(s.t, err)
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
	s.seenBy(s.processes[0], n)
}

func (s *system) seenBy(d *process, n int) {
	s.t.Helper()
	s.until(startWait, "the dispatcher has seen the workers",
		func() bool { return strings.Count(d.logged(), "worker joined") >= n })
}

// TestStreamLeadersDie (N2): the leader of one stream after another is killed under load, and starts again when
// another server leads.
func TestStreamLeadersDie(t *testing.T) {
	cell(t, "N2", func(s *system) rules {
		c := s.threeNodes()
		s.twoOfEach("", "")
		l := s.load(mix{})
		for _, stream := range ledStreams {
			s.progress(5 + s.rand.IntN(20))
			dead := c.whole(stream)
			c.nodes[dead].kill()
			c.otherLeader(stream, dead)
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
