package toolsets

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
)

// tables makes the server's tools of tables. Each call says where it is, and ends when it may.
func (s *server) tables(name, required string, here chan<- string, met <-chan struct{}) {
	s.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(
		`{"type":"object","properties":{"table":{"type":"string"}},"required":` + required + `}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Table string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			here <- name + " " + in.Table
			select {
			case <-met:
			case <-ctx.Done():
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
}

// TestLocksOfAServersTools: what the example declares of an MCP server's tools are locks like any others. Calls on two
// tables run beside each other in one workspace: neither ends before both have come. One on a table of theirs, and one
// that needs the schema alone, come when they are over. A tool whose schema does not require what a lock names is left
// out.
func TestLocksOfAServersTools(t *testing.T) {
	s := serve(t)
	here, met := make(chan string, 4), make(chan struct{})
	s.tables("add_row", `["table"]`, here, met)
	s.tables("change_schema", `[]`, here, met)
	raw := must.Read(t, "../../examples/locks/servers.yaml")
	file, err := manifest.Decode([]byte(strings.Replace(string(raw), "http://127.0.0.1:8098/mcp", s.web.URL, 1)))
	must.OK(t, err)
	tools := set(t, file.Servers[0])
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{tools}, ToolsetWait: patience})
	if got := tools.Remarks(); !slices.ContainsFunc(got, func(r registry.Remark) bool {
		return r.LeftOut && r.Tool == "mcp__tables__echo" && strings.Contains(r.Why, "{table} is not a property that")
	}) {
		t.Errorf("nothing says why the tool is left out: %+v", got)
	}
	hand := func(tool, input string) *client.Batch {
		t.Helper()
		b, err := c.Submit(t.Context(), toolyard.Batch{Options: toolyard.Options{NamedLocks: true},
			Calls: []toolyard.Call{call("mcp__tables__"+tool, input)}})
		must.OK(t, err)
		return b
	}
	comes := func(want string) {
		t.Helper()
		select {
		case at := <-here:
			if at != want {
				t.Errorf("%q comes; want %q", at, want)
			}
		case <-time.After(patience):
			t.Fatalf("no call comes; want %q", want)
		}
	}
	users := hand("add_row", `{"table":"users"}`)
	comes("add_row users")
	again := hand("add_row", `{"table":"users"}`)
	orders := hand("add_row", `{"table":"orders"}`)
	comes("add_row orders")
	schema := hand("change_schema", `{}`)
	close(met)
	const held = "schema (shared), table:users"
	for b, want := range map[*client.Batch]string{users: held, again: held, schema: "schema",
		orders: "schema (shared), table:orders"} {
		contains(t, results(t, b)[0], "done")
		if got := locksOf(t, b); got != want {
			t.Errorf("%s holds %q; want %q", b.Key(), got, want)
		}
	}
}

// locksOf are the names that the first group of a batch holds, as its plan says.
func locksOf(t *testing.T, b *client.Batch) string {
	t.Helper()
	for text, err := range b.Events(t.Context()) {
		must.OK(t, err)
		_, body, err := events.DecodeJSON(text)
		must.OK(t, err)
		if p, ok := body.(events.Planned); ok {
			return registry.LockText(p.Groups[0].Locks)
		}
	}
	t.Fatalf("%s has no plan", b.Key())
	return ""
}
