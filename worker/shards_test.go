package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/worker"
)

// TestAWorkerOfSomeShards: a shard that the system does not have is refused with its number.
func TestAWorkerOfSomeShards(t *testing.T) {
	echo, err := tool.Raw(tool.Tool{Declaration: tool.Declaration{Name: "echo", Description: "Says it again.",
		InputSchema: json.RawMessage(`{"type":"object"}`)},
		Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	s := testenv.Server(t)
	testenv.Broker(t, s, "/dispatcher/test")
	nc := testenv.Conn(t, s)
	for _, shards := range [][]int{{1}, {0, -1}, {0, 16}} {
		err := worker.Run(t.Context(), nc, worker.Options{Tools: []tool.Tool{echo}, Shards: shards})
		if err == nil || !strings.Contains(err.Error(), "there is no shard") {
			t.Errorf("%v: %v", shards, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := worker.Run(ctx, nc, worker.Options{Tools: []tool.Tool{echo}, Shards: []int{0, 0},
		Ready: func(string) { stop() }}); err != nil {
		t.Error(err)
	}
}
