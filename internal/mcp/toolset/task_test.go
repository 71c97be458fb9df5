package toolset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/tool"
)

// tasker is a server over HTTP that makes a task of each call. What it says of a task is the script of its tool.
type tasker struct {
	t       *testing.T
	version string
	mu      sync.Mutex
	looks   map[string]int
	asked   []string // what was asked for in a call
	named   []string // the headers that named a task
	// canceled gets the ids of tasks that were canceled.
	canceled chan string
}

// scripts are what is said of a task at each look, the last one again and again. {id} is the task's id.
var scripts = map[string][]string{
	"quick": {`"status":"completed"`},
	"slow": {`"status":"working","statusMessage":"reads"`, `"status":"working","statusMessage":"writes"`,
		`"status":"completed"`},
	"fails":   {`"status":"failed"`},
	"asks":    {`"status":"input_required"`},
	"stopped": {`"status":"cancelled","statusMessage":"by its operator"`},
	"endless": {`"status":"working"`},
	"odd":     {`"status":"dreaming"`},
	"other":   {`"status":"completed","taskId":"another"`},
	"lost":    {``},
	"over":    {`"status":"completed"`},
	"broken":  {`"status":"failed"`},
}

// taskResult is the result of a task that ends well.
const taskResult = `{"content":[{"type":"text","text":"the result"}],"structuredContent":{"id":9007199254740993}}`

// atOnce is what is said of a task when it is made, where that is not that it works: a server may know the call.
var atOnce = map[string]string{"over": `"status":"completed"`, "broken": `"status":"failed"`}

func (s *tasker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name   string          `json:"name"`
			TaskID string          `json:"taskId"`
			Task   json.RawMessage `json:"task"`
		} `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		s.t.Error(err)
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	kind, body := s.answer(m.Method, m.Params.Name, m.Params.TaskID, string(m.Params.Task), r.Header.Get("Mcp-Name"))
	w.Header().Set("Content-Type", "application/json")
	if kind == "error" && s.version == wire.Session2025 && m.Method == "server/discover" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, kind, body)
}

// task is the form of a task.
func (s *tasker) task(id, more string) string {
	unit := ""
	if s.version == wire.Alone2026 {
		unit = "Ms"
	}
	return fmt.Sprintf(`"taskId":%q,"createdAt":"2026-11-23T10:00:00Z","lastUpdatedAt":"2026-11-23T10:00:00Z",`+
		`"ttl%s":60000,"pollInterval%s":1,%s`, id, unit, unit, more)
}

func (s *tasker) answer(method, name, id, asked, header string) (kind, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tool, _, _ := strings.Cut(id, "/")
	if strings.HasPrefix(method, "tasks/") {
		s.named = append(s.named, header)
	}
	switch method {
	case "server/discover":
		if s.version == wire.Session2025 {
			return "error", `{"code":-32601,"message":"no such method"}`
		}
		return "result", `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
			`"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"tasker","version":"1"}}`
	case "initialize":
		return "result", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},` +
			`"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"tasker","version":"1"}}`
	case "tools/list":
		var tools []string
		for name := range scripts {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},`+
				`"execution":{"taskSupport":"optional"}}`, name))
		}
		tools = append(tools, `{"name":"plain","inputSchema":{"type":"object"}}`)
		return "result", `{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `]}`
	case "tools/call":
		s.asked = append(s.asked, name+" "+asked)
		id, status := fmt.Sprintf("%s/%d", name, len(s.asked)), cmp.Or(atOnce[name], `"status":"working"`)
		switch {
		case name == "plain":
			return "result", `{"resultType":"complete","content":[{"type":"text","text":"at once"}]}`
		case s.version == wire.Alone2026:
			return "result", `{"resultType":"task",` + s.task(id, status) + `}`
		}
		return "result", `{"task":{` + s.task(id, status) + `}}`
	case "tasks/get":
		script := scripts[tool]
		more := script[min(s.looks[id], len(script)-1)]
		if s.looks[id]++; more == "" {
			return "error", `{"code":-32602,"message":"no such task"}`
		}
		if s.version == wire.Alone2026 && strings.Contains(more, "completed") {
			more += `,"result":` + taskResult
		}
		if s.version == wire.Alone2026 && strings.Contains(more, "failed") {
			more += `,"error":{"code":-32603,"message":"it broke"}`
		}
		return "result", `{"resultType":"complete",` + s.task(id, more) + `}`
	case "tasks/result":
		if tool == "fails" || tool == "broken" {
			return "error", `{"code":-32603,"message":"it broke"}`
		}
		return "result", taskResult
	case "tasks/cancel":
		s.canceled <- id
		return "result", `{"resultType":"complete",` + s.task(id, `"status":"cancelled"`) + `}`
	}
	return "error", `{"code":-32601,"message":"no such method"}`
}

// last is the task that was canceled last.
func (s *tasker) last(t *testing.T) string {
	t.Helper()
	select {
	case id := <-s.canceled:
		return id
	case <-time.After(patience):
		t.Fatal("no task is canceled")
		return ""
	}
}

