//go:build unix

package faults

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

var soakFor = flag.Duration("soak", 0, "how long TestSoak goes on; 0: a short round of each kind")

// The length of a round's faults: a whole one, and one that only shows that soaking works.
const (
	soakRound = time.Minute
	soakTaste = 6 * time.Second
)

// TestSoak breaks everything at random, again and again: three dispatchers, three workers and a NATS server, embedded
// or three of them, killed, restarted, stopped and cut off for a tenth of a second to ten seconds, several at a time,
// under the load of three agents whose tools act all the time. After each round everything has to come to rest, and is
// judged.
//
//	make soak MINUTES=30 SEED=7
func TestSoak(t *testing.T) {
	kinds := []struct {
		name  string
		start func(s *soak)
	}{{"server", (*soak).server}, {"embedded", (*soak).embedded}, {"cluster", (*soak).cluster}}
	first := uint64(1)
	if *oneSeed > 0 {
		first = *oneSeed
	}
	if *soakFor == 0 {
		t.Parallel()
		for _, k := range kinds {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				soakOnce(t, k.name, first, soakTaste, k.start)
			})
		}
		return
	}
	end := time.Now().Add(*soakFor)
	for round := uint64(0); time.Now().Before(end) && !t.Failed(); round++ {
		k := kinds[round%uint64(len(kinds))]
		seed := first + round/uint64(len(kinds))
		t.Run(fmt.Sprintf("%s/seed=%d", k.name, seed), func(t *testing.T) {
			soakOnce(t, k.name, seed, soakRound,
				k.start)
		})
	}
}

// soak is a system that is broken at random.
type soak struct {
	*system
	parties []*party
	victims []*process // workers that were killed or stopped
	stopped map[int]bool
}

// party is a process that is killed, stopped and cut off, behind a gate to NATS of its own.
type party struct {
	name  string
	start func() *process
	now   *process
	gate  *gate // nil for NATS itself
	// worker says that it runs calls, node that it is a NATS server, and exclusive that no other node may be away with
	// it.
	worker, node bool
	busy         bool // a fault is under way
}

func soakOnce(t *testing.T, kind string, seed uint64, length time.Duration, start func(*soak)) {
	s := &soak{system: newSystem(t, "soak-"+kind, seed), stopped: map[int]bool{}}
	start(s)
	l := s.load(mix{shape: soakShape, more: 2, timeout: 10 * time.Minute})
	s.progress(20)
	s.breakThings(length)
	s.faultOver()
	l.finish()
	r := rules{harmed: s.victims, stopped: s.stopped, zombie: true, settle: 2 * time.Minute, told: time.Minute,
		codes: map[string][]toolyard.Code{}}
	for name, k := range kinds {
		// A server that is away for longer than a lease costs calls, and a call that is attempted three times is not
		// attempted again.
		r.codes[name] = []toolyard.Code{toolyard.OutcomeUnknown, toolyard.DependencyUnavailable}
		if !k.Exclusive {
			r.codes[name] = append(r.codes[name], toolyard.SiblingCanceled)
		}
	}
	s.judge(r)
	t.Logf("the longest time in which no tool began: %s", s.idle())
}

// idle is the longest time between the beginnings of two tools.
func (s *soak) idle() (longest time.Duration) {
	s.t.Helper()
	lines, err := ledger.Read(s.ledger())
	if err != nil {
		s.t.Fatal(err)
	}
	var began []int64
	for _, l := range lines {
		if l.Kind == ledger.Begin {
			began = append(began, l.Wall)
		}
	}
	slices.Sort(began)
	for i := 1; i < len(began); i++ {
		longest = max(longest, time.Duration(began[i]-began[i-1]))
	}
	return longest
}

// soakShape makes the calls of a batch: reads and writes that act all the time.
func soakShape(r *rand.Rand) []toolyard.Call {
	out := mixed(r, false)
	for i := range out {
		if r.IntN(2) == 0 {
			switch out[i].Tool {
			case "look":
				out[i] = toolyard.Call{Tool: "steady_look", Input: raw(map[string]any{"work_ms": 50 + r.IntN(400)})}
			case "write":
				out[i] = toolyard.Call{Tool: "steady_write", Input: raw(map[string]any{"work_ms": 50 + r.IntN(600)})}
			case "put":
				out[i] = toolyard.Call{Tool: "steady_put", Input: raw(map[string]any{"work_ms": 50 + r.IntN(600)})}
			}
		}
	}
	return out
}

func (s *soak) server() {
	listen := s.freePorts(1)[0]
	node := &party{name: "nats", node: true, start: func() *process { return s.node(listen) }}
	node.now = s.basic2(node.start)
	s.parties = append(s.parties, node)
	s.dispatchersAndWorkers(3, 3, []string{listen})
}

// basic2 starts a NATS server and makes the streams.
func (s *soak) basic2(start func() *process) *process {
	p := start()
	s.open()
	return p
}

