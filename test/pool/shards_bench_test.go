//go:build unix

package pool

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// BenchmarkIdleShards is what a system costs in which nothing runs: a server, a dispatcher and a worker in one process,
// with so many shards. It measures seconds of idleness, so b.N means nothing.
func BenchmarkIdleShards(b *testing.B) {
	const idle = 10 * time.Second
	for _, shards := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			s, err := server.NewServer(&server.Options{ServerName: "idle", Host: "127.0.0.1", Port: server.RANDOM_PORT,
				JetStream: true, StoreDir: b.TempDir(), NoSigs: true, NoLog: true})
			must.OK(b, err)
			b.Cleanup(func() {
				s.Shutdown()
				s.WaitForShutdown()
			})
			s.Start()
			if !s.ReadyForConnections(time.Minute) {
				b.Fatal("the server is not ready")
			}
			open := func(source string) *natsbroker.Broker {
				nc, err := nats.Connect(s.ClientURL(), natsbroker.ConnectOptions("bench",
					slog.New(slog.DiscardHandler))...)
				must.OK(b, err)
				b.Cleanup(nc.Close)
				return testenv.Open(b, nc, broker.Settings{Shards: shards, MaxStoreBytes: 1 << 30}, source)
			}
			begin(b, dispatcher.New(open("/dispatcher/bench"), dispatcher.Config{Log: testenv.Log(b),
				Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}}))
			cfg := worker.Config{Log: testenv.Log(b), Origin: registry.Toolset, ID: broker.WorkerID("default"),
				Tools: []tool.Tool{make1(b, reader("read"), says("read"))}}
			w, err := worker.New(open(broker.SourceWorker+cfg.ID), cfg)
			must.OK(b, err)
			begin(b, w)
			messages := func() float64 {
				v, err := s.Varz(nil)
				must.OK(b, err)
				return float64(v.InMsgs)
			}
			time.Sleep(time.Second) // the start is no part of it
			from, used := messages(), processor(b)
			time.Sleep(idle)
			b.ReportMetric((messages()-from)/idle.Seconds(), "messages/s")
			b.ReportMetric(float64((processor(b)-used).Milliseconds())/idle.Seconds(), "cpu-ms/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