// inBothRevisions runs a test against a server of each revision with tasks.
func inBothRevisions(t *testing.T, run func(t *testing.T, s *tasker, set *Toolset)) {
	for _, version := range []string{wire.Session2025, wire.Alone2026} {
		t.Run(version, func(t *testing.T) {
			s := &tasker{t: t, version: version, looks: map[string]int{}, canceled: make(chan string, 100)}
			web := httptest.NewServer(s)
			t.Cleanup(web.Close)
			set := start(t, manifest.Server{Name: "s", URL: web.URL, MaxTools: 100, MaxInFlight: 4,
				StartTimeoutMS: 10_000})
			until(t, set, "the tools are listed", func() bool { return set.Down() == nil })
			run(t, s, set)
		})
	}
}

// TestACallBecomesATask: it is followed to its end, whatever that is; one that is given up is canceled.
func TestACallBecomesATask(t *testing.T) {
	t.Parallel()
	inBothRevisions(t, func(t *testing.T, s *tasker, set *Toolset) {
		for _, tt := range []struct {
			tool     string
			code     toolyard.Code
			says     string
			canceled bool
		}{
			{"plain", "", "at once", false},
			{"quick", "", "the result", false},
			{"slow", "", "the result", false},
			{"fails", toolyard.ExecutionFailed, "it broke", false},
			{"asks", toolyard.ExecutionFailed, "wants to ask a person", true},
			{"stopped", toolyard.ExecutionFailed, "by its operator", false},
			{"odd", toolyard.OutcomeUnknown, "broke off", true},
			{"other", toolyard.OutcomeUnknown, "broke off", true},
			{"lost", toolyard.OutcomeUnknown, "broke off", true},
			{"over", "", "the result", false},
			{"broken", toolyard.ExecutionFailed, "it broke", false},
		} {
			t.Run(tt.tool, func(t *testing.T) {
				out, failure := run(t, set, tt.tool, patience)
				said := toolyard.TextOf(out.Content)
				if failure != nil {
					said = failure.Message
				}
				if failure == nil && tt.code != "" || failure != nil && failure.Code != tt.code ||
					!strings.Contains(said, tt.says) {
					t.Errorf("it ends as %v, %q", failure, said)
				}
				if said == "the result" && string(out.Structured) != `{"id":9007199254740993}` {
					t.Errorf("its structured output is %s", out.Structured)
				}
				if tt.canceled {
					if id := s.last(t); !strings.HasPrefix(id, tt.tool) {
						t.Errorf("canceled was %s", id)
					}
				}
			})
		}
		if len(s.canceled) > 0 {
			t.Errorf("canceled was %s", <-s.canceled)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.version == wire.Alone2026 && slices.Contains(s.named, "") {
			t.Errorf("the headers name %q", s.named)
		}
		for _, asked := range s.asked {
			name, task, _ := strings.Cut(asked, " ")
			if want := s.version == wire.Session2025 && name != "plain"; want != strings.Contains(task, "ttl") {
				t.Errorf("the call of %s asks for the task %q", name, task)
			}
		}
	})
}

// TestATaskSaysHowFarItIs: each message once.
func TestATaskSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	inBothRevisions(t, func(t *testing.T, _ *tasker, set *Toolset) {
		var told []string
		_, err := find(t, set, "slow").Run(t.Context(), tool.Env{Progress: func(p tool.Progress) {
			told = append(told, p.Status)
		}}, json.RawMessage(`{}`))
		if err != nil || !slices.Equal(told, []string{"reads", "writes"}) {
			t.Errorf("told was %q (%v)", told, err)
		}
	})
}

// TestATaskEndsWithItsCall: also when the toolset ends while the call runs.
func TestATaskEndsWithItsCall(t *testing.T) {
	t.Parallel()
	inBothRevisions(t, func(t *testing.T, s *tasker, set *Toolset) {
		looked := func(id string) {
			t.Helper()
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				s.mu.Lock()
				n := s.looks[id]
				s.mu.Unlock()
				if n > 1 {
					return
				}
				if time.Now().After(end) {
					t.Fatal("nobody looks at the task")
				}
			}
		}
		endless := find(t, set, "endless")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := endless.Run(ctx, tool.Env{}, json.RawMessage(`{}`))
			ended <- err
		}()
		looked("endless/1")
		cancel()
		if err := <-ended; err == nil {
			t.Error("a call that was canceled ends well")
		}
		if id := s.last(t); id != "endless/1" {
			t.Errorf("canceled was %s", id)
		}
		go func() {
			_, err := endless.Run(t.Context(), tool.Env{}, json.RawMessage(`{}`))
			ended <- err
		}()
		looked("endless/2")
		session, err := set.current()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.close(); err != nil {
			t.Error(err)
		}
		if id := s.last(t); id != "endless/2" {
			t.Errorf("canceled was %s", id)
		}
		if err := <-ended; err == nil {
			t.Error("a call whose session has ended ends well")
		}
	})
}
