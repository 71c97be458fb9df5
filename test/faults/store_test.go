//go:build linux

package faults

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/blockdisk"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// hang makes the disk of a machine hang for a while.
func (m *machine) hang(d time.Duration) {
	m.s.t.Helper()
	disk := m.disk()
	must.OK(m.s.t, blockdisk.Hang(disk))
	m.s.pause(d)
	must.OK(m.s.t, blockdisk.GoOn(disk))
}

// slowAndHangs has each write wait for up to four tenths of a second, for five seconds, and later for longer than a
// lease.
func (m *machine) slowAndHangs() {
	m.s.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		m.hang(time.Duration(20+m.s.rand.IntN(380)) * time.Millisecond)
		m.s.pause(time.Duration(10+m.s.rand.IntN(40)) * time.Millisecond)
	}
	m.s.progress(5 + m.s.rand.IntN(20))
	m.hang(m.s.settings.CallAckWait * 2)
}

// TestDiskIsSlow (S2): each write to the disk of the only NATS server waits for up to four tenths of a second, and then
// for longer than a lease.
func TestDiskIsSlow(t *testing.T) {
	cell(t, "S2", func(s *system) rules {
		m := s.machine("nats", s.store(), powerDisk, "--listen", s.freePorts(1)[0])
		s.url = m.start().said("nats")
		s.open()
		a, b := s.twoWorkers("")
		s.together(func() { s.dispatcher("dispatcher-a", "") }, func() { s.dispatcher("dispatcher-b", "") })
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		m.slowAndHangs()
		s.faultOver()
		l.finish()
		return rules{harmed: []*process{a, b}}
	})
}

// TestOneDiskIsSlow (S2): the disk of the server that leads a stream, of three, is slow, and then hangs for longer than
// a lease.
func TestOneDiskIsSlow(t *testing.T) {
	cell(t, "S2cluster", func(s *system) rules {
		c := s.threeNodesWith(nil)
		machines := c.onMachines(powerDisk)
		c.form()
		s.twoOfEach("", "")
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		m := machines[c.whole(s.ledStream())]
		m.slowAndHangs()
		s.faultOver()
		l.finish()
		c.allWhole()
		return rules{settle: time.Minute}
	})
}

// TestOneDiskIsFull (S1): the disk of the server that leads a stream, of three, has no room left. The others go on.
// When it has room again the server is started again, which nats-server needs.
func TestOneDiskIsFull(t *testing.T) {
	cell(t, "S1cluster", func(s *system) rules {
		c := s.threeNodesWith(nil)
		machines := c.onMachines(s1Disk)
		c.form()
		s.twoOfEach("", "")
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		stream := s.ledStream()
		full := c.whole(stream)
		filler := smalldisk.Fill(s.t, machines[full].disk(), 0)
		s.until(faultWait, "the server has found out", func() bool {
			return strings.Contains(c.nodes[full].logged(), "no space left on device")
		})
		c.otherLeader(stream, full)
		s.progress(5 + s.rand.IntN(20))
		must.OK(s.t, os.Remove(filler))
		c.nodes[full].kill()
		c.start(full)
		s.faultOver()
		l.finish()
		c.allWhole()
		return rules{settle: time.Minute}
	})
}

// TestOneStoreIsLost (S1): the server that leads a stream, of three, dies and comes back with an empty store when the
// others have gone on. Then another one dies: what the first has got from the others has to do.
func TestOneStoreIsLost(t *testing.T) {
	cell(t, "S1lost", func(s *system) rules {
		c := s.threeNodes()
		s.twoOfEach("", "")
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		stream := s.ledStream()
		lost := c.whole(stream)
		c.nodes[lost].kill()
		c.otherLeader(stream, lost)
		s.progress(5 + s.rand.IntN(20))
		must.OK(s.t, os.RemoveAll(c.store(lost)))
		c.start(lost)
		c.allWhole()
		dead := (lost + 1 + s.rand.IntN(2)) % 3
		c.nodes[dead].kill()
		c.otherLeader(stream, dead)
		s.progress(5 + s.rand.IntN(20))
		c.start(dead)
		s.faultOver()
		l.finish()
		return rules{settle: time.Minute}
	})
}
