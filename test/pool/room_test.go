package pool

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestADiskWithoutRoom: where the disk under the NATS server has no room, all dispatchers refuse new batches, those too
// that only hear of it. What is under way finishes. When nothing can be stored at all, not even refusals are, and new
// batches wait.
func TestADiskWithoutRoom(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var room atomic.Pointer[broker.Room]
	room.Store(&broker.Room{})
	gate, ran := make(chan struct{}), make(chan toolyard.Agent, 20)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{gated(t, reader("read"), gate, ran),
		make1(t, reader("free"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{Room: func() broker.Room { return *room.Load() }})
	startDispatcher(t, s, dispatcher.Config{})
	c, b := startClient(t, s), testenv.Broker(t, s, "/test")
	underWay := submit(t, c, toolyard.Batch{Agent: "a", Calls: calls("read")})
	awaitStart(t, b, underWay.Key())

	const reason = "the disk under /data has 12 MiB free"
	status := func() int {
		for _, err := range submit(t, c, toolyard.Batch{Agent: "a", Calls: calls("free")}).Results(t.Context()) {
			if e, ok := errors.AsType[*client.RefusedError](err); ok {
				if !errors.Is(err, client.ErrFull) || !strings.Contains(e.Detail, reason) {
					t.Errorf("refused with %v; want an ErrFull with the reason", err)
				}
				return e.Status
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return 200
	}
	await := func(want int) { // many in a row, so that both dispatchers had some
		t.Helper()
		in := 0
		for end := time.Now().Add(30 * time.Second); in < 20; {
			if in++; status() != want {
				in = 0
			}
			if time.Now().After(end) {
				t.Fatalf("new batches do not end with status %d", want)
			}
		}
	}
	room.Store(&broker.Room{Full: true, Reason: reason})
	await(503)
	room.Store(&broker.Room{Full: true, Stalled: true, Reason: reason})
	var waits *client.Batch
	for end := time.Now().Add(30 * time.Second); waits == nil; { // until neither refuses
		sub := submit(t, c, toolyard.Batch{Agent: "a", Calls: calls("free")})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		for _, err := range sub.Results(ctx) {
			if _, ok := errors.AsType[*client.RefusedError](err); !ok {
				waits = sub
			}
		}
		cancel()
		if time.Now().After(end) {
			t.Fatal("new batches are refused, which is stored too")
		}
	}
	close(gate)
	if got := codes(collect(t, t.Context(), underWay)); got != "ok" {
		t.Errorf("the batch that was under way: %s", got)
	}
	room.Store(&broker.Room{})
	if got := codes(collect(t, t.Context(), waits)); got != "ok" {
		t.Errorf("the batch that waited: %s", got)
	}
	await(200)
}
