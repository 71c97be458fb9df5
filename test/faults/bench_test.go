//go:build unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// BenchmarkGap measures what an agent waits when something is killed under it: the longest time between two of its
// results, of three agents that hand in short batches one after the other. Run it with -benchtime 5x: each round is a
// system of its own.
//
// worst-ms is the longest of all rounds, mean-ms the mean of the rounds' longest, usual-ms the longest before the kill.
func BenchmarkGap(b *testing.B) {
	short := func(tool string, n, ms int) func(*rand.Rand) []toolyard.Call {
		return func(*rand.Rand) []toolyard.Call { return repeated(tool, n, map[string]any{"work_ms": ms}) }
	}
	atWork := func(s *system, w, _ *process, _ *cluster) {
		s.until(faultWait, "the worker has begun something", func() bool { return s.begunAndNotEnded(w) > 0 })
		w.kill()
	}
	for _, c := range []struct {
		name  string
		shape func(*rand.Rand) []toolyard.Call
		nodes int
		kill  func(s *system, w, d *process, c *cluster)
	}{
		{"dispatcher", short("look", 3, 5), 1, func(_ *system, _, d *process, _ *cluster) { d.kill() }},
		{"worker/read", short("look", 3, 100), 1, atWork},
		{"worker/idempotent write", short("put", 2, 100), 1, atWork},
		{"leader of three NATS nodes", short("look", 3, 5), 3, func(s *system, _, _ *process, c *cluster) {
			i := -1
			s.until(faultWait, "the events have a leader", func() bool { i, _ = c.leader("TY_EVENT"); return i >= 0 })
			c.nodes[i].kill()
		}},
		// Each is back before the next is killed, and has not caught up yet: for a while no two of them agree.
		{"three NATS nodes one after the other", short("look", 3, 5), 3, func(_ *system, _, _ *process, c *cluster) {
			for i := range c.nodes {
				c.nodes[i].kill()
				c.start(i)
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var gaps, before []time.Duration
			for n := range b.N {
				s := newSystem(b, "gap", uint64(n+1))
				var nodes *cluster
				if c.nodes == 1 {
					s.basic()
				} else {
					nodes = s.threeNodes()
				}
				w, d := s.twoOfEach("", "")
				l := s.load(mix{quiet: true, shape: c.shape, more: 2})
				s.progress(40 + s.rand.IntN(100))
				at := time.Now()
				c.kill(s, w, d, nodes)
				b.Logf("round %d: the fault took %s", n, time.Since(at))
				// Each agent has gone on when it has results of a batch that it handed in later.
				s.until(faultWait, "every agent goes on", func() bool { return l.goneOn(at) })
				s.faultOver()
				l.finish()
				quiet, after := l.gaps(at)
				before, gaps = append(before, quiet), append(gaps, after)
				s.end()
			}
			report(b, gaps, before)
		})
	}
}

func report(b *testing.B, gaps, before []time.Duration) {
	b.Helper()
	var sum time.Duration
	for _, g := range gaps {
		sum += g
	}
	b.ReportMetric(0, "ns/op") // how long a round takes says nothing
	b.ReportMetric(ms(slices.Max(gaps)), "worst-ms")
	b.ReportMetric(ms(sum/time.Duration(len(gaps))), "mean-ms")
	b.ReportMetric(ms(slices.Max(before)), "usual-ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// goneOn reports whether every agent has handed in a batch after a time, and has results of it.
func (l *load) goneOn(after time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	on := map[toolyard.Agent]bool{}
	for _, sub := range l.submissions {
		if sub.Acked.After(after) && !sub.Over.IsZero() {
			on[sub.Batch.Agent] = true
		}
	}
	return len(on) == 3
}

// gaps are the longest times that an agent was without a result, before a time and from then on.
func (l *load) gaps(at time.Time) (before, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := map[toolyard.Agent]time.Time{}
	for _, sub := range l.submissions {
		for _, got := range sub.At {
			if was, ok := last[sub.Batch.Agent]; ok {
				if got.Before(at) {
					before = max(before, got.Sub(was))
				} else {
					after = max(after, got.Sub(was))
				}
			}
			last[sub.Batch.Agent] = got
		}
	}
	return before, after
}

// BenchmarkAbort measures how soon a tool's context ends when a sibling of its call has failed: from when the sibling's
// tool returned. Run it with -benchtime 100x: each round is a batch.
func BenchmarkAbort(b *testing.B) {
	s := newSystem(b, "abort", 1)
	s.basic()
	s.worker("worker", "")
	s.dispatcher("dispatcher", "")
	l := s.load(mix{quiet: true})
	l.finish()
	calls := slices.Concat(repeated("fail", 1, map[string]any{"work_ms": 100}),
		repeated("look", 4, map[string]any{"work_ms": 60_000}))
	var batches []toolyard.BatchKey
	for n := range b.N {
		sub := l.extra(toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprint("abort-", n)), Workspace: "dan",
			Calls: calls})
		batches = append(batches, sub.Key())
	}
	s.until(faultWait, "every tool knows it", func() bool { return s.begunAndNotEnded(s.processes[1]) == 0 })
	lines, err := ledger.Read(s.ledger())
	must.OK(b, err)
	failed, told := map[toolyard.BatchKey]int64{}, map[verdict.Call]int64{}
	for _, line := range lines {
		switch {
		case line.Kind == ledger.End && line.Tool == "fail":
			failed[line.Key()] = line.Wall
		case line.Kind == ledger.Stopped:
			told[verdict.Call{BatchKey: line.Key(), Index: line.Index}] = line.Wall
		}
	}
	var whole []time.Duration
	for _, k := range batches {
		log, err := s.b.Log(s.context(), k)
		must.OK(b, err)
		for _, e := range log {
			f, ok := e.Body.(events.Finished)
			if !ok {
				continue
			}
			for _, res := range f.Results() {
				at, stopped := told[verdict.Call{BatchKey: k, Index: res.Index}]
				if stopped && res.Code == toolyard.SiblingCanceled {
					whole = append(whole, time.Duration(at-failed[k]))
				}
			}
		}
	}
	if len(whole) != 4*len(batches) {
		b.Fatalf("%d calls of %d were canceled while they ran", len(whole), 4*len(batches))
	}
	slices.Sort(whole)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(whole[len(whole)/2]), "p50-ms")
	b.ReportMetric(ms(whole[len(whole)*99/100]), "p99-ms")
}

