//go:build unix

package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// What processes log about what is not theirs.
const (
	batchLeft = "left the batch to a newer dispatcher"
	callsLeft = "calls that a newer version has queued are left to a worker of that version"
)

// fleet starts processes of two versions: this one, and one that stands for the next.
type fleet struct {
	*system
	load *load
	n    int
}

// fleetOf is a fleet whose programs are there. Where nothing of the next version is built yet its build takes minutes,
// and in the middle of a test all leases would lapse meanwhile.
func fleetOf(s *system) *fleet {
	s.t.Helper()
	if _, err := nextBin(); err != nil {
		s.t.Fatal(err)
	}
	return &fleet{system: s}
}

func (f *fleet) worker(next bool) *process {
	f.t.Helper()
	f.version(next)
	return f.system.worker(f.name("worker", next), "", "--grace", startWait.String())
}

func (f *fleet) dispatcher(next bool) *process {
	f.t.Helper()
	f.version(next)
	return f.system.dispatcher(f.name("dispatcher", next), "")
}

func (f *fleet) version(next bool) {
	f.bin = bin
	if next {
		f.bin = nextBin
	}
}

func (f *fleet) name(what string, next bool) string {
	f.n++
	if next {
		what = "next-" + what
	}
	return fmt.Sprintf("%s-%d", what, f.n)
}

// state is a batch as this version sees it.
func (f *fleet) state(k toolyard.BatchKey) batch.State {
	f.t.Helper()
	st, err := f.b.Look(f.context(), k)
	must.OK(f.t, err)
	return st
}

// underWayFor is how long the reads of a batch take that is under way: longer than it takes on a busy machine to start
// a process and to retire another.
const underWayFor = 10 * time.Second

// underWay hands in batches until one of them was planned by the next version, and returns that one while its first
// call runs.
func (f *fleet) underWay() (toolyard.BatchKey, <-chan *verdict.Submission) {
	f.t.Helper()
	for {
		f.n++
		b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprintf("extra-%d", f.n)), Workspace: "dan",
			Calls: append(
				repeated("look", 2, map[string]any{"work_ms": underWayFor.Milliseconds()}),
				repeated("write", 2, map[string]any{"work_ms": 20})...)}
		done := make(chan *verdict.Submission, 1)
		go func() { done <- f.load.extra(b) }()
		// By then the log has all that its planner writes before calls are queued.
		written := ledger.NewReader(f.ledger())
		f.until(faultWait, "a call of the batch runs", func() bool {
			lines, err := written.New()
			return err == nil && slices.ContainsFunc(lines, func(l ledger.Line) bool {
				return l.Key() == b.Key() && l.Kind == ledger.Begin
			})
		})
		if len(f.state(b.Key()).Newer) > 0 {
			return b.Key(), done
		}
		<-done
	}
}

// waits checks that nobody has answered a batch.
func (f *fleet) waits(k toolyard.BatchKey) {
	f.t.Helper()
	if st := f.state(k); st.Completed || st.Replied == len(st.Calls) {
		f.t.Errorf("batch %s, which only the next version knows, was answered without it", k)
	}
}

// logged waits until one of the processes has logged something, about a batch if one is named.
func (f *fleet) logged(what string, k toolyard.BatchKey, by ...*process) {
	f.t.Helper()
	about := ""
	if k.ID != "" {
		about = "batch=" + string(k.ID) + " "
	}
	f.until(faultWait, fmt.Sprintf("somebody has logged %q %s", what, about), func() bool {
		for _, p := range by {
			for line := range strings.Lines(p.logged()) {
				if strings.Contains(line, what) && strings.Contains(line, about) {
					return true
				}
			}
		}
		return false
	})
}

