package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// cached declares a read whose output answers equal calls.
func cached(name string, c tool.Cache) tool.Declaration {
	d := reader(name)
	d.Cache = &c
	return d
}

// shown is how calls used the cache, with their outputs.
func shown(rs []toolyard.Result) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s %s", r.Cache, r.Output))
	}
	return strings.Join(out, ", ")
}

// TestOutputsAnswerUntilAnExclusiveCall: outputs of a read answer equal calls of its agent, through either of two
// dispatchers, until an exclusive call in the workspace: of another agent, through another dispatcher, also one that
// fails. One in another workspace ends nothing.
func TestOutputsAnswerUntilAnExclusiveCall(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	var ran, written atomic.Int64
	read := func(context.Context, tool.Env) (string, error) {
		return fmt.Sprint("state ", written.Load(), " run ", ran.Add(1)), nil
	}
	change := func(context.Context, tool.Env) (string, error) {
		written.Add(1)
		return "", nil
	}
	broken := func(context.Context, tool.Env) (string, error) {
		written.Add(1)
		return "", errors.New("half of it is done")
	}
	const minute = 60_000
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		make1(t, cached("count", tool.Cache{TTLMS: minute}), read),
		make1(t, cached("shared", tool.Cache{TTLMS: minute, Scope: tool.CacheWorkspace}), read),
		make1(t, reader("plain"), read),
		make1(t, writer("write"), change), make1(t, writer("broken"), broken),
	}})
	startDispatcher(t, s, dispatcher.Config{MaxBatches: 1})
	startDispatcher(t, s, dispatcher.Config{MaxBatches: 1})
	c := startClient(t, s)
	var logged *client.Batch
	n := 0
	run := func(agent toolyard.Agent, ws toolyard.Workspace, names ...string) string {
		t.Helper()
		n++
		b := toolyard.Batch{Agent: agent, ID: toolyard.BatchID(fmt.Sprint("b", n)), Workspace: ws,
			Calls: calls(names...), Options: toolyard.Options{OnError: toolyard.Continue}}
		sub := submit(t, c, b)
		logged = sub
		return shown(collect(t, t.Context(), sub))
	}
	for _, step := range []struct {
		agent toolyard.Agent
		ws    toolyard.Workspace
		names []string
		want  string
	}{
		{"a", "w", []string{"count"}, "miss state 0 run 1"},
		{"a", "w", []string{"count"}, "hit state 0 run 1"},
		{"b", "w", []string{"count"}, "miss state 0 run 2"},
		{"b", "w", []string{"shared"}, "miss state 0 run 3"},
		{"a", "w", []string{"shared", "count"}, "hit state 0 run 3, hit state 0 run 1"},
		{"a", "w", []string{"plain"}, " state 0 run 4"},
		{"a", "other", []string{"write"}, " "},
		{"a", "w", []string{"count"}, "hit state 0 run 1"},
		{"b", "w", []string{"write"}, " "},
		{"a", "w", []string{"count"}, "miss state 2 run 5"},
		{"a", "w", []string{"shared"}, "miss state 2 run 6"},
		{"b", "w", []string{"shared"}, "hit state 2 run 6"},
		{"b", "w", []string{"broken"}, " "},
		{"a", "w", []string{"count"}, "miss state 3 run 7"},
		{"a", "w", []string{"count", "write", "count", "write", "count"},
			"hit state 3 run 7,  , miss state 4 run 8,  , miss state 5 run 9"},
		{"a", "w", []string{"count"}, "hit state 5 run 9"},
	} {
		got := run(step.agent, step.ws, step.names...)
		if got != step.want {
			t.Fatalf("%s in %s, %q: %s, want %s", step.agent, step.ws, step.names, got, step.want)
		}
	}
	log := ""
	for e, err := range logged.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		log += string(e)
	}
	if !strings.Contains(log, `"cache":"hit"`) || // the last batch's
		!strings.Contains(log, "from the cache: the output of call 4 of a/b15") {
		t.Errorf("the log does not say it: %s", log)
	}
}
