//go:build linux

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/blockdisk"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// powerDisk is what the disk of a NATS server holds that loses power or hangs.
const powerDisk = 512 << 20

// machine is a NATS server on a disk of its own, which loses power, or hangs.
type machine struct {
	s     *system
	name  string
	image string
	store string
	args  []string
	// command is what runs there, and is ready when it says a line that begins with "nats".
	command string
	node    *process
}

// machine prepares a NATS server, on a disk of so many bytes and with more arguments.
func (s *system) machine(name, store string, bytes int64, args ...string) *machine {
	s.t.Helper()
	m := &machine{s: s, name: name, image: filepath.Join(s.dir, name+".disk"), store: store, command: "natsnode",
		args: append([]string{"--store", store}, args...)}
	s.t.Cleanup(func() { // or a process that waits for a disk that hangs could not be killed
		if m.node != nil {
			_ = blockdisk.GoOn(m.disk()) // nearly always it does not hang
		}
	})
	blockdisk.Format(s.t, m.image, bytes)
	must.OK(s.t, os.Mkdir(store, 0o700))
	return m
}

// onMachines gives each node a disk of so many bytes of its own.
func (c *cluster) onMachines(bytes int64) (machines []*machine) {
	c.s.t.Helper()
	for i := range c.nodes {
		machines = append(machines, c.s.machine(c.name(i), c.store(i), bytes, c.args[i]...))
	}
	c.start = func(i int) { c.nodes[i] = machines[i].start() }
	return machines
}

// start starts the server, for the first time or again.
func (m *machine) start() *process {
	m.s.t.Helper()
	m.node = m.s.begun(m.s.launchAs(func(c *exec.Cmd) { blockdisk.Command(m.s.t, c, m.image, m.store) }, m.name, "",
		m.command, m.args...), "nats")
	return m.node
}

// disk is where the test reaches the disk.
func (m *machine) disk() string { return smalldisk.Reach(m.node.pid(), m.store) }

// losePower ends several machines as a power loss does, at once.
func (s *system) losePower(machines ...*machine) {
	s.t.Helper()
	for _, m := range machines { // nobody answers a client any more
		m.node.signal(syscall.SIGSTOP)
	}
	for _, m := range machines {
		s.until(faultWait, m.name+" is stopped", m.node.stopped)
	}
	for _, m := range machines {
		blockdisk.LosePower(s.t, m.disk())
		m.node.kill()
	}
}

// TestPowerIsLost (N6): the machine of the only NATS server, which syncs always, loses power under load, twice.
func TestPowerIsLost(t *testing.T) {
	cell(t, "N6", func(s *system) rules {
		m := s.machine("nats", s.store(), powerDisk, "--listen", s.freePorts(1)[0], "--sync-always")
		s.url = m.start().said("nats")
		s.open()
		s.twoOfEach("", "")
		l := s.load(mix{})
		for range 2 {
			s.progress(5 + s.rand.IntN(20))
			s.losePower(m)
			m.start()
		}
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// TestPowerIsLostEmbedded (N6): the machine of the dispatcher that has the NATS server in it, with --sync-always, loses
// power under load, the first time in its first seconds.
func TestPowerIsLostEmbedded(t *testing.T) {
	cell(t, "N6embedded", func(s *system) rules {
		m := s.machine("dispatcher", s.store(), powerDisk)
		m.command, m.args = "dispatcher", []string{"serve", "--nats-listen", s.freePorts(1)[0], "--data", s.store(),
			"--sync-always", "--max-store-bytes", fmt.Sprint(s.settings.MaxStoreBytes), "--listen", "127.0.0.1:0",
			"--log-level", "info"}
		s.url = m.start().said("nats")
		// The credentials of the others are copied to where they are.
		creds := filepath.Join(m.disk(), "creds")
		_, err := natsd.FindCreds(creds, access.Principal{Role: access.Worker, Name: "ledger"})
		if err == nil {
			err = os.CopyFS(filepath.Join(s.dir, "others", "creds"), os.DirFS(creds))
		}
		must.OK(s.t, err)
		s.reached = filepath.Join(s.dir, "others")
		s.open()
		s.losePower(m)
		d := m.start()
		s.twoWorkers("")
		s.seenBy(d, 2)
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		s.losePower(m)
		m.start()
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// TestPowerIsLostEverywhere (N6): the machines of all three NATS servers, which sync always, lose power at once under
// load.
func TestPowerIsLostEverywhere(t *testing.T) {
	cell(t, "N6cluster", func(s *system) rules {
		c := s.threeNodesWith(nil, "--sync-always")
		machines := c.onMachines(powerDisk)
		c.form()
		s.twoOfEach("", "")
		l := s.load(mix{})
		s.progress(5 + s.rand.IntN(20))
		s.losePower(machines...)
		for _, i := range s.rand.Perm(len(c.nodes)) {
			c.start(i)
		}
		s.faultOver()
		l.finish()
		return rules{settle: time.Minute}
	})
}

// TestPowerIsLostUnsynced (N6): without --sync-always a power loss takes a batch that was accepted and answered, of
// which the kill of a process takes nothing. It shows that the disk of N6 loses what was not synced.
func TestPowerIsLostUnsynced(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "N6unsynced", 1)
	m := s.machine("nats", s.store(), powerDisk, "--listen", s.freePorts(1)[0])
	s.url = m.start().said("nats")
	s.open()
	s.worker("worker-a", "")
	s.dispatcher("dispatcher-a", "")
	l := s.load(mix{quiet: true})
	l.finish()
	there := func(k toolyard.BatchKey) bool {
		_, err := s.b.Look(s.context(), k)
		return err == nil
	}
	lost := false
	for n := 0; n < 5 && !lost; n++ { // the kernel may have written back, once
		sub := l.extra(toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprint("extra-", n)), Workspace: "dan",
			Calls: repeated("look", 1, map[string]any{"work_ms": 1})})
		if !there(sub.Key()) {
			t.Fatalf("the batch is not there before the power loss")
		}
		s.losePower(m)
		m.start()
		s.until(startWait, "the server answers", func() bool {
			_, err := s.js.Stream(s.context(), "TY_BATCH")
			return err == nil || errors.Is(err, jetstream.ErrStreamNotFound)
		})
		lost = !there(sub.Key())
	}
	if !lost {
		t.Error("five power losses have taken nothing of what was not synced")
	}
}
