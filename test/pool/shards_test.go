package pool

import (
	"context"
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestGuestsOfFourShards: agents and workers with accounts of their own do their work in a system of four shards:
// batches of reads and of exclusive calls, open ones, cancels, and batches that are looked at later.
func TestGuestsOfFourShards(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	testenv.Open(t, testenv.ConnAs(t, s, platform), broker.Settings{Shards: 4}, "/test")
	dispatch(t, s)
	run := func(_ context.Context, _ tool.Env, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return in.Text, nil
	}
	echo := newTool(t, tool.Typed[struct {
		Text string `json:"text"`
	}, string]{Declaration: reader("echo"), Run: run})
	write := newTool(t, tool.Typed[struct {
		Text string `json:"text"`
	}, string]{Declaration: writer("write"), Run: run})
	guestWorker(t, s, worker.Config{Tools: []tool.Tool{echo, write}})
	c := guestClient(t, s, "an agent")
	const n = 12
	used := map[int]bool{}
	for i := range n {
		call := func(name, text string) toolyard.Call {
			input := must.JSON(t, map[string]string{"text": text})
			return toolyard.Call{Tool: name, Input: input}
		}
		sub := toolyard.Batch{Agent: "an agent", ID: toolyard.BatchID(fmt.Sprint("batch-", i)),
			Workspace: toolyard.Workspace(fmt.Sprint("w", i%3)),
			Calls:     []toolyard.Call{call("echo", "a"), call("write", "b"), call("echo", "c")}}
		b := submit(t, c, sub)
		for j, r := range resultsOf(t, b) {
			if r.IsError || r.Index != j {
				t.Errorf("batch %d: %+v", i, r)
			}
		}
		used[broker.Settings{Shards: 4}.ShardOf(sub.Key())] = true
	}
	if len(used) < 2 {
		t.Errorf("the batches are in %d shards", len(used))
	}
	whole := testenv.BrokerAs(t, s, platform, "/reader")
	page, more, err := whole.Index().Page(t.Context(), broker.Filter{Agent: "an agent"})
	if err != nil || more || len(page) != n {
		t.Errorf("%d batches are listed, %t, %v", len(page), more, err)
	}
	later, err := client.Connect(t.Context(), testenv.ConnAs(t, s, agentNamed("an agent")), client.Options{})
	must.OK(t, err)
	for i := range n {
		if got := resultsOf(t, later.Batch(toolyard.BatchKey{Agent: "an agent",
			ID: toolyard.BatchID(fmt.Sprint("batch-", i))})); len(got) != 3 {
			t.Errorf("later there are %d results of batch %d", len(got), i)
		}
	}
}
