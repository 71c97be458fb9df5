package natsbroker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// What BenchmarkIndex lists: 10,000 agents, of which one has a tenth of all batches, and 1,000 names of sessions. One
// batch in a thousand was canceled. 1,000 batches run and 10,000 wait for people, spread over all that are kept.
const (
	benchAgents   = 10_000
	benchSessions = 1_000
	benchCanceled = 1_000
	benchRunning  = 1_000
	benchWaiting  = 10_000
)

func benchEntry(i, n int) broker.Entry {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	agent, status := r.IntN(benchAgents), toolyard.StatusCompleted
	if r.IntN(10) == 0 {
		agent = 0
	}
	switch {
	case i > n-benchRunning:
		status = toolyard.StatusRunning
	case i%(n/benchWaiting) == 1:
		status = toolyard.StatusWaiting
	case i%benchCanceled == 2:
		status = toolyard.StatusCanceled
	}
	at := time.Now().Add(time.Duration(i-n) * time.Millisecond)
	return broker.Entry{
		ID:      toolyard.BatchID(fmt.Sprintf("batch-%016x", r.Uint64())),
		Agent:   toolyard.Agent(fmt.Sprintf("agent-%d", agent)),
		Session: toolyard.Session(fmt.Sprintf("session-%d", i/50%benchSessions)), Workspace: "default", Status: status,
		Calls: 10, Submitted: at, Changed: at, Place: uint64(i), Revision: uint64(i) * 20,
	}
}

// BenchmarkIndex times every list over as many batches as its name says, 100 a page, on a real server: "first" is the
// first list after the server was started on them. -bench Index/1000000 is what ADR 0024 is about; it takes a minute,
// and half a GiB.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchIndex(b, n) })
	}
}

func benchIndex(b *testing.B, n int) {
	s := testenv.Restartable(b)
	nc := testenv.Conn(b, s.Server)
	br := testenv.Open(b, nc, broker.Settings{}, "/bench")
	js := testenv.JetStream(b, nc, jetstream.WithPublishAsyncMaxPending(4_096))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	empty, began := heap(), time.Now()
	for i := 1; i <= n; i++ {
		subject, err := natsbroker.IndexSubject(benchEntry(i, n))
		if err == nil {
			_, err = js.PublishMsgAsync(nats.NewMsg(subject), jetstream.WithStallWait(time.Minute))
		}
		must.OK(b, err)
	}
	<-js.PublishAsyncComplete()
	took := time.Since(began)
	if stored, err := br.Indexed(b.Context()); err != nil || stored != uint64(n) {
		b.Fatalf("%d of %d entries are stored: %v", stored, n, err)
	}
	each := float64(heap()-empty) / float64(n)
	index := br.IndexOf(func() (oldest, newest uint64) { return 1, uint64(n) })

	s.Shutdown()
	began = time.Now()
	s.Start()
	for {
		if _, err := br.Indexed(b.Context()); err == nil {
			break
		}
	}
	again := time.Since(began)
	b.Run("the server", func(b *testing.B) {
		for b.Loop() {
			continue
		}
		b.ReportMetric(took.Seconds(), "fill-s")
		b.ReportMetric(again.Seconds(), "restart-s")
		b.ReportMetric(each, "heap-B/batch")
	})
	agent := func(i int) toolyard.Agent { return toolyard.Agent(fmt.Sprintf("agent-%d", i%benchAgents)) }
	session := func(i int) toolyard.Session { return toolyard.Session(fmt.Sprintf("session-%d", i%benchSessions)) }
	for _, list := range []struct {
		name   string
		filter func(i int) broker.Filter
	}{
		{"all", func(int) broker.Filter { return broker.Filter{} }},
		{"further down", func(i int) broker.Filter { return broker.Filter{After: uint64(i) * 7919 % uint64(n)} }},
		{"agent", func(i int) broker.Filter { return broker.Filter{Agent: agent(i + 1)} }},
		{"the busy agent", func(int) broker.Filter { return broker.Filter{Agent: agent(0)} }},
		{"nobody", func(int) broker.Filter { return broker.Filter{Agent: "nobody"} }},
		{"session", func(i int) broker.Filter { return broker.Filter{Session: session(i)} }},
		{"agent and session", func(i int) broker.Filter { return broker.Filter{Agent: agent(0), Session: session(i)} }},
		{"completed", func(int) broker.Filter { return broker.Filter{Status: toolyard.StatusCompleted} }},
		{"canceled", func(int) broker.Filter { return broker.Filter{Status: toolyard.StatusCanceled} }},
		{"canceled of an agent", func(i int) broker.Filter {
			return broker.Filter{Agent: agent(i), Status: toolyard.StatusCanceled}
		}},
		{"running", func(int) broker.Filter { return broker.Filter{Status: toolyard.StatusRunning} }},
		{"waiting", func(int) broker.Filter { return broker.Filter{Status: toolyard.StatusWaiting} }},
		{"waiting, further down", func(i int) broker.Filter {
			return broker.Filter{Status: toolyard.StatusWaiting, After: uint64(i) * 7919 % uint64(n)}
		}},
		{"open", func(int) broker.Filter { return broker.Filter{Status: toolyard.StatusOpen} }},
		{"live of a session", func(i int) broker.Filter {
			return broker.Filter{Agent: agent(i), Session: session(i), Live: true}
		}},
		{"all, pages of 1000", func(int) broker.Filter { return broker.Filter{Limit: broker.MaxListed} }},
		{"waiting, pages of 1000", func(int) broker.Filter {
			return broker.Filter{Status: toolyard.StatusWaiting, Limit: broker.MaxListed}
		}},
	} {
		b.Run(list.name, func(b *testing.B) {
			var took []time.Duration
			listed := 0
			for b.Loop() {
				f := list.filter(len(took))
				if f.Limit == 0 {
					f.Limit = 100
				}
				began := time.Now()
				page, _, err := index.Page(context.Background(), f)
				took = append(took, time.Since(began))
				must.OK(b, err)
				listed += len(page)
			}
			report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/1000, unit) }
			report(took[0], "first-ms")
			slices.Sort(took)
			report(took[len(took)/2], "p50-ms")
			report(took[len(took)*99/100], "p99-ms")
			report(took[len(took)-1], "max-ms")
			b.ReportMetric(float64(listed)/float64(len(took)), "batches")
		})
	}
	b.Run("put a batch", func(b *testing.B) {
		for b.Loop() {
			e := benchEntry(int(rand.Uint32()), n)
			e.Place, e.Status = uint64(n)+uint64(rand.Uint32()), toolyard.StatusRunning
			must.OK(b, index.Add(b.Context(), e))
			e.Status = toolyard.StatusCompleted
			must.OK(b, index.Change(b.Context(), e))
		}
	})
}
