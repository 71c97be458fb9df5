//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// asked is the result of a request of the revision in which every request stands alone, from a client with tasks.
func asked(t *testing.T, base, method, name string, params map[string]any) map[string]any {
	t.Helper()
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`),
	}
	body := must.JSON(t, map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/mcp", strings.NewReader(string(body)))
	must.OK(t, err)
	for header, value := range map[string]string{"Content-Type": "application/json", "Mcp-Method": method,
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Name": name} {
		r.Header.Set(header, value)
	}
	res, err := (&http.Client{Timeout: time.Minute}).Do(r)
	must.OK(t, err)
	defer res.Body.Close() //nolint:errcheck // it was read
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		var answer struct {
			ID     any            `json:"id"`
			Result map[string]any `json:"result"`
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &answer) == nil && answer.Result != nil {
			return answer.Result
		}
	}
	t.Fatalf("%s was not answered: %s", method, res.Status)
	return nil
}

// TestATaskOutlivesItsDispatcher: the process that a client made a task with is killed while the call runs. Another one
// knows the task, and has its result when the call ends, which runs once.
func TestATaskOutlivesItsDispatcher(t *testing.T) {
	began, release := make(chan struct{}, 10), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-release
		_, _ = fmt.Fprint(w, "it is done")
	}))
	t.Cleanup(slow.Close)
	file := must.File(t, "tools.yaml", "tools:\n  - name: slow\n    description: Takes long.\n"+
		"    concurrency_class: WRITE_EXCLUSIVE\n    uses_workspace: false\n    requires_permission: false\n"+
		"    input_schema: {type: object}\n    http: {url: "+slow.URL+"}\n")
	first := dispatcher(t)
	url := first.says["nats"]
	second := start(t, 3, "dispatcher", "serve", "--nats", url, "--listen", "127.0.0.1:0")
	worker(t, url, t.TempDir(), "--tools", file)
	for end := time.Now().Add(time.Minute); ; { // until both list the tool
		listed := 0
		for _, p := range []*process{first, second} {
			if strings.Contains(fmt.Sprint(asked(t, p.says["http"], "tools/list", "", map[string]any{})), "slow") {
				listed++
			}
		}
		if listed == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the tool is not listed")
		}
	}
	task := asked(t, second.says["http"], "tools/call", "slow", map[string]any{"name": "slow"})
	id, _ := task["taskId"].(string)
	if task["resultType"] != "task" || id == "" {
		t.Fatalf("the call did not become a task: %v", task)
	}
	<-began
	second.stop(syscall.SIGKILL)
	get := func() map[string]any {
		return asked(t, first.says["http"], "tasks/get", id, map[string]any{"taskId": id})
	}
	if now := get(); now["status"] != "working" {
		t.Errorf("the other dispatcher says %v", now)
	}
	close(release)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		now := get()
		if now["status"] == "completed" {
			if !strings.Contains(fmt.Sprint(now["result"]), "it is done") {
				t.Errorf("its result is %v", now["result"])
			}
			break
		}
		if now["status"] != "working" || time.Now().After(end) {
			t.Fatalf("the task is %v", now)
		}
	}
	if n := len(began); n > 0 {
		t.Errorf("it ran %d times more", n)
	}
}
