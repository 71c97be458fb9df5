package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
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

// TestAWorkerChecksItsOptionsBeforeItWaits: what does not hold together is said at once, and not when there is a
// system. Whoever ends a worker that waits gets no error.
func TestAWorkerChecksItsOptionsBeforeItWaits(t *testing.T) {
	t.Parallel()
	echo := tool.Tool{Declaration: tool.Declaration{Name: "echo", Description: "Says it again.",
		InputSchema: json.RawMessage(`{"type":"object"}`)},
		Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil }}
	nc := testenv.Conn(t, testenv.Server(t))
	for name, c := range map[string]struct {
		change func(*worker.Options)
		want   string // empty: nothing is wrong
	}{
		"two tools of a name": {func(o *worker.Options) { o.Tools = append(o.Tools, echo) }, `two tools "echo"`},
		"a credential for no tool": {func(o *worker.Options) {
			o.Credentials = map[string]map[string]string{"ehco": {"KEY": "long-enough-to-be-found"}}
		}, `"ehco"`},
		"no pool's name":    {func(o *worker.Options) { o.Pool = toolyard.Pool(strings.Repeat("p", 5_000)) }, "pool"},
		"less than no slot": {func(o *worker.Options) { o.ReadSlots = -1 }, "-1 slots"},
		"fine":              {func(*worker.Options) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waits := make(logged, 1)
			o := worker.Options{Tools: []tool.Tool{echo}, Log: slog.New(slog.NewTextHandler(waits, nil))}
			c.change(&o)
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx, nc, o) }()
			var err error
			select {
			case err = <-done:
			case <-waits:
				if c.want != "" {
					t.Error("it waits for a system")
				}
				cancel()
				err = <-done
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// logged gets a value when something is logged.
type logged chan struct{}

func (l logged) Write(p []byte) (int, error) {
	select {
	case l <- struct{}{}:
	default:
	}
	return len(p), nil
}
