package pool

import (
	"fmt"
	"sync"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestTheIndexHasABatchOnce runs batches side by side. When each has its last result and is listed so, nothing else is
// kept of it in the index, and the list has the order in which they were submitted.
func TestTheIndexHasABatchOnce(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	const n = 40
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x")),
		make1(t, writer("write"), says("y"))}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	var running sync.WaitGroup
	for i := range n {
		sub := submit(t, c, toolyard.Batch{
			ID: toolyard.BatchID(fmt.Sprint("b", i)), Agent: toolyard.Agent(fmt.Sprint("a", i%3)),
			Calls: calls("read", "write"),
		})
		running.Go(func() {
			for _, err := range sub.Results(t.Context()) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	var page []broker.Entry
	testenv.Until(t, "all batches are listed as completed", func() bool {
		var err error
		if page, _, err = b.Index().Page(t.Context(), broker.Filter{Status: toolyard.StatusCompleted}); err != nil {
			t.Fatal(err)
		}
		return len(page) == n
	})
	for i, e := range page {
		if want := toolyard.BatchID(fmt.Sprint("b", n-1-i)); e.ID != want {
			t.Errorf("listed as number %d is batch %s, want %s", i, e.ID, want)
		}
	}
	js := testenv.JetStream(t, testenv.Conn(t, s))
	testenv.Until(t, "the index has each batch once", func() bool {
		bucket := testenv.Stream(t, js, "KV_ty_index")
		return bucket.CachedInfo().State.Msgs == n
	})
	if live, _, err := b.Index().Page(t.Context(), broker.Filter{Live: true}); err != nil || len(live) != 0 {
		t.Errorf("listed as live are %+v, %v", live, err)
	}
}
