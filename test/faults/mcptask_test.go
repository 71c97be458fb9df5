//go:build unix

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// taskServer is an MCP server that makes a task of each call. It keeps its tasks when its clients die, and knows a call
// that comes again by its idempotency key: it answers with the task that it has made of it.
type taskServer struct {
	s       *system
	version string

	mu    sync.Mutex
	tasks map[string]*madeTask // by idempotency key
	done  bool                 // all tasks are completed
}

// madeTask is a task of a tool: how often the call came that it is made of, and how often somebody has canceled it.
type madeTask struct {
	tool                   string
	calls, looks, canceled int
}

// taskTools are the tools of the server, and taskManifest says which of them may run twice.
var taskTools = []string{"once", "twice"}

const taskManifest = `servers:
  - name: tasks
    url: %s
    defaults: {concurrency_class: WRITE_EXCLUSIVE}
    tools:
      twice: {idempotent: true, uses_workspace: false}
`

// tasks starts the server, of one of the revisions that have tasks, and returns it with its manifest.
func (s *system) tasks() (t *taskServer, manifest string) {
	s.t.Helper()
	versions := []string{wire.Session2025, wire.Alone2026}
	t = &taskServer{s: s, version: versions[s.rand.IntN(len(versions))], tasks: map[string]*madeTask{}}
	web := httptest.NewServer(t)
	s.t.Cleanup(web.Close)
	manifest = filepath.Join(s.dir, "servers.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, taskManifest, web.URL), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return t, manifest
}

// taskRequest is what the server reads of a request.
type taskRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name   string `json:"name"`
		TaskID string `json:"taskId"`
		Meta   struct {
			Key string `json:"dev.toolyard/idempotency-key"`
		} `json:"_meta"`
	} `json:"params"`
}

func (t *taskServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m taskRequest
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest) // of a worker that was killed while it wrote
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	kind, body := t.answer(&m)
	w.Header().Set("Content-Type", "application/json")
	if kind == "error" && m.Method == "server/discover" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, kind, body) // who asked may be dead
}

func (t *taskServer) answer(m *taskRequest) (kind, body string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Method {
	case "server/discover":
		if t.version == wire.Session2025 {
			break
		}
		return "result", `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
			`"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"tasks","version":"1"}}`
	case "initialize":
		return "result", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},` +
			`"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"tasks","version":"1"}}`
	case "tools/list":
		var tools []string
		for _, name := range taskTools {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},`+
				`"execution":{"taskSupport":"required"}}`, name))
		}
		return "result", `{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `]}`
	case "tools/call":
		key := m.Params.Meta.Key
		if t.tasks[key] == nil {
			t.tasks[key] = &madeTask{tool: m.Params.Name}
		}
		t.tasks[key].calls++
		if t.version == wire.Alone2026 {
			return "result", `{"resultType":"task",` + t.state(key, "") + `}`
		}
		return "result", `{"task":{` + t.state(key, "") + `}}`
	}
	task := t.tasks[m.Params.TaskID]
	switch {
	case task == nil:
	case m.Method == wire.MethodGet:
		task.looks++
		result := ""
		if t.version == wire.Alone2026 && t.done {
			result = `,"result":` + taskResult
		}
		return "result", `{"resultType":"complete",` + t.state(m.Params.TaskID, result) + `}`
	case m.Method == wire.MethodResult:
		return "result", taskResult
	case m.Method == wire.MethodCancel:
		task.canceled++
		return "result", `{"resultType":"complete",` + t.state(m.Params.TaskID, "") + `}`
	}
	return "error", `{"code":-32601,"message":"no such method, or no such task"}`
}

const taskResult = `{"content":[{"type":"text","text":"it is over"}]}`

