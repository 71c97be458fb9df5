package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// Tasks are tested message by message: the SDK's clients do not know them.

// form is a JSON object.
type form = map[string]any

// at is the field of a form at a path.
func at(f any, path ...string) any {
	for _, name := range path {
		inner, ok := f.(form)
		if !ok {
			return nil
		}
		f = inner[name]
	}
	return f
}

// plain is a client that writes its messages itself.
type plain struct {
	p               *pool
	way, token, sid string
	caps            form
	// person answers the questions that come on the way to an answer, and told gets all other notifications.
	person func(params form) form
	told   func(method string, params form)
}

// tasking is a client of an agent that knows tasks. caps are its other capabilities.
func (p *pool) tasking(way, token string, caps form) *plain {
	p.Helper()
	c := &plain{p: p, way: way, token: token, caps: form{}}
	for name, value := range caps {
		c.caps[name] = value
	}
	if way == alone {
		c.caps["extensions"] = form{wire.Extension: form{}}
		return c
	}
	res, header := c.send("initialize", form{"protocolVersion": session, "capabilities": c.caps,
		"clientInfo": form{"name": "plain", "version": "1"}})
	if at(res, "result", "capabilities", "tasks", "requests", "tools", "call") == nil {
		p.Fatalf("the server does not offer tasks: %v", res)
	}
	c.sid = header.Get("Mcp-Session-Id")
	c.notify("notifications/initialized")
	return c
}

// post sends a message and returns the response.
func (c *plain) post(message form, headers ...string) *http.Response {
	c.p.Helper()
	data := must.JSON(c.p, message)
	r, err := http.NewRequestWithContext(c.p.Context(), http.MethodPost, c.p.url, strings.NewReader(string(data)))
	must.OK(c.p, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Mcp-Protocol-Version", c.way)
	if c.sid != "" {
		r.Header.Set("Mcp-Session-Id", c.sid)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := (&http.Client{Timeout: patience}).Do(r)
	must.OK(c.p, err)
	return res
}

func (c *plain) notify(method string) {
	res := c.post(form{"jsonrpc": "2.0", "method": method})
	if res.StatusCode >= 300 {
		c.p.Fatalf("%s: %s", method, res.Status)
	}
	_ = res.Body.Close()
}

// send sends a request and returns its answer.
func (c *plain) send(method string, params form, headers ...string) (form, http.Header) {
	c.p.Helper()
	if c.way == alone {
		named := form{"_meta": form{}}
		for name, value := range params {
			named[name] = value
		}
		meta := named["_meta"].(form)
		meta["io.modelcontextprotocol/protocolVersion"] = alone
		meta["io.modelcontextprotocol/clientCapabilities"] = c.caps
		meta["io.modelcontextprotocol/clientInfo"] = form{"name": "plain", "version": "1"}
		params = named
		own := []string{"Mcp-Method", method}
		for _, field := range []string{"name", "taskId"} {
			if v, ok := params[field].(string); ok {
				own = append(own, "Mcp-Name", v)
			}
		}
		headers = append(own, headers...)
	}
	res := c.post(form{"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, headers...)
	defer res.Body.Close() //nolint:errcheck // it was read
	for message := range messages(c.p.T, res) {
		switch {
		case message["method"] == nil:
			return message, res.Header
		case message["id"] == nil:
			if c.told != nil {
				params, _ := message["params"].(form)
				c.told(message["method"].(string), params)
			}
		default:
			params, _ := message["params"].(form)
			answer := c.post(form{"jsonrpc": "2.0", "id": message["id"], "result": c.person(params)})
			_ = answer.Body.Close()
		}
	}
	c.p.Fatalf("%s was not answered: %s", method, res.Status)
	return nil, nil
}

// messages are those of a response.
func messages(t *testing.T, res *http.Response) func(func(form) bool) {
	return func(yield func(form) bool) {
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line := strings.TrimPrefix(lines.Text(), "data: ")
			if !strings.HasPrefix(line, "{") {
				continue
			}
			var message form
			if err := json.Unmarshal([]byte(line), &message); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if !yield(message) {
				return
			}
		}
	}
}

// asked is the result of a request.
func (c *plain) asked(method string, params form) form {
	c.p.Helper()
	answer, _ := c.send(method, params)
	res, ok := answer["result"].(form)
	if !ok {
		c.p.Fatalf("%s %v: %v", method, params, answer)
	}
	return res
}

// refused checks that a request is answered with an error.
func (c *plain) refused(code int, words, method string, params form) {
	c.p.Helper()
	answer, _ := c.send(method, params)
	message, _ := at(answer, "error", "message").(string)
	if at(answer, "error", "code") != float64(code) || !strings.Contains(message, words) {
		c.p.Errorf("%s %v: %v, want the error %d with %q", method, params, answer, code, words)
	}
}

// begin calls a tool as a task, and returns the task.
func (c *plain) begin(tool string, input form) form {
	c.p.Helper()
	params := form{"name": tool, "arguments": input}
	if c.way == alone {
		res := c.asked("tools/call", params)
		if res["resultType"] != "task" {
			c.p.Fatalf("%s did not become a task: %v", tool, res)
		}
		return res
	}
	params["task"] = form{"ttl": 3_600_000}
	task, ok := c.asked("tools/call", params)["task"].(form)
	if !ok {
		c.p.Fatalf("%s did not become a task", tool)
	}
	return task
}

// until looks at a task until it has a state.
func (c *plain) until(id any, status wire.Status) form {
	c.p.Helper()
	for end := time.Now().Add(patience); ; {
		task := c.asked("tasks/get", form{"taskId": id})
		if task["status"] == string(status) {
			return task
		}
		if time.Now().After(end) || wire.Status(fmt.Sprint(task["status"])).Terminal() {
			c.p.Fatalf("the task is %v, want it to become %s", task, status)
		}
	}
}

// result is the result of a task that is over.
func (c *plain) result(id any) form {
	c.p.Helper()
	if c.way == alone {
		task := c.asked("tasks/get", form{"taskId": id})
		res, ok := task["result"].(form)
		if !ok {
			c.p.Fatalf("the task has no result: %v", task)
		}
		return res
	}
	return c.asked("tasks/result", form{"taskId": id})
}

// says is the first text of a result.
func says(res form) string {
	parts, _ := res["content"].([]any)
	if len(parts) == 0 {
		return ""
	}
	text, _ := at(parts[0], "text").(string)
	return text
}

// stream opens the stream of a session.
func (c *plain) stream(method string, _ form) *http.Response {
	c.p.Helper()
	r, err := http.NewRequestWithContext(c.p.Context(), method, c.p.url, nil)
	must.OK(c.p, err)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Mcp-Protocol-Version", c.way)
	r.Header.Set("Mcp-Session-Id", c.sid)
	res, err := http.DefaultClient.Do(r)
	must.OK(c.p, err)
	c.p.Cleanup(sync.OnceFunc(func() { _ = res.Body.Close() }))
	return res
}
