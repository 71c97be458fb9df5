//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// mcpClient connects a client to a transport.
func mcpClient(t *testing.T, transport mcp.Transport, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(ctx, transport, nil)
	must.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// mcpCall calls a tool and returns the text of its result.
func mcpCall(t *testing.T, c *mcp.ClientSession, name string, input map[string]any) (text string, isError bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: input})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, part := range r.Content {
		if p, ok := part.(*mcp.TextContent); ok {
			text += p.Text
		}
	}
	return text, r.IsError
}

// mcpCommand is a client of "dispatcher mcp".
func mcpCommand(t *testing.T, opts *mcp.ClientOptions, args ...string) *mcp.ClientSession {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "dispatcher"), append([]string{"mcp"}, args...)...)
	cmd.Stderr, cmd.Env = &prefixed{t: t, name: "mcp"}, append(os.Environ(), reach(args)...)
	return mcpClient(t, &mcp.CommandTransport{Command: cmd, TerminateDuration: 20 * time.Second}, opts)
}

func workspaceWith(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	return dir
}

// TestMCPAlone: one process over a pipe reads without asking, writes only what it is allowed to, and asks the person at
// the client when it is told to.
func TestMCPAlone(t *testing.T) {
	dir := workspaceWith(t, "note.txt", "from a file")
	c := mcpCommand(t, nil, "--workspace", dir)
	list, err := c.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) < 5 {
		t.Fatalf("%d tools are listed (%v)", len(list.Tools), err)
	}
	if text, isError := mcpCall(t, c, "read_file", map[string]any{"file_path": "note.txt"}); isError ||
		!strings.Contains(text, "from a file") {
		t.Errorf("read_file: %q (error: %t)", text, isError)
	}
	write := map[string]any{"file_path": "new.txt", "content": "x"}
	if text, isError := mcpCall(t, c, "write_file", write); !isError || !strings.Contains(text, "ermission") {
		t.Errorf("write_file: %q (error: %t)", text, isError)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the process ended with %v", err)
	}

	asked := make(chan string, 10)
	c = mcpCommand(t, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context,
		r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked <- r.Params.Message
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "allow"}}, nil
	}}, "--workspace", dir, "--mcp-approvals")
	if text, isError := mcpCall(t, c, "write_file", write); isError {
		t.Errorf("write_file, allowed by a person: %q", text)
	}
	if len(asked) != 1 {
		t.Errorf("the person was asked %d times", len(asked))
	}
	if data, err := os.ReadFile(filepath.Join(dir, "new.txt")); err != nil || string(data) != "x" {
		t.Errorf("the file has %q (%v)", data, err)
	}
}

// TestMCPOfAService: over HTTP and over a pipe to the same system.
func TestMCPOfAService(t *testing.T) {
	dir := workspaceWith(t, "note.txt", "from a service")
	keys := must.File(t, "key", "0123456789abcdef0123456789abcdef\n")
	p := start(t, 3, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
		t.TempDir(),
		"--with-worker", "--workspace", "default="+dir, "--deny", "web_fetch", "--mcp-key-file", keys, "--view",
		"seer=read_file")
	seer := mcpClient(t, &mcp.StreamableClientTransport{Endpoint: p.says["http"] + "/mcp?agent=seer"}, nil)
	if list, err := seer.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 1 ||
		list.Tools[0].Name != "read_file" {
		t.Errorf("an agent with a view sees %+v (%v)", list, err)
	}
	for name, c := range map[string]*mcp.ClientSession{
		"http": mcpClient(t, &mcp.StreamableClientTransport{Endpoint: p.says["http"] + "/mcp"}, nil),
		"pipe": mcpCommand(t, nil, "--nats", p.says["nats"], "--deny", "web_fetch"),
	} {
		t.Run(name, func(t *testing.T) {
			if text, isError := mcpCall(t, c, "read_file", map[string]any{"file_path": "note.txt"}); isError ||
				!strings.Contains(text, "from a service") {
				t.Errorf("read_file: %q (error: %t)", text, isError)
			}
			list, err := c.ListTools(t.Context(), nil)
			must.OK(t, err)
			for _, tool := range list.Tools {
				if tool.Name == "web_fetch" {
					t.Error("a tool that is denied is listed")
				}
			}
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.says["http"]+"/mcp", strings.NewReader("{}"))
	must.OK(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "https://elsewhere.example")
	res, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("another site's page gets %d (%v)", res.StatusCode, err)
	}
	if status := p.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("the service ended with %d", status)
	}
}

// TestMCPEndsTidily: a client ends its server by closing standard input, and then with SIGTERM. Neither is a failure.
func TestMCPEndsTidily(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	for _, args := range [][]string{{"--workspace", t.TempDir()}, {"--nats", d.says["nats"]}} {
		for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
			"standard input is closed": func(_ *exec.Cmd, in io.Closer) error { return in.Close() },
			"SIGTERM": func(c *exec.Cmd, _ io.Closer) error {
				return c.Process.Signal(syscall.SIGTERM)
			},
		} {
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "dispatcher"),
				append([]string{"mcp"}, args...)...)
			var errs bytes.Buffer
			cmd.Stderr, cmd.Env = &errs, append(os.Environ(), reach(args)...)
			in, err := cmd.StdinPipe()
			must.OK(t, err)
			out, err := cmd.StdoutPipe()
			must.OK(t, err)
			must.OK(t, cmd.Start())
			if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(out)
			if line, err := answers.ReadString('\n'); err != nil { // it serves
				t.Fatalf("%q: %q, %v", args, line, err)
			}
			must.OK(t, end(cmd, in))
			_, err = io.Copy(io.Discard, answers)
			if err = errors.Join(err, cmd.Wait()); err != nil || strings.Contains(errs.String(), "interrupted") {
				t.Errorf("%q, %s: %v, %s", args, name, err, &errs)
			}
		}
	}
}

// TestMCPFlags: what cannot be is said at once.
func TestMCPFlags(t *testing.T) {
	short := must.File(t, "key", "short")
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"mcp", "--nats", "nats://127.0.0.1:1", "--permission-mode", "bypass"}, "--permission-mode"},
		{[]string{"mcp", "--timeout", "-1s"}, "--timeout"},
		{[]string{"mcp", "--agent", "a\nb"}, "agent"},
		{[]string{"mcp", "--workspace", filepath.Join(t.TempDir(), "none")}, "--workspace"},
		{[]string{"serve", "--mcp-key-file", short}, "--mcp-key-file"},
	} {
		if _, stderr, status := run(t, strings.NewReader(""), "dispatcher", tt.args...); status != 2 ||
			!strings.Contains(stderr, tt.says) {
			t.Errorf("%q: status %d, %q", tt.args, status, stderr)
		}
	}
}
