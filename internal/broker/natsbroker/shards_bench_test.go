package natsbroker_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
)

// BenchmarkAppendsOfShards is how many events 32 writers store in a second on one server that syncs each message, with
// so many shards. A stream syncs its messages one after the other, whoever writes them.
func BenchmarkAppendsOfShards(b *testing.B) {
	const writers = 32
	for _, shards := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			s, err := natsd.Start(b.Context(), natsd.Options{StoreDir: b.TempDir(), Listen: "127.0.0.1:0", Open: true,
				SyncAlways: true, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(s.Shutdown)
			on := testenv.Open(b, testenv.Conn(b, s), broker.Settings{Shards: shards}, "/bench")
			var next atomic.Int64
			var work sync.WaitGroup
			b.ResetTimer()
			for range writers {
				work.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint(i))}
						if _, err := on.Append(b.Context(), k, batch.ChainItem, "default", 0, 0,
							events.Claimed{Worker: "w", Attempt: 1}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