// TestRollingUpgrade (U1): dispatchers and workers are replaced one by one, under load, by those of the next version,
// and then by those of this version again. What only the next version knows waits while no process of it runs.
func TestRollingUpgrade(t *testing.T) {
	cell(t, "U1", func(s *system) rules {
		s.basic()
		f := fleetOf(s)
		const this, next = false, true
		w1, w2 := f.worker(this), f.worker(this)
		d1, d2 := f.dispatcher(this), f.dispatcher(this)
		// Where only this version's workers run, what the next version has planned waits until [fleet.underWay] has met
		// a dispatcher of that version: each batch that it hands in to another one takes underWayFor.
		f.load = s.load(mix{timeout: 30 * underWayFor})
		s.progress(60)

		w3 := f.worker(next)
		s.retire(w1)
		s.progress(60)
		d3 := f.dispatcher(next)
		s.retire(d1)
		f.logged(callsLeft, toolyard.BatchKey{}, w2)
		s.progress(60)
		k, done := f.underWay()
		s.retire(d3) // what it had is not for the one that is there
		f.logged(batchLeft, k, d2)
		d4 := f.dispatcher(next)
		<-done
		d5 := f.dispatcher(next)
		s.retire(d2)
		s.progress(60)
		w4 := f.worker(next)
		s.retire(w2)
		s.progress(60)

		f.worker(this)
		s.retire(w3)
		s.progress(60)
		d6 := f.dispatcher(this)
		s.retire(d4)
		s.progress(60)
		k, done = f.underWay()
		d7 := f.dispatcher(this)
		s.retire(d5)
		f.logged(batchLeft, k, d6, d7)
		// others go on
		f.load.extra(toolyard.Batch{Agent: "eve", ID: "plain", Workspace: "census", Calls: mixed(s.rand, true)})
		f.waits(k)
		d8 := f.dispatcher(next)
		<-done

		w5 := f.worker(this)
		s.retire(w4)
		k, done = f.underWay()
		f.until(faultWait, "only its writes are left", func() bool { return len(f.state(k).Started) == 2 })
		f.logged(callsLeft, toolyard.BatchKey{}, w5)
		f.waits(k)
		w6 := f.worker(next)
		for _, r := range (<-done).Results {
			if by := f.workers[r.Worker]; r.Tool == "write" && by != w6 {
				s.t.Errorf("a call that only the next version may run was run by %s", by.name)
			}
		}
		s.faultOver()
		f.load.finish()

		s.retire(d8)
		s.retire(w6)
		f.load.extra(toolyard.Batch{Agent: "eve", ID: "again", Workspace: "census", Calls: mixed(s.rand, true)})
		letters, err := s.c.DeadLetters(s.context(), 10)
		must.OK(s.t, err)
		for _, l := range letters {
			s.t.Errorf("there is a dead letter: %+v", l)
		}
		return rules{}
	})
}

// TestUpgradeOfOneMachine (U1): the dispatcher that has the NATS server in it, and the worker, are replaced under load
// by those of the next version on the same store, and then by those of this version again. What the next version has
// begun and not ended goes on when a process of it joins.
func TestUpgradeOfOneMachine(t *testing.T) {
	cell(t, "U1embedded", func(s *system) rules {
		f := fleetOf(s)
		const this, next = false, true
		listen := s.freePorts(1)[0]
		serve := func(v bool) *process {
			f.version(v)
			d := s.spawn(f.name("dispatcher", v), "nats", "", "dispatcher", "serve", "--nats-listen", listen, "--data",
				s.store(), "--max-store-bytes", fmt.Sprint(s.settings.MaxStoreBytes), "--listen", "127.0.0.1:0",
				"--log-level", "info")
			s.url = d.said("nats")
			return d
		}
		d := serve(this)
		s.open()
		w := f.worker(this)
		s.seesWorkers(1)
		// what waits for a process of the next version has its time limit meanwhile
		f.load = s.load(mix{timeout: 5 * time.Minute})
		s.progress(40)
		for _, v := range []bool{next, this} {
			s.retire(d)
			d = serve(v)
			was := w
			w = f.worker(v)
			s.retire(was)
			// of whoever may: what another version has begun waits
			f.load.extra(toolyard.Batch{Agent: "eve", ID: toolyard.BatchID(f.name("plain", v)), Workspace: "census",
				Calls: mixed(s.rand, true)})
		}
		f.worker(next)
		f.dispatcher(next)
		s.faultOver()
		f.load.finish()
		letters, err := s.c.DeadLetters(s.context(), 10)
		must.OK(s.t, err)
		for _, l := range letters {
			s.t.Errorf("there is a dead letter: %+v", l)
		}
		return rules{}
	})
}
