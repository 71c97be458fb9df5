package pool

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// BenchmarkBatch times a batch of K calls of about 200 bytes, with results of the same size, from submission to the
// last result: a server, a dispatcher, a worker and a client with a connection each. The floor is a message stored and
// acknowledged on the same server.
func BenchmarkBatch(b *testing.B) {
	text := strings.Repeat("x", 190)
	type in struct {
		Text string `json:"text"`
	}
	declare := func(d tool.Declaration) tool.Tool {
		return newTool(b, tool.Typed[in, string]{Declaration: d,
			Run: func(_ context.Context, _ tool.Env, i in) (string, error) { return i.Text, nil }})
	}
	c := benchPool(b, worker.Config{
		Mode: policy.Bypass, Tools: []tool.Tool{declare(reader("read")), declare(writer("write"))},
		Slots: map[toolyard.Class]int{toolyard.ReadOnly: 64},
	})
	input := must.JSON(b, in{text})
	one := func(name, workspace string, k int) error {
		batch := toolyard.Batch{Workspace: toolyard.Workspace(workspace)}
		for range k {
			batch.Calls = append(batch.Calls, toolyard.Call{Tool: name, Input: input})
		}
		sub, err := c.Submit(b.Context(), batch)
		if err != nil {
			return err
		}
		n := 0
		for r, err := range sub.Results(b.Context()) {
			if err != nil {
				return err
			}
			if r.Index != n || r.Output != text {
				return fmt.Errorf("result %d is %+v", n, r)
			}
			n++
		}
		return nil
	}
	for _, k := range []int{1, 10} {
		b.Run(fmt.Sprintf("read/K=%d", k), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				must.OK(b, one("read", "w", k))
				took = append(took, time.Since(began))
			}
			percentiles(b, took)
		})
	}
	b.Run("write/K=3", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			must.OK(b, one("write", "w", 3))
			took = append(took, time.Since(began))
		}
		percentiles(b, took)
	})
	b.Run("read/K=10/inflight=32", func(b *testing.B) {
		b.SetParallelism(16) // 32 on two cores
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := one("read", "w", 10); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "calls/s")
	})
}

// benchPool is a server, a dispatcher, a worker and a client with a connection each, which log nothing.
func benchPool(b *testing.B, cfg worker.Config) *client.Client {
	b.Helper()
	c, _ := benchSystem(b, cfg)
	return c
}

// benchSystem is the same, and the server.
func benchSystem(b *testing.B, cfg worker.Config) (*client.Client, *natsd.Server) {
	b.Helper()
	s := testenv.Server(b)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	w, err := worker.New(testenv.Broker(b, s, "/worker/bench"), cfg)
	must.OK(b, err)
	d := dispatcher.New(testenv.Broker(b, s, "/dispatcher/bench"),
		dispatcher.Config{Log: cfg.Log, Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range []runs{w, d} {
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
	c, err := client.Connect(b.Context(), testenv.Conn(b, s), client.Options{})
	must.OK(b, err)
	return c, s
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