// BenchmarkDeath measures what a person sees of a worker's death: the time from a submission to its result, when the
// tool takes 1.5 s and its worker is killed, or stopped, half a second into it. Run it with -benchtime 3x: each round
// is a batch.
func BenchmarkDeath(b *testing.B) {
	kill, stop := (*process).kill, func(p *process) { p.signal(syscall.SIGSTOP) }
	for _, c := range []struct {
		name, tool string
		harm       func(*process)
	}{
		{"read", "look", kill}, {"write that may not run twice", "write", kill},
		{"write that may run twice", "put", kill},
		{"write, stopped", "write", stop},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for n := range b.N {
				s := newSystem(b, "death", uint64(n+1))
				s.basic()
				s.twoOfEach("", "")
				at := func(p *process) bool { return s.begunAndNotEnded(p) > 0 }
				l := s.load(mix{quiet: true})
				l.finish()
				done := make(chan *verdict.Submission, 1)
				go func() {
					done <- l.extra(toolyard.Batch{Agent: "dan", ID: "death", Workspace: "dan",
						Calls: repeated(c.tool, 1, map[string]any{"work_ms": 1_500})})
				}()
				s.until(faultWait, "the tool has begun", func() bool { return slices.ContainsFunc(s.processes, at) })
				time.Sleep(500 * time.Millisecond)
				c.harm(s.processes[slices.IndexFunc(s.processes, at)])
				sub := <-done
				took = append(took, sub.Over.Sub(sub.Acked))
				s.end()
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(took[0]), "least-ms")
			b.ReportMetric(ms(took[len(took)-1]), "worst-ms")
		})
	}
}