// state is how a task stands. Its key is its id.
func (t *taskServer) state(id, more string) string {
	unit, status := "", wire.Working
	if t.version == wire.Alone2026 {
		unit = "Ms"
	}
	if t.done {
		status = wire.Completed
	}
	return fmt.Sprintf(`"taskId":%q,"status":%q,"statusMessage":"it runs","createdAt":"2026-11-26T10:00:00Z",`+
		`"lastUpdatedAt":"2026-11-26T10:00:00Z","ttl%s":600000,"pollInterval%s":100%s`, id, status, unit, unit, more)
}

// complete has all tasks be over.
func (t *taskServer) complete() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
}

// of are the tasks of a tool.
func (t *taskServer) of(tool string) (all []madeTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, task := range t.tasks {
		if task.tool == tool {
			all = append(all, *task)
		}
	}
	return all
}

// offers waits until a worker says that it has a tool.
func (s *system) offers(p *process, tool string) {
	s.t.Helper()
	s.until(startWait, "the worker offers "+tool, func() bool {
		all, err := s.b.Workers(s.context())
		i := slices.IndexFunc(all, func(w broker.Worker) bool { return w.ID == p.said("id") })
		if err != nil || i < 0 {
			return false
		}
		surface, err := s.b.Surface(s.context(), all[i].Toolset)
		return err == nil && bytes.Contains(surface, []byte(tool))
	})
}

// TestWorkerDiesBehindATask (W17): a worker follows two tasks of an MCP server, and is killed. The server goes on with
// both, and nobody cancels them. The call that may not run twice is not made again. The other one is, with the same
// idempotency key: the server gives the task that it has made of the first one.
func TestWorkerDiesBehindATask(t *testing.T) {
	cell(t, "W17", func(s *system) rules {
		s.basic()
		workspace := s.workspace()
		server, manifest := s.tasks()
		start := func() *process {
			return s.serves("tasks", "", "--tools", manifest, "--workspace", "dan="+workspace, "--allow",
				"mcp__tasks__*")
		}
		var victim *process
		s.together(func() { victim = start() }, func() { s.worker("worker", "") })
		s.offers(victim, "mcp__tasks__once")
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		l.side = s.client() // two calls use it at a time
		call := func(id, tool string) toolyard.Batch {
			return toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(id), Workspace: "dan", Calls: []toolyard.Call{{
				ID: "call_" + id, Tool: "mcp__tasks__" + tool, Input: raw(map[string]any{})}}}
		}
		ends := map[string]chan toolyard.Result{}
		for _, tool := range taskTools {
			end := make(chan toolyard.Result, 1)
			ends[tool] = end
			go func() { end <- l.extra(call(tool, tool)).Results[0] }()
		}
		for _, tool := range taskTools {
			s.until(faultWait, "a worker follows the task of "+tool, func() bool {
				all := server.of(tool)
				return len(all) == 1 && all[0].looks > 0
			})
		}
		victim.kill()
		s.faultOver()
		start()
		if r := <-ends["once"]; r.Code != toolyard.OutcomeUnknown || r.Attempts != 1 {
			s.t.Errorf("a call that may not run twice, attempt %d: %s %s", r.Attempts, r.Code, r.Text())
		}
		s.until(faultWait, "the call is made again", func() bool { return server.of("twice")[0].calls == 2 })
		server.complete()
		if r := <-ends["twice"]; r.IsError || r.Attempts != 2 || !strings.Contains(r.Output, "it is over") {
			s.t.Errorf("a call that may run twice, attempt %d: %s %s", r.Attempts, r.Code, r.Text())
		}
		for tool, calls := range map[string]int{"once": 1, "twice": 2} {
			if all := server.of(tool); len(all) != 1 || all[0].calls != calls || all[0].canceled > 0 {
				s.t.Errorf("the server has made these tasks of %s: %+v", tool, all)
			}
		}
		if r := l.extra(call("next", "once")).Results[0]; r.IsError || !strings.Contains(r.Output, "it is over") {
			s.t.Errorf("the next one: %s %s", r.Code, r.Text())
		}
		l.finish()
		return rules{harmed: []*process{victim},
			codes: map[string][]toolyard.Code{"mcp__tasks__once": {toolyard.OutcomeUnknown}}}
	})
}
