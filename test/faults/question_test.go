//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// TestWorkerDiesWithAQuestion (W15): a tool of an MCP server has asked a person something, and its worker dies with the
// question. The call is not made again, and nobody is asked.
func TestWorkerDiesWithAQuestion(t *testing.T) {
	cell(t, "W15", func(s *system) rules {
		s.basic()
		var asked atomic.Int64
		server := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				asked.Add(1)
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Mode: "form",
					Message: "Really?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}}}, nil
			})
		web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true}))
		s.t.Cleanup(web.Close)
		tools := filepath.Join(s.dir, "tools.yaml")
		if err := os.WriteFile(tools, fmt.Appendf(nil,
			"servers:\n  - name: asker\n    url: %s\n    elicitation: true\n", web.URL), 0o600); err != nil {
			s.t.Fatal(err)
		}
		victim := s.serves("asks", string(failpoint.QuestionReady)+"=kill@1", "--tools", tools, "--allow",
			"mcp__asker__ask")
		s.worker("worker", "")
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		done := make(chan toolyard.Result, 1)
		go func() {
			done <- l.extra(toolyard.Batch{Agent: "dan", ID: "asks", Workspace: "dan", Interactive: true,
				Calls: []toolyard.Call{{ID: "call_asks", Tool: "mcp__asker__ask",
					Input: raw(map[string]any{})}}}).Results[0]
		}()
		s.killedAt(victim, failpoint.QuestionReady)
		s.faultOver()
		r := <-done
		if r.Code != toolyard.OutcomeUnknown || asked.Load() != 1 {
			s.t.Errorf("%s %s, and the server was called %d times", r.Code, r.Error, asked.Load())
		}
		l.finish()
		return rules{harmed: []*process{victim},
			codes: map[string][]toolyard.Code{"mcp__asker__ask": {toolyard.OutcomeUnknown}}}
	})
}
