package pool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// line is the input of the shell of these tests.
type line struct {
	Command string `json:"command"`
}

// shellTool is a tool that takes commands. "mkdir slow" runs until gate is closed or it is stopped.
func shellTool(t testing.TB, begun chan<- tool.Env, gate <-chan struct{}) tool.Tool {
	t.Helper()
	return newTool(t, tool.Typed[line, string]{
		Declaration: tool.Declaration{Name: "sh", Description: "Runs a command.", TimeoutMS: 60_000,
			Class: tool.ClassRule{Shell: "command"}, Execution: tool.InService},
		Run: func(ctx context.Context, env tool.Env, in line) (string, error) {
			switch in.Command {
			case "mkdir bad":
				return "", errors.New("exit status 2")
			case "mkdir loud":
				return strings.Repeat("a line of a long output\n", 1_000), errors.New("exit status 2")
			case "mkdir late":
				return "", &tool.Error{Code: toolyard.Timeout, Message: "It was stopped after 1s."}
			case "mkdir slow":
				begun <- env
				select {
				case <-gate:
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			return "done: " + in.Command, nil
		},
	})
}

// TestACommandGoesOn: with background_after_ms a command that may change something and is not over in time goes on as a
// background call, under a ticket of its own; one that is over gives its own result. What only reads, and batches
// without the option, stay as they are. A command whose call ends early is stopped.
func TestACommandGoesOn(t *testing.T) {
	t.Parallel()
	s, begun, gate := testenv.Server(t), make(chan tool.Env, 10), make(chan struct{})
	startWorker(t, s, worker.Config{Tools: append(background.Tools(), shellTool(t, begun, gate))})
	bare := shellTool(t, begun, gate)
	bare.Name = "bare"
	startWorker(t, s, worker.Config{Pool: "bare", Tools: []tool.Tool{bare}})
	startDispatcher(t, s, dispatcher.Config{})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	const patient = 5 * time.Minute
	failed := resultsOf(k, k.command("sh", "mkdir bad", 0))[0].Text()
	loud := resultsOf(k, k.command("sh", "mkdir loud", 0))[0].Text()
	late := resultsOf(k, k.command("sh", "mkdir late", 0))[0].Text()
	for _, c := range []struct {
		name, command string
		after         time.Duration
		runs          string // the tool that the result names
		code          toolyard.Code
		text          string
	}{
		{"sh", "mkdir x", patient, toolyard.BackgroundStart, "", "done: mkdir x"},
		{"sh", "mkdir bad", patient, toolyard.BackgroundStart, toolyard.ExecutionFailed, failed},
		{"sh", "mkdir loud", patient, toolyard.BackgroundStart, toolyard.ExecutionFailed, loud},
		{"sh", "mkdir late", patient, toolyard.BackgroundStart, toolyard.Timeout, late},
		{"sh", "ls", patient, "sh", "", "done: ls"},
		{"sh", "mkdir x", 0, "sh", "", "done: mkdir x"},
		{"bare", "mkdir x", patient, "bare", "", "done: mkdir x"},
	} {
		r := resultsOf(k, k.command(c.name, c.command, c.after))[0]
		if r.Tool != c.runs || r.Code != c.code || r.IsError != (c.code != "") || r.Text() != c.text || r.Retryable {
			t.Errorf("%s %q after %s: %s ended as %q, retryable %v: %q, want %q", c.name, c.command, c.after, r.Tool,
				r.Code, r.Retryable, r.Text(), c.text)
		}
	}

	canceled := k.command("sh", "mkdir slow", patient)
	if t.Failed() {
		return // what runs is not known
	}
	if env := <-begun; env.FencingToken == 0 || env.Background == 0 {
		t.Errorf("it runs as %+v", env)
	}
	if err := canceled.Cancel(t.Context(), "no more"); err != nil {
		t.Fatal(err)
	}
	if r := resultsOf(k, canceled)[0]; r.Code != toolyard.Canceled || !strings.Contains(r.Error, "check before") {
		t.Errorf("canceled: %+v", r)
	}
	h := toolyard.BackgroundID(canceled.Key(), 0, true)
	if a := k.know(k.wait(h)); a.State != broker.BackgroundOver || a.Code != toolyard.Canceled {
		t.Errorf("its command: %+v", a)
	}

	gone := resultsOf(k, k.command("sh", "mkdir slow", 50*time.Millisecond))[0]
	a := k.know(gone)
	if _, is := a.Handle.Background(); !is || !strings.Contains(gone.Output, string(a.Handle)) {
		t.Errorf("after its time: %+v", gone)
	}
	<-begun
	close(gate)
	r := k.wait(a.Handle)
	if k.know(r).State != broker.BackgroundOver || !strings.Contains(r.Output, "done: mkdir slow") {
		t.Errorf("in the end: %+v", r)
	}
}

// TestWhatABackgroundCallHasStored: a model that waits for a background call reads under which name what is too long
// for a result is stored.
func TestWhatABackgroundCallHasStored(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	draw := make1(t, writer("draw"), says("done"))
	draw.UsesWorkspace = new(bool)
	draw.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
		return tool.Output{Text: "A picture.", Content: []toolyard.Content{{Type: toolyard.ContentImage,
			MIMEType: "image/png", Data: make([]byte, 2*pipeline.MaxInlineDataBytes)}}}, nil
	}
	startWorker(t, s, worker.Config{Tools: append(background.Tools(), draw)})
	startDispatcher(t, s, dispatcher.Config{})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	h := k.start("draw", nil).Handle
	waited := k.wait(h)
	own := resultsOf(k, k.c.Batch(toolyard.BatchKey{Agent: k.agent, ID: h}))[0]
	if len(own.Content) == 0 || own.Content[0].Blob == "" {
		t.Fatalf("it has stored nothing: %+v", own)
	}
	started := k.call(toolyard.BackgroundStart, input{"tool": "draw", "input": input{}, "wait_ms": 60_000,
		"as_result": true})
	for _, r := range []toolyard.Result{waited, started} {
		if text := toolyard.TextOf(r.Content); !strings.Contains(text, own.Content[0].Blob) {
			t.Errorf("%s gives %q, and what is stored is %s", r.Tool, text, own.Content[0].Blob)
		}
	}
}
