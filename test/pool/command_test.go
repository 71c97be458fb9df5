//go:build linux

package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// running counts the processes of this machine that were started as "sleep" with one argument.
func running(t *testing.T, argument string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.OK(t, err)
	n := 0
	for _, f := range lines {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte("sleep\x00"+argument+"\x00")) {
			n++
		}
	}
	return n
}

// sandboxedTools is the built-in tools, with commands in a sandbox, and what that can do here; noBox says why it can do
// nothing.
func sandboxedTools(t *testing.T) (tools []tool.Tool, caps sandbox.Capabilities, noBox error) {
	t.Helper()
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	caps, noBox = box.Probe(t.Context())
	if tools, err = builtin.All(builtin.Options{Sandbox: box}); err != nil {
		t.Fatal(err)
	}
	return tools, caps, noBox
}

// realDir is an empty directory, under the name that leads through no link.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	return dir
}

// TestStoppedCommandsAreGone: whoever stops a command, nothing of it runs soon after, what it has sent into the
// background neither. A read is answered by its owner before its worker is told to stop it.
func TestStoppedCommandsAreGone(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	tools, caps, noBox := sandboxedTools(t)
	dir := realDir(t)
	tools = append(tools, make1(t, reader("fail"), func(context.Context, tool.Env) (string, error) {
		time.Sleep(700 * time.Millisecond)
		return "", errors.New("no such row")
	}))
	startWorker(t, s, worker.Config{Tools: tools, Isolation: caps.Isolation(),
		Workspaces: map[toolyard.Workspace]string{"default": dir}})
	c := startClient(t, s)
	bash := func(command string, timeout time.Duration) toolyard.Call {
		return toolyard.Call{Tool: "bash", Input: fmt.Appendf(nil, `{"command": %q, "timeout_ms": %d}`, command,
			timeout.Milliseconds())}
	}
	for n, tt := range []struct {
		how  string
		want toolyard.Code
		with func(sleeps toolyard.Call, argument string) (toolyard.Batch, func(*client.Batch))
	}{
		{"timeout", toolyard.Timeout, func(_ toolyard.Call, argument string) (toolyard.Batch, func(*client.Batch)) {
			return toolyard.Batch{Calls: []toolyard.Call{bash("sleep "+argument+" & setsid sleep "+
				argument, 700*time.Millisecond)}}, nil
		}},
		{"sibling abort", toolyard.SiblingCanceled, func(sleeps toolyard.Call, _ string) (toolyard.Batch,
			func(*client.Batch)) {
			return toolyard.Batch{Calls: []toolyard.Call{sleeps, {Tool: "fail", Input: []byte("{}")}}}, nil
		}},
		{"cancel", toolyard.Canceled, func(sleeps toolyard.Call, argument string) (toolyard.Batch,
			func(*client.Batch)) {
			return toolyard.Batch{Calls: []toolyard.Call{sleeps}}, func(b *client.Batch) {
				for end := time.Now().Add(30 * time.Second); running(t, argument) == 0 &&
					noBox == nil; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the command does not run")
					}
				}
				must.OK(t, b.Cancel(t.Context(), "enough"))
			}
		}},
	} {
		t.Run(tt.how, func(t *testing.T) {
			if noBox != nil {
				tt.want = toolyard.SetupRequired
			}
			argument := fmt.Sprintf("97%d.%d", os.Getpid(), n)
			batch, meanwhile := tt.with(bash("sleep "+argument, time.Minute), argument)
			b := submit(t, c, batch)
			if meanwhile != nil && noBox == nil {
				meanwhile(b)
			}
			got := collect(t, t.Context(), b)
			answered := time.Now()
			if got[0].Code != tt.want {
				t.Fatalf("it ended as %q (%s)", got[0].Code, strings.TrimSpace(got[0].Error))
			}
			// Left alone it runs for a minute. On a machine that is not busy this takes less than 100 ms.
			for running(t, argument) > 0 {
				if time.Since(answered) > 20*time.Second {
					t.Fatal("it still runs")
				}
			}
		})
	}
}
