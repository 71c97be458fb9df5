package toolsets

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/mcp/toolset"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// runner is a worker or a dispatcher.
type runner interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}

// begin runs a part for as long as the test.
func begin(t *testing.T, r runner) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	testenv.Within(t, "a part is ready", r.Ready())
}

// pool is a dispatcher and a worker.
func pool(t *testing.T, cfg worker.Config) (*natsd.Server, *client.Client) {
	t.Helper()
	s := testenv.Server(t)
	testenv.Broker(t, s, "/dispatcher/first") // the system is there before its worker
	join(t, s, cfg)
	d := dispatcher.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	d.Planner.Pipeline = &pipeline.Pipeline{}
	begin(t, dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), d))
	c, err := client.Connect(t.Context(), testenv.Conn(t, s), client.Options{})
	must.OK(t, err)
	return s, c
}

// join is one more worker of a pool.
func join(t *testing.T, s *natsd.Server, cfg worker.Config) {
	t.Helper()
	cfg.Mode, cfg.DrainGrace, cfg.Log = policy.Bypass, 200*time.Millisecond,
		slog.New(slog.NewTextHandler(io.Discard, nil))
	w, err := worker.New(testenv.Broker(t, s, "/worker/test"), cfg)
	must.OK(t, err)
	begin(t, w)
}

// set is the toolset of a server.
func set(t *testing.T, s manifest.Server) *toolset.Toolset {
	t.Helper()
	if s.MaxTools == 0 {
		s.MaxTools = 100
	}
	if s.MaxInFlight == 0 {
		s.MaxInFlight = 2
	}
	s.StartTimeoutMS = 10_000
	made, err := toolset.New(toolset.Options{Server: s, Lookup: os.LookupEnv, MinPause: 20 * time.Millisecond,
		MaxPause: 100 * time.Millisecond,
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil))})
	must.OK(t, err)
	return made
}

func call(name, input string) toolyard.Call {
	return toolyard.Call{Tool: name, Input: json.RawMessage(input)}
}

// submit hands calls in, in a workspace of the agent's own.
func submit(t *testing.T, c *client.Client, agent string, calls ...toolyard.Call) *client.Batch {
	t.Helper()
	b, err := c.Submit(t.Context(), toolyard.Batch{Agent: toolyard.Agent(agent), Workspace: toolyard.Workspace(agent),
		Calls: calls})
	must.OK(t, err)
	return b
}

// results are those of a batch, within a time.
func results(t *testing.T, b *client.Batch) []toolyard.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []toolyard.Result
	for r, err := range b.Results(ctx) {
		if err != nil {
			t.Fatalf("after %d results: %v", len(out), err)
		}
		out = append(out, r)
	}
	return out
}

// one is the result of one call.
func one(t *testing.T, c *client.Client, agent string, one toolyard.Call) toolyard.Result {
	t.Helper()
	return results(t, submit(t, c, agent, one))[0]
}

// eventually runs one call after the other until its result is as it should be.
func eventually(t *testing.T, c *client.Client, agent string, one toolyard.Call,
	good func(toolyard.Result) bool) toolyard.Result {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		r := results(t, submit(t, c, agent, one))[0]
		if good(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is still %q: %s%s", patience, r.Code, r.Output, r.Error)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// inWorker is a tool in the worker's own process.
func inWorker(t *testing.T, d tool.Declaration, says string) tool.Tool {
	t.Helper()
	d.Description = "A tool of a test."
	made, err := tool.New(tool.Typed[struct{}, string]{Declaration: d,
		Run: func(context.Context, tool.Env, struct{}) (string, error) { return says, nil }})
	must.OK(t, err)
	return made
}

func contains(t *testing.T, r toolyard.Result, words string) {
	t.Helper()
	if r.IsError || !strings.Contains(r.Output, words) {
		t.Errorf("%s gave %q %q %q, want %q", r.Tool, r.Code, r.Output, r.Error, words)
	}
}