func (s *soak) embedded() {
	listen := s.freePorts(1)[0]
	node := &party{name: "dispatcher-nats", node: true, start: func() *process {
		p := s.spawn("dispatcher-nats", "nats", "", "dispatcher", "serve", "--nats-listen", listen, "--data", s.store(),
			"--max-store-bytes", fmt.Sprint(s.settings.MaxStoreBytes), "--listen", "127.0.0.1:0", "--log-level", "info")
		s.url = p.said("nats")
		return p
	}}
	node.now = s.basic2(node.start)
	s.parties = append(s.parties, node)
	s.dispatchersAndWorkers(2, 3, []string{listen})
}

func (s *soak) cluster() {
	c := s.threeNodes()
	var listens []string
	for i := range c.nodes {
		p := &party{name: fmt.Sprint("node-", i), node: true, now: c.nodes[i]}
		p.start = func() *process {
			c.start(i)
			return c.nodes[i]
		}
		s.parties = append(s.parties, p)
		listens = append(listens, s.hostPort(strings.Split(s.url, ",")[i]))
	}
	s.dispatchersAndWorkers(3, 3, listens)
}

// dispatchersAndWorkers starts them, each behind gates of its own to all NATS servers.
func (s *soak) dispatchersAndWorkers(dispatchers, workers int, listens []string) {
	s.t.Helper()
	behind := func(p *party) string {
		p.gate = &gate{}
		var urls []string
		for _, target := range listens {
			urls = append(urls, p.gate.to(s.t, target))
		}
		s.parties = append(s.parties, p)
		return strings.Join(urls, ",")
	}
	var start []func()
	for i := range workers {
		p := &party{name: fmt.Sprint("worker-", i), worker: true}
		url := behind(p)
		p.start = func() *process {
			w := s.spawn(p.name, "id", "", "ledgerworker", "--nats", url, "--ledger", s.ledger())
			s.mu.Lock()
			defer s.mu.Unlock()
			s.workers[w.said("id")] = w
			return w
		}
		start = append(start, func() { p.now = p.start() })
	}
	s.together(start...)
	start = nil
	for i := range dispatchers {
		p := &party{name: fmt.Sprint("dispatcher-", i)}
		url := behind(p)
		p.start = func() *process {
			return s.spawn(p.name, "nats", "", "dispatcher", "serve", "--nats", url, "--listen", "127.0.0.1:0",
				"--log-level", "info")
		}
		start = append(start, func() { p.now = p.start() })
	}
	s.together(start...)
}

// span is how long a fault lasts: a tenth of a second to ten seconds, short ones more often.
func (s *soak) span() time.Duration {
	return time.Duration(float64(100*time.Millisecond) * math.Pow(100, s.rand.Float64()))
}

// breakThings does so for a while, and returns when every fault is over.
func (s *soak) breakThings(length time.Duration) {
	s.t.Helper()
	var faults sync.WaitGroup
	var mu sync.Mutex // of busy, victims and stopped
	for end := time.Now().Add(length); time.Now().Before(end) && !s.t.Failed(); {
		p, what, span := s.parties[s.rand.IntN(len(s.parties))], s.rand.IntN(4), s.span()
		pause := time.Duration(s.rand.ExpFloat64() * float64(1500*time.Millisecond))
		abrupt := s.rand.IntN(2) == 0
		mu.Lock()
		free := !p.busy
		for _, other := range s.parties {
			free = free && !(p.node && other.node && other.busy) // one server of a cluster at a time, nearly
		}
		if free {
			p.busy = true
			if p.worker && what != 3 {
				s.victims = append(s.victims, p.now)
			}
			if what == 2 {
				s.stopped[p.now.pid()] = true
			}
		}
		mu.Unlock()
		if free {
			faults.Go(func() {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					p.busy = false
				}()
				s.fault(p, what, span, abrupt)
			})
		}
		timer := time.NewTimer(pause) // the schedule of the faults
		select {
		case <-timer.C:
		case <-s.t.Context().Done():
		}
	}
	faults.Wait()
}

// fault does one thing to a party, for a while. abrupt says that a cut breaks the connections, and does not only stop
// what they carry.
func (s *soak) fault(p *party, what int, span time.Duration, abrupt bool) {
	lasts := func() {
		timer := time.NewTimer(span) // the fault itself
		<-timer.C
	}
	switch {
	case what == 2:
		s.t.Logf("%s is stopped for %s", p.name, span)
		p.now.signal(syscall.SIGSTOP)
		lasts()
		p.now.signal(syscall.SIGCONT)
	case what == 3 && p.gate != nil:
		s.t.Logf("%s is cut off for %s", p.name, span)
		p.gate.shut(abrupt)
		lasts()
		p.gate.open()
	case what == 1 && !p.node:
		s.t.Logf("%s is told to end, and back after %s", p.name, span)
		p.now.planned = true
		p.now.signal(syscall.SIGTERM)
		<-p.now.done
		lasts()
		p.now = p.start()
	default:
		s.t.Logf("%s is killed, and back after %s", p.name, span)
		p.now.kill()
		lasts()
		p.now = p.start()
	}
}
