package pool

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestCallsRunWhereTheirTagsAre: what a batch and its tools ask for, their workers have; what none has is said at once.
func TestCallsRunWhereTheirTagsAre(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{WorkerWait: time.Millisecond})
	train := reader("train")
	train.Tags = []toolyard.Tag{"gpu"}
	join := func(name string, tags ...toolyard.Tag) *part {
		return startWorker(t, s, worker.Config{Tags: tags, Tools: []tool.Tool{
			make1(t, reader("where"), says(name)), make1(t, train, says(name)),
		}})
	}
	join("plain")
	join("gpu", "gpu")
	both := join("both", "region=eu", "gpu")
	c := startClient(t, s)
	for _, want := range []struct {
		tags         []toolyard.Tag
		where, train string // the worker, or what is missing
	}{
		{nil, "plain", "gpu"},
		{[]toolyard.Tag{"gpu"}, "gpu", "gpu"},
		{[]toolyard.Tag{"region=eu"}, "both", "both"},
		{[]toolyard.Tag{"gpu", "region=eu"}, "both", "both"},
		{[]toolyard.Tag{"gpu", "region=us", "fpga"}, `the tags "fpga", "region=us".`, `the tags "fpga", "region=us".`},
	} {
		got := results(t, c, toolyard.Batch{Calls: calls("where", "train"),
			Options: toolyard.Options{Tags: want.tags}})
		for i, where := range []string{want.where, want.train} {
			r := got[i]
			if strings.Contains(where, `"`) {
				if r.Code != toolyard.SetupRequired || !strings.Contains(r.Error, where) || r.Attempts != 0 {
					t.Errorf("%q, call of %s: %s %q; want %q", want.tags, r.Tool, r.Code, r.Error, where)
				}
			} else if r.Output != where {
				t.Errorf("%q, call of %s: ran in %q, %q; want %q", want.tags, r.Tool, r.Output, r.Error, where)
			}
		}
	}
	workers, err := c.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, w := range workers {
		for _, tag := range w.Tags {
			shown[string(w.Pool)+" "+string(tag)] = true
		}
	}
	pool := "gpu_region-eu-" // and of what its tags really are
	if n := slices.IndexFunc(workers, func(w client.Worker) bool {
		return strings.HasPrefix(string(w.Pool), pool)
	}); n < 0 {
		t.Errorf("no worker has a pool that is named after both tags: %+v", workers)
	} else {
		pool = string(workers[n].Pool)
	}
	if len(shown) != 3 || !shown["gpu gpu"] || !shown[pool+" gpu"] || !shown[pool+" region=eu"] {
		t.Errorf("the workers show the tags %v", shown)
	}
	// A batch that comes while the only ones with its tags are away waits for one of them.
	both.end(t)
	sub := submit(t, c, toolyard.Batch{Calls: calls("where"),
		Options: toolyard.Options{Tags: []toolyard.Tag{"region=eu"}}})
	if got := collect(t, t.Context(), sub); codes(got) != "dependency_unavailable" {
		t.Errorf("when those with the tag are away: %+v", got)
	}
}

// TestAWorkerWithoutTheTagsJoinsThePool: a call that is queued for workers with a tag is not run by one that lacks it,
// and batches that come later are told that the pool no longer has it.
func TestAWorkerWithoutTheTagsJoinsThePool(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{WorkerWait: time.Millisecond})
	began, release := make(chan struct{}), make(chan struct{})
	var wrong atomic.Int32
	asks := toolyard.Options{Tags: []toolyard.Tag{"gpu"}}
	one := map[toolyard.Class]int{toolyard.ReadOnly: 1}
	startWorker(t, s, worker.Config{Pool: "p", Tags: asks.Tags, Slots: one, Tools: []tool.Tool{
		make1(t, reader("hold"), func(ctx context.Context, _ tool.Env) (string, error) {
			select {
			case began <- struct{}{}:
			case <-ctx.Done():
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return "tagged", nil
		})}})
	c := startClient(t, s)
	var subs [2]*client.Batch
	for i := range subs { // of two, the second waits in the queue
		subs[i] = submit(t, c, toolyard.Batch{Calls: calls("hold"), Options: asks})
	}
	testenv.Within(t, "a call begins", began)
	startWorker(t, s, worker.Config{Pool: "p", Slots: one, Tools: []tool.Tool{
		make1(t, reader("hold"), func(context.Context, tool.Env) (string, error) {
			wrong.Add(1)
			return "untagged", nil
		})}})
	refused := results(t, c, toolyard.Batch{Calls: calls("hold"), Options: asks})
	if codes(refused) != "setup_required" || !strings.Contains(refused[0].Error, `"gpu"`) ||
		!strings.Contains(refused[0].Detail, `pool "p" differ`) {
		t.Errorf("of a pool of which only some have the tag: %+v", refused)
	}
	close(release)
	testenv.Within(t, "the other call begins", began)
	for i := range subs {
		if got := collect(t, t.Context(), subs[i]); codes(got) != "ok" || got[0].Output != "tagged" {
			t.Errorf("call %d: %+v", i, got)
		}
	}
	if wrong.Load() != 0 {
		t.Errorf("%d calls that ask for a tag ran without it", wrong.Load())
	}
}
