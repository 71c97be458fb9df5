//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAToolOfAServerAsAHook: a tool of a declared MCP server decides about calls. When it fails, the call does not run.
func TestAToolOfAServerAsAHook(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	policy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Path, Tool string }
		switch err := json.NewDecoder(r.Body).Decode(&in); {
		case err != nil || in.Tool != "Read" || !filepath.IsAbs(in.Path):
			http.Error(w, fmt.Sprintf("asked about %+v, %v", in, err), http.StatusBadRequest)
		case broken.Load():
			http.Error(w, "broken", http.StatusBadRequest)
		case strings.HasSuffix(in.Path, "/a.txt"):
			fmt.Fprint(w, "fine")
		default:
			fmt.Fprint(w, `{"decision": "block", "reason": "only a.txt may be read"}`)
		}
	}))
	t.Cleanup(policy.Close)
	h := newHooked(t, `{"PreToolUse": [{"matcher": "Read", "hooks": [{"type": "mcp_tool", "server": "guard",
		"tool": "judge", "input": {"path": "${tool_input.file_path}", "tool": "${tool_name}"}}]}]}`, nil)
	dir := filepath.Dir(h.hooks)
	for name, text := range map[string]string{
		"judge.yaml": `tools: [{name: judge, description: Judges a path., concurrency_class: READ_ONLY, is_read_only: true,
  input_schema: {type: object, properties: {path: {type: string}, tool: {type: string}}, required: [path, tool]},
  http: {method: POST, url: "` + policy.URL + `", body: json}}]`,
		"guard.yaml": `servers: [{name: guard, command: ["` + filepath.Join(bin, "dispatcher") +
			`", mcp, --tools, judge.yaml, --permission-mode, bypass, --workspace, .]}]`,
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must.OK(t, os.WriteFile(filepath.Join(h.dir, "b.txt"), []byte("two\n"), 0o600))
	read := func(path string) toolyard.Result {
		r, _ := h.call("read_file", map[string]any{"file_path": path}, "--tools", filepath.Join(dir, "guard.yaml"))
		return r
	}
	if r := read("a.txt"); r.IsError || !strings.Contains(r.Output, "one") {
		t.Errorf("a call that the tool has nothing against: %+v", r)
	}
	if r := read("b.txt"); r.Code != toolyard.HookBlocked || !strings.Contains(r.Error, "only a.txt may be read") {
		t.Errorf("a call that the tool blocks: %+v", r)
	}
	broken.Store(true)
	if r := read("a.txt"); r.Code != toolyard.HookFailed {
		t.Errorf("a call whose hook failed: %+v", r)
	}
}
