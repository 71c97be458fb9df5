//go:build unix

package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// BenchmarkAccounts is what it costs that workers and agents have accounts of their own: the same load on the same
// server, once with the platform's rights for everybody.
func BenchmarkAccounts(b *testing.B) {
	everybody := access.Principal{Role: access.Dispatcher}
	for _, mode := range []struct {
		name          string
		worker, agent access.Principal
	}{
		{"platform", everybody, everybody},
		{"accounts", access.Principal{Role: access.Worker, Name: "default"},
			access.Principal{Role: access.Agent, Name: "default"}},
	} {
		b.Run(mode.name, func(b *testing.B) {
			s := testenv.Guarded(b)
			log := slog.New(slog.NewTextHandler(io.Discard, nil))
			d := dispatcher.New(testenv.BrokerAs(b, s, everybody, "/dispatcher/bench"),
				dispatcher.Config{Log: log, Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}})
			ctx, stop := context.WithCancel(context.Background())
			var running sync.WaitGroup
			start := func(r runs) {
				running.Go(func() {
					if err := r.Run(ctx); err != nil {
						b.Error(err)
					}
				})
				<-r.Ready()
			}
			b.Cleanup(func() {
				stop()
				running.Wait()
			})
			start(d)
			w, err := worker.New(testenv.BrokerAs(b, s, mode.worker, "/worker/bench"), worker.Config{
				ID: broker.WorkerID("default"), Log: log, Origin: registry.Toolset, Mode: policy.Bypass,
				Tools: []tool.Tool{make1(b, reader("read"), says("read"))},
			})
			must.OK(b, err)
			start(w)
			c, err := client.Connect(b.Context(), testenv.ConnAs(b, s, mode.agent), client.Options{})
			must.OK(b, err)
			calls := make([]toolyard.Call, 10)
			for i := range calls {
				calls[i] = toolyard.Call{ID: fmt.Sprint(i), Tool: "read", Input: json.RawMessage(`{}`)}
			}
			b.SetParallelism(16) // 32 on two cores
			began := processor(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					sub, err := c.Submit(b.Context(), toolyard.Batch{Calls: calls})
					if err != nil {
						b.Error(err)
						return
					}
					for _, err := range sub.Results(b.Context()) {
						if err != nil {
							b.Error(err)
							return
						}
					}
				}
			})
			b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "calls/s")
			// however busy the machine is
			b.ReportMetric(float64((processor(b)-began).Microseconds())/float64(10*b.N), "cpu-us/call")
		})
	}
}

// processor is the processor time that this process has used: server, dispatcher, worker and client.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
