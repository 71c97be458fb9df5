//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// foreignServer is an MCP server of 2025-11-25 on a pipe, with a tool that is fine, one that is altered and, with more,
// others.
func foreignServer(t *testing.T, more string) (manifest string) {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "server.sh")
	text := `while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
	case "$line" in
	*'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}}' ;;
	*'"method":"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"fine","inputSchema":{"type":"object","properties":{"mail":{"type":"string","pattern":"^(?!x).+@.+$"}}}},{"name":"loose","inputSchema":{"properties":{"a":{"type":"str"}}}}` + more + `]}}' ;;
	*'"method":"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"called"}]}}' ;;
	*'"id":'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
	esac
done
`
	manifest = filepath.Join(dir, "tools.yaml")
	for file, content := range map[string]string{script: text,
		manifest: `{"servers": [{"name": "f", "command": ["sh", "` + script + `"]}]}`} {
		must.OK(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return manifest
}

// TestToolsThatAreLeftOutAreNamed, and those that are altered, by whoever is asked for the tools.
func TestToolsThatAreLeftOutAreNamed(t *testing.T) {
	t.Parallel()
	const altered = `mcp__f__loose: altered: input schema: the root does not say that it is an object; it is read as one`
	const leftOut = `mcp__f__text: left out: its input schema: its type is string; the input of a tool is an object`
	for more, status := range map[string]int{"": 0, `,{"name":"text","inputSchema":{"type":"string"}}`: 1} {
		manifest := foreignServer(t, more)
		says := func(where, text string, got int) {
			t.Helper()
			for _, want := range []string{altered, leftOut}[:1+status] {
				if !strings.Contains(text, want) {
					t.Errorf("%s does not say %q:\n%s", where, want, text)
				}
			}
			if strings.Contains(text, "mcp__f__fine: altered: input schema") || got != status {
				t.Errorf("%s: exit status %d, want %d:\n%s", where, got, status, text)
			}
		}
		stdout, stderr, got := run(t, nil, "worker", "check", "--tools", manifest)
		says("worker check", stdout, got)
		if status == 1 && !strings.Contains(stderr, "left out: 1") {
			t.Errorf("worker check: %s", stderr)
		}
		var found struct {
			Isolation string
			Servers   []struct {
				Name    string
				Tools   []struct{ Name string }
				Remarks []struct {
					LeftOut bool `json:"left_out"`
				}
			}
		}
		stdout, _, got = run(t, nil, "worker", "check", "--json", "--tools", manifest)
		if err := json.Unmarshal([]byte(stdout), &found); err != nil || got != status || found.Isolation == "" ||
			len(found.Servers) != 1 ||
			len(found.Servers[0].Tools) == 0 || len(found.Servers[0].Remarks) == 0 {
			t.Errorf("worker check --json: exit status %d, %v: %s", got, err, stdout)
		}
		d := dispatcher(t, "--with-worker", "--workspace", "default="+t.TempDir(), "--tools", manifest)
		for _, args := range [][]string{{"--nats", d.says["nats"]}, {"--server", d.says["http"]},
			{"--nats", d.says["nats"], "--format", "gemini"}} {
			// until the server's tools are there
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				stdout, stderr, got = run(t, nil, "dispatcher", append([]string{"tools"}, args...)...)
				if strings.Contains(stdout, "mcp__f__fine") || time.Now().After(deadline) {
					break
				}
			}
			says("dispatcher tools "+strings.Join(args, " "), stderr, got)
		}
		if text := said(t, "workers", "--nats", d.says["nats"]); !strings.Contains(strings.Join(strings.Fields(text),
			" "), altered) {
			t.Errorf("workers: %s", text)
		}
		stdout, stderr, got = run(t, nil, "dispatcher", "tools", "--tools", manifest)
		if !strings.Contains(stdout, "mcp__f__fine") {
			t.Errorf("the server's tools are not listed: %s", stdout)
		}
		says("dispatcher tools", stderr, got)
	}
}

// TestAServerThatDoesNotAnswerIsNamed, where its tools would be listed.
func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	manifest := must.File(t, "tools.json", `{"servers": [{"name": "gone", "command": ["false"]}]}`)
	stdout, stderr, status := run(t, nil, "dispatcher", "tools", "--tools", manifest)
	if status != 1 || stdout != "" || !strings.Contains(stderr, `the MCP server "gone" has not listed its tools`) {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
}

// TestCallsOfForeignTools: an input is checked as the server's author meant it.
func TestCallsOfForeignTools(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	file := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{ID: "c1", Tool: "mcp__f__fine", Input: input(map[string]any{"mail": "a@b"})},
		{ID: "c2", Tool: "mcp__f__fine", Input: input(map[string]any{"mail": "xa@b"})},
		{ID: "c3", Tool: "mcp__f__loose", Input: input(map[string]any{"a": 1})},
		{ID: "c4", Tool: "mcp__f__loose", Input: input(map[string]any{"a": "text"})},
	}})
	stdout, stderr, status := p.run(nil, nil, "run", "--json", "--on-error", "continue", "--tools",
		foreignServer(t, ""), "--allow", "mcp__f__*", file)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	results := viewOf(t, stdout).Results
	for i, want := range []string{"called", `mail: expected text that matches the pattern ^(?!x).+@.+$, got string "xa@b"`, "a: expected string, got number 1", "called"} {
		if r := results[i]; !strings.Contains(r.Output+r.Error, want) || (r.Code == toolyard.OK) != (want == "called") {
			t.Errorf("call %d: %q %s%s; want %s", i, r.Code, r.Output, r.Error, want)
		}
	}
}
