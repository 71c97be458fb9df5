//go:build unix

package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
)

// TestToolsOfServers: a tool of an MCP server is called with parts of the event, and its text is read as a command's
// output. What goes wrong breaks the hook.
func TestToolsOfServers(t *testing.T) {
	r := newRig(t)
	var got string
	r.callTool = func(ctx context.Context, server, tool string, input json.RawMessage) (string, error) {
		got = server + "/" + tool + " " + string(input)
		switch tool {
		case "ask":
			return ` {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}} `, nil
		case "text":
			return "nothing to say", nil
		case "wrong":
			return `{"continue": 1}`, nil
		case "long":
			return strings.Repeat("x", MaxAnswerBytes+1), nil
		case "late":
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "", errors.New("no such tool")
	}
	call := func(tool, more string) (pipeline.HookVerdict, error) {
		return r.set(`{"PreToolUse": [{"hooks": [{"type": "mcp_tool", "server": "s", "tool": `+quote(tool)+more+
			`}]}]}`).Pre(t.Context(), r.input("bash", `{"command":"ls <a>","timeout_ms":1000}`))
	}
	v, err := call("ask", `, "input": {"c": "ran ${tool_input.command} as ${tool_name}", "list": ["${toolyard.index}", 7],
		"in": {"all": "${tool_input}"}, "plain": "$HOME"}`)
	const want = `s/ask {"c":"ran ls <a> as Bash","in":{"all":"{\"command\":\"ls <a>\",\"timeout_ms\":1000}"},` +
		`"list":["3",7],"plain":"$HOME"}`
	if err != nil || v.Opinion != pipeline.Ask || got != want {
		t.Errorf("%+v, %v; the tool got %s\nwant %s", v, err, got, want)
	}
	if v, err := call("text", ""); err != nil || v.Block || v.Opinion != "" || got != "s/text {}" {
		t.Errorf("%+v, %v; the tool got %s", v, err, got)
	}
	for tool, want := range map[string]string{"wrong": "continue", "long": "more than 1048576 bytes",
		"late": "did not answer within 200ms", "gone": `the tool "gone" of the MCP server "s": no such tool`} {
		if v, err := call(tool, `, "timeout": 0.2`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", tool, v, err, want)
		}
	}
	got = ""
	if v, err := call("ask", `, "input": {"path": "${tool_input.file_path}"}`); err == nil || got != "" ||
		!strings.Contains(err.Error(), "needs ${tool_input.file_path}, which the event does not have") {
		t.Errorf("a part that the event lacks: %+v, %v; the tool got %q", v, err, got)
	}
	if v, err := call("gone", `, "on_failure": "continue"`); err != nil || len(v.Broken) != 1 {
		t.Errorf("a hook that may break: %+v, %v", v, err)
	}
}

// TestAServerThatIsNotDeclared: where calls run, a hook names a server that there is.
func TestAServerThatIsNotDeclared(t *testing.T) {
	c, err := Read([]byte(`{"hooks": {"PreToolUse": [{"hooks": [{"type": "mcp_tool", "server": "s", "tool": "t"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	call := func(context.Context, string, string, json.RawMessage) (string, error) { return "", nil }
	for _, x := range []struct {
		names   *policy.Names
		servers []string
		want    string
	}{{nil, nil, ""}, {&policy.Names{}, []string{"r", "s"}, ""},
		{&policy.Names{}, []string{"r"}, `hooks.PreToolUse[0].hooks[0]: server: there is no MCP server "s" here`}} {
		_, err := New(Options{Config: c, Names: x.names, Servers: x.servers, CallTool: call})
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("with the servers %q: %v, want %q", x.servers, err, x.want)
		}
	}
}
