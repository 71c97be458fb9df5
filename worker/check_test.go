package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/worker"
)

// TestAWorkerChecksItsTools: a tool that was not made by New or Raw is held to the same.
func TestAWorkerChecksItsTools(t *testing.T) {
	run := func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil }
	good := tool.Tool{Run: run, Declaration: tool.Declaration{Name: "echo", Description: "Says it again.",
		InputSchema: json.RawMessage(`{"type":"object"}`)}}
	nc := testenv.Conn(t, testenv.Server(t))
	for name, c := range map[string]struct {
		change func(*tool.Tool)
		want   string
	}{
		"no Run":               {func(t *tool.Tool) { t.Run = nil }, "Run is nil"},
		"an unknown class":     {func(t *tool.Tool) { t.Class.Static = "PURPLE" }, "PURPLE"},
		"a size below -1":      {func(t *tool.Tool) { t.MaxResultSizeChars = -5 }, "MaxResultSizeChars is -5"},
		"no judge":             {func(t *tool.Tool) { t.Class.Ask = true }, "Judge is nil"},
		"an unknown interrupt": {func(t *tool.Tool) { t.Interrupt = "perhaps" }, "Interrupt"},
		"two specifiers":       {func(t *tool.Tool) { t.Specifier = tool.Specifier{Path: "a", URL: "b"} }, "Specifier"},
		"no schema":            {func(t *tool.Tool) { t.InputSchema = nil }, "InputSchema"},
		"a schema that does not compile": {
			func(t *tool.Tool) { t.InputSchema = json.RawMessage(`{"type":"object","properties":5}`) }, "schema"},
	} {
		bad := good
		c.change(&bad)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // what is right waits for a system
		err := worker.Run(ctx, nc, worker.Options{Tools: []tool.Tool{good, bad}[1:]})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "echo") {
			t.Errorf("%s: it started, or said %v", name, err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := worker.Run(ctx, nc, worker.Options{}); err == nil || !strings.Contains(err.Error(), "Tools is empty") {
		t.Errorf("without tools: it started, or said %v", err)
	}
	if err := worker.Run(ctx, nil, worker.Options{Tools: []tool.Tool{good}}); err == nil ||
		!strings.Contains(err.Error(), "connection is nil") {
		t.Errorf("without a connection: it started, or said %v", err)
	}
	d := tool.Declaration{MaxResultSizeChars: -5}
	if got := d.MaxResultChars(); got != tool.DefaultMaxResultSizeChars {
		t.Errorf("a size of -5 means %d characters", got)
	}
}
