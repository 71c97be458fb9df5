//go:build unix

package faults

import (
	"syscall"
	"testing"
	"time"
)

// divided is a cluster that is under load, with the leader of a stream that is to be cut off. A worker, a dispatcher
// and an agent are connected to that node, others to the others.
type divided struct {
	*cluster
	load   *load
	stream string // which the victim leads
	victim int
	worker *process // at the victim
	others *process // the other worker
}

// divide starts a cluster behind gates, and the load.
func (s *system) divide() *divided {
	s.t.Helper()
	d := &divided{cluster: s.threeNodesBehindGates(), stream: s.ledStream()}
	d.victim = d.whole(d.stream)
	with, without := d.urls[d.victim], d.urls[(d.victim+1)%3]
	s.together(
		func() { d.worker = s.workerAt(with, "worker-a", "") },
		func() { d.others = s.workerAt(without, "worker-b", "") })
	s.together(
		func() { s.dispatcherAt(with, "dispatcher-a", "") },
		func() { s.dispatcherAt(without, "dispatcher-b", "") })
	s.spread = d.urls[:]
	d.load = s.load(mix{})
	s.progress(5 + s.rand.IntN(20))
	return d
}

// rules are those of a fault that keeps the worker at the victim from renewing its leases.
func (d *divided) rules() rules { return rules{harmed: []*process{d.worker}, settle: time.Minute} }

// again checks that the victim is a part of the cluster again, and ends the load.
func (d *divided) again() {
	d.s.faultOver()
	d.load.finish()
	d.allWhole()
}

// TestLeaderHangs (N3): the leader of a stream is stopped under load until another server leads and work goes on, and
// wakes up with what its clients have sent it meanwhile.
func TestLeaderHangs(t *testing.T) {
	cell(t, "N3", func(s *system) rules {
		d := s.divide()
		d.nodes[d.victim].signal(syscall.SIGSTOP)
		d.otherLeader(d.stream, d.victim)
		s.progress(5 + s.rand.IntN(20))
		d.nodes[d.victim].signal(syscall.SIGCONT)
		d.again()
		return d.rules()
	})
}

// TestLeaderIsCutOff (N4): the leader of a stream is cut off from the other servers, with clients on its side, until
// the others have another leader and work goes on. Seeds in turn hold up what its connections carry, and break them.
func TestLeaderIsCutOff(t *testing.T) {
	cell(t, "N4", func(s *system) rules {
		d := s.divide()
		d.cut(d.victim, s.seed%2 == 0)
		d.otherLeader(d.stream, d.victim)
		s.progress(5 + s.rand.IntN(20))
		d.heal()
		d.again()
		return d.rules()
	})
}

// TestLeaderIsCutOffOneWay (N4): the leader of a stream hears the other servers and is not heard, until they have
// another leader and work goes on; or it is heard and hears nobody, so that they follow it until it finds out by itself
// that it is alone. Seeds take the two in turn.
func TestLeaderIsCutOffOneWay(t *testing.T) {
	cell(t, "N4oneway", func(s *system) rules {
		d := s.divide()
		if s.seed%2 == 1 {
			d.silence(d.victim)
			d.otherLeader(d.stream, d.victim)
			s.progress(5 + s.rand.IntN(20))
		} else {
			d.deafen(d.victim)
			// Whether others are elected meanwhile is chance: the one that hears nobody asks for votes again and again.
			s.pause(deafFor)
		}
		d.heal()
		d.again()
		r := d.rules()
		r.harmed = append(r.harmed, d.others) // nothing may be stored for longer than a lease
		return r
	})
}

// deafFor is longer than a leader takes to find out that nobody answers.
const deafFor = 12 * time.Second

// TestRoutesFlap (N4): one server after the other is cut off from the others, for a moment each, again and again.
func TestRoutesFlap(t *testing.T) {
	cell(t, "N4flapping", func(s *system) rules {
		d := s.divide()
		for range 6 {
			i := s.rand.IntN(3)
			d.cut(i, s.rand.IntN(2) == 0)
			s.pause(time.Duration(200+s.rand.IntN(1800)) * time.Millisecond)
			d.heal()
			s.pause(time.Duration(s.rand.IntN(800)) * time.Millisecond)
		}
		d.again()
		r := d.rules()
		r.harmed = append(r.harmed, d.others)
		return r
	})
}

// pause is how long a fault lasts, or the time to the next one.
func (s *system) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.t.Context().Done():
	}
}
