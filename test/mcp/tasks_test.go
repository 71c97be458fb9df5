package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
)

// soon has calls become tasks at once.
func soon(c *server.Config) { c.TaskAfter = time.Millisecond }

// TestACallAsATask: it is answered before it has run, looked at while it runs, and has its result when it is over.
func TestACallAsATask(t *testing.T) {
	p := start(t, soon)
	inBoth(t, func(t *testing.T, way string) {
		c := p.tasking(way, "token-of-a", nil)
		task := c.begin("wait", nil)
		id := task["taskId"]
		for _, field := range []string{"createdAt", "lastUpdatedAt"} {
			if _, err := time.Parse(time.RFC3339, fmt.Sprint(task[field])); err != nil {
				t.Errorf("%s: %v", field, err)
			}
		}
		ttl, poll := "ttl", "pollInterval"
		want := 3_600_000.0
		if way == alone {
			ttl, poll, want = "ttlMs", "pollIntervalMs", (72*time.Hour).Seconds()*1000
		}
		if task[ttl] != want || task[poll] != 1000.0 || task["status"] != "working" {
			t.Errorf("the task is %v", task)
		}
		<-p.began
		if now := c.asked("tasks/get", form{"taskId": id}); now["status"] != "working" || now["createdAt"] !=
			task["createdAt"] || now[ttl] != want {
			t.Errorf("while it runs the task is %v", now)
		}
		p.gate <- struct{}{}
		c.until(id, wire.Completed)
		res := c.result(id)
		if says(res) != "waited" {
			t.Errorf("its result is %v", res)
		}
		related := at(res, "_meta", wire.RelatedTask, "taskId")
		if way == session && related != id || way == alone && related != nil {
			t.Errorf("its result belongs to the task %v", related)
		}
		again := c.result(id)
		if says(again) != "waited" {
			t.Errorf("asked again, its result is %v", again)
		}
	})
}

// TestAResultIsWaitedFor: of a session, as long as the call runs; going away cancels nothing.
func TestAResultIsWaitedFor(t *testing.T) {
	p := start(t, nil)
	c := p.tasking(session, "token-of-a", nil)
	id := c.begin("wait", nil)["taskId"]
	<-p.began
	got := make(chan form, 1)
	go func() {
		answer, _ := c.send("tasks/result", form{"taskId": id})
		got <- answer
	}()
	p.gate <- struct{}{}
	if answer := <-got; says(at(answer, "result").(form)) != "waited" {
		t.Errorf("got %v", answer)
	}
}

// TestAFailingTask: a failure of the tool is one of the task in the older revision, and a result in the newer one. A
// tool that is gone is an error of the protocol in both.
func TestAFailingTask(t *testing.T) {
	gone := made(t, "gone", nil, nil).Declaration
	p := start(t, nil).second(server.Config{Tasks: func(string) wire.Support { return wire.Required }},
		registry.Entry{Declaration: gone, Origin: registry.Toolset, Pool: "default"})
	inBoth(t, func(t *testing.T, way string) {
		c := p.tasking(way, "token-of-a", nil)
		id := c.begin("fail", nil)["taskId"]
		status := wire.Failed
		if way == alone {
			status = wire.Completed
		}
		task := c.until(id, status)
		if message := fmt.Sprint(task["statusMessage"]); !strings.Contains(message, "it does not work") {
			t.Errorf("the task says %q", message)
		}
		if res := c.result(id); res["isError"] != true || !strings.Contains(says(res), "it does not work") {
			t.Errorf("its result is %v", res)
		}
		id = c.begin("gone", nil)["taskId"]
		task = c.until(id, wire.Failed)
		failure := at(task, "error")
		if way == session {
			answer, _ := c.send("tasks/result", form{"taskId": id})
			failure = answer["error"]
		}
		if at(failure, "code") != -32602.0 || !strings.Contains(fmt.Sprint(at(failure, "message")), "unknown tool") ||
			task["result"] != nil {
			t.Errorf("a tool that is gone ends as %v, %v", task, failure)
		}
	})
}

// TestATaskIsCanceled: its call ends, and it stays canceled.
func TestATaskIsCanceled(t *testing.T) {
	p := start(t, soon)
	inBoth(t, func(t *testing.T, way string) {
		c := p.tasking(way, "token-of-a", nil)
		id := c.begin("wait", nil)["taskId"]
		<-p.began
		answer := c.asked("tasks/cancel", form{"taskId": id})
		if way == session && (answer["status"] != "cancelled" || answer["taskId"] != id) {
			t.Errorf("the cancel is answered with %v", answer)
		}
		if way == alone && (answer["resultType"] != "complete" || answer["taskId"] != nil) {
			t.Errorf("the cancel is answered with %v", answer)
		}
		<-p.ended
		c.until(id, wire.Cancelled)
		if way == session {
			if res := c.asked("tasks/result", form{"taskId": id}); res["isError"] != true {
				t.Errorf("the result of a canceled task is %v", res)
			}
			c.refused(-32602, "cannot be canceled", "tasks/cancel", form{"taskId": id})
		} else if answer := c.asked("tasks/cancel", form{"taskId": id}); answer["resultType"] != "complete" {
			t.Errorf("a second cancel is answered with %v", answer)
		}
		c.until(id, wire.Cancelled)
	})
}

// heldEvents is a way to the API on which the logs of batches are not read before it is opened.
type heldEvents struct{ read, open chan struct{} }

func (h heldEvents) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/events") {
		select {
		case h.read <- struct{}{}:
		default:
		}
		<-h.open
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestACallThatIsCanceledBeforeItIsATask ends: it would run as a task whose id nobody knows.
func TestACallThatIsCanceledBeforeItIsATask(t *testing.T) {
	p, line := start(t, nil), heldEvents{make(chan struct{}, 1), make(chan struct{})}
	through, err := client.ConnectHTTP(p.Context(), strings.TrimSuffix(p.url, "/mcp"), client.HTTPOptions{
		Token: "token-of-all", MaxRetries: -1, Client: &http.Client{Transport: line}})
	if err != nil {
		t.Fatal(err)
	}
	c := p.second(server.Config{Client: through}).tasking(session, "token-of-a", nil)
	const id = "task-canceled"
	done := make(chan struct{})
	go func() {
		defer close(done)
		res := c.post(form{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": form{"name": "wait",
			"task": form{}, "_meta": form{"dev.toolyard/batch": id}}})
		defer res.Body.Close() //nolint:errcheck // it was read
		for message := range messages(t, res) {
			t.Errorf("a canceled request is answered with %v", message)
		}
	}()
	<-p.began
	<-line.read
	res := c.post(form{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": form{"requestId": 8}})
	_ = res.Body.Close()
	c.asked("ping", form{}) // messages are read one after the other, so the cancel has been read
	close(line.open)
	<-done
	testenv.Within(t, "the tool ends", p.ended)
	for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a", ID: id}).Results(waiting(t)) {
		if err != nil || r.Code != toolyard.Canceled {
			t.Errorf("the call ended as %q (%v)", r.Code, err)
		}
	}
}

// TestTasksAreTheirAgents: what another agent asks for is not there, and so is what is no task.
func TestTasksAreTheirAgents(t *testing.T) {
	p := start(t, soon)
	inBoth(t, func(t *testing.T, way string) {
		a, b := p.tasking(way, "token-of-a", nil), p.tasking(way, "token-of-b", nil)
		id := a.begin("wait", nil)["taskId"]
		<-p.began
		batch := called(t, p.connect(way, "token-of-a", nil), "echo", nil).Meta["dev.toolyard/batch"]
		methods := []string{"tasks/get", "tasks/cancel", "tasks/result"}
		if way == alone {
			methods = []string{"tasks/get", "tasks/cancel", "tasks/update"}
		}
		for _, method := range methods {
			b.refused(-32602, "no such task", method, form{"taskId": id})
			for _, other := range []any{"", "task-none", batch, "task-\u0000", strings.Repeat("task-", 100)} {
				if way == alone && (other == "" || strings.Contains(other.(string), "\u0000")) {
					continue // a header cannot say so
				}
				a.refused(-32602, "no such task", method, form{"taskId": other})
			}
		}
		if way == session {
			if list := b.asked("tasks/list", form{}); len(list["tasks"].([]any)) > 0 {
				t.Errorf("the other agent sees %v", list)
			}
		}
		p.gate <- struct{}{}
		a.until(id, wire.Completed)
	})
}

// TestTheListOfTasks: page by page, the newest first, each task once, and nothing that is none.
func TestTheListOfTasks(t *testing.T) {
	p := start(t, nil)
	c := p.tasking(session, "token-of-a", nil)
	called(t, p.connect(session, "token-of-a", nil), "echo", nil)
	var want []string
	for range server.TaskPage + 3 {
		id := c.begin("echo", form{"text": "x"})["taskId"].(string)
		c.until(id, wire.Completed)
		want = append(want, id)
	}
	slices.Reverse(want)
	for end := time.Now().Add(patience); ; { // the index follows the log
		var got []string
		pages, cursor := 0, any(nil)
		for {
			params := form{}
			if cursor != nil {
				params["cursor"] = cursor
			}
			page := c.asked("tasks/list", params)
			tasks := page["tasks"].([]any)
			if len(tasks) > server.TaskPage {
				t.Fatalf("a page has %d tasks", len(tasks))
			}
			for _, task := range tasks {
				got = append(got, at(task, "taskId").(string))
				if at(task, "status") != "completed" {
					t.Errorf("the list has %v", task)
				}
			}
			pages++
			if cursor = page["nextCursor"]; cursor == nil {
				break
			}
		}
		if slices.Equal(got, want) && pages > 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("in %d pages are %q, want %q", pages, got, want)
		}
	}
	for _, cursor := range []string{"x", "dDA", "dC0x", "dDE="} {
		c.refused(-32602, "cursor", "tasks/list", form{"cursor": cursor})
	}
}

// TestAPersonIsAskedInATask: the task says that it needs an answer, and goes on with it.
func TestAPersonIsAskedInATask(t *testing.T) {
	p := start(t, func(c *server.Config) { soon(c); asking(c) })
	inBoth(t, func(t *testing.T, way string) {
		for _, tt := range []struct {
			name   string
			answer form
			runs   bool
			says   string
		}{
			{"allow", form{"action": "accept", "content": form{"decision": "allow"}}, true, "wrote it"},
			{"deny", form{"action": "accept", "content": form{"decision": "deny", "reason": "not on a Friday"}}, false,
				"not on a Friday"},
			{"decline", form{"action": "decline"}, false, "the person has not allowed it"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				c, before := p.tasking(way, "token-of-a", form{"elicitation": form{}}), p.writes.Load()
				id := c.begin("write", form{"text": "it"})["taskId"]
				task := c.until(id, wire.InputRequired)
				var question form
				if way == session {
					c.person = func(params form) form {
						question = params
						return tt.answer
					}
				} else {
					key := ""
					for k, request := range task["inputRequests"].(form) {
						key, question = k, at(request, "params").(form)
						if at(request, "method") != "elicitation/create" {
							t.Errorf("it asks %v", request)
						}
					}
					c.asked("tasks/update", form{"taskId": id, "inputResponses": form{"other": tt.answer,
						"approval": tt.answer}})
					if n := p.writes.Load(); n != before {
						t.Fatalf("an answer to another question runs it")
					}
					if again := c.until(id, wire.InputRequired); at(again, "inputRequests", key) == nil {
						t.Errorf("asked again it is another question: %v", again)
					}
					c.asked("tasks/update", form{"taskId": id, "inputResponses": form{key: tt.answer}})
					c.until(id, wire.Completed)
				}
				res := c.result(id)
				if (res["isError"] == true) == tt.runs || !strings.Contains(says(res), tt.says) {
					t.Errorf("the result is %v", res)
				}
				if ran := p.writes.Load() - before; ran != 0 != tt.runs || ran > 1 {
					t.Errorf("it ran %d times", ran)
				}
				if message := fmt.Sprint(question["message"]); !strings.Contains(message, `text: "it"`) {
					t.Errorf("the person was asked %q", message)
				}
				if related := at(question, "_meta", wire.RelatedTask, "taskId"); way == session && related != id {
					t.Errorf("the question belongs to the task %v", related)
				}
			})
		}
	})
}

// TestAnAnswerThatComesTooLateInATask: an operator was faster, and by then the tool asks something else. The answer is
// passed over, and the client's person is asked that.
func TestAnAnswerThatComesTooLateInATask(t *testing.T) {
	p := start(t, func(c *server.Config) { soon(c); asking(c) })
	c := p.tasking(session, "token-of-a", form{"elicitation": form{}})
	id := c.begin("ask", nil)["taskId"]
	c.until(id, wire.InputRequired)
	waits := func() client.Approval {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			list, err := p.client.Approvals(waiting(t), "agent-a")
			if err != nil {
				t.Error(err)
			}
			if len(list) == 1 {
				return list[0]
			}
		}
		t.Error("the tool does not ask")
		return client.Approval{}
	}
	asked := 0
	c.person = func(form) form {
		if asked++; asked == 1 {
			first := waits()
			if err := p.client.Decide(waiting(t), first.ID, client.Decision{Verdict: client.Allow, By: "operator",
				Input: json.RawMessage(`{"said":"the operator"}`)}); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(patience); !waits().AskedAt.After(first.AskedAt); {
				if time.Now().After(end) {
					t.Error("the tool does not ask again")
					break
				}
			}
		}
		return form{"action": "accept", "content": form{"said": fmt.Sprint("the person, ", asked)}}
	}
	want := `{"said":"the operator"}{"said":"the person, 2"}`
	if res := c.result(id); asked != 2 || says(res) != want {
		t.Errorf("the person was asked %d times, and the result is %v", asked, res)
	}
}

// TestNoBodyIsAskedInATask: who has no person, or a token that says nothing of one, is denied.
func TestNobodyIsAskedInATask(t *testing.T) {
	p := start(t, soon)
	inBoth(t, func(t *testing.T, way string) {
		c := p.tasking(way, "token-of-a", form{"elicitation": form{}})
		params := form{"name": "write"}
		if way == session {
			params["task"] = form{}
		}
		res := c.asked("tools/call", params)
		id := res["taskId"]
		if way == session {
			id = at(res, "task", "taskId")
		}
		if id != nil { // or it was answered at once
			for {
				task := c.asked("tasks/get", form{"taskId": id})
				if task["status"] == "input_required" {
					t.Fatalf("somebody is asked: %v", task)
				}
				if wire.Status(fmt.Sprint(task["status"])).Terminal() {
					break
				}
			}
			res = c.result(id)
		}
		if at(res, "_meta", "dev.toolyard/code") != string(toolyard.PermissionDenied) {
			t.Errorf("the result is %v", res)
		}
	})
	if n := p.writes.Load(); n > 0 {
		t.Errorf("it ran %d times", n)
	}
}

// TestWhoMayAskForTasks: tools, revisions and clients that have none get none.
func TestWhoMayAskForTasks(t *testing.T) {
	p := start(t, func(c *server.Config) {
		soon(c)
		c.Tasks = func(tool string) wire.Support {
			switch tool {
			case "echo":
				return wire.Forbidden
			case "count":
				return wire.Required
			}
			return wire.Optional
		}
	})
	older := p.tasking(session, "token-of-a", nil)
	older.refused(-32601, "", "tools/call", form{"name": "echo", "task": form{}})
	older.refused(-32601, "", "tools/call", form{"name": "count"})
	older.refused(-32602, "task", "tools/call", form{"name": "long", "task": 7})
	older.refused(-32602, "task", "tools/call", form{"name": "long", "task": form{"ttl": "long"}})
	older.refused(-32602, "task-", "tools/call", form{"name": "long", "task": form{}, "_meta": form{
		"dev.toolyard/batch": "mine"}})
	older.refused(-32601, "tasks/update", "tasks/update", form{"taskId": "task-x"})
	support := map[string]any{}
	for _, tool := range older.asked("tools/list", form{})["tools"].([]any) {
		support[at(tool, "name").(string)] = at(tool, "execution", "taskSupport")
	}
	if support["echo"] != "forbidden" || support["count"] != "required" || support["long"] != "optional" {
		t.Errorf("the tools say %v", support)
	}

	newer := p.tasking(alone, "token-of-a", nil)
	found := at(newer.asked("server/discover", form{}), "capabilities")
	if at(found, "extensions", wire.Extension) == nil || at(found, "tasks") != nil {
		t.Errorf("the server says %v", found)
	}
	for range 5 { // however fast it is
		res := newer.asked("tools/call", form{"name": "echo", "task": form{"ttl": 1}})
		if res["resultType"] != "complete" {
			t.Errorf("a tool without tasks is answered with %v", res)
		}
	}
	newer.refused(-32601, "tasks/result", "tasks/result", form{"taskId": "task-x"})
	newer.refused(-32601, "tasks/list", "tasks/list", form{})
	for _, tool := range newer.asked("tools/list", form{})["tools"].([]any) {
		if at(tool, "execution") != nil {
			t.Errorf("the list has %v", tool)
		}
	}
	answer, _ := newer.send("tasks/get", form{"taskId": "task-x"}, "Mcp-Name", "task-y")
	if at(answer, "error", "code") != -32020.0 {
		t.Errorf("a header that names another task: %v", answer)
	}

	none := p.tasking(alone, "token-of-a", nil)
	none.caps = form{}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		none.refused(-32021, wire.Extension, method, form{"taskId": "task-x"})
	}
	none.refused(-32021, wire.Extension, "tools/call", form{"name": "count"})
	none.refused(-32021, wire.Extension, "subscriptions/listen", form{"notifications": form{"taskIds": []string{"x"}}})
	done := make(chan form, 1)
	go func() {
		res, _ := none.send("tools/call", form{"name": "wait"})
		done <- res
	}()
	<-p.began
	p.gate <- struct{}{}
	if res := <-done; says(at(res, "result").(form)) != "waited" {
		t.Errorf("a client without tasks gets %v", res)
	}
}

// TestATaskCanBeAskedForAgain: a call with an id of its own runs once, and is the same task.
func TestATaskCanBeAskedForAgain(t *testing.T) {
	p := start(t, func(c *server.Config) {
		c.Tasks = func(string) wire.Support { return wire.Required }
	})
	inBoth(t, func(t *testing.T, way string) {
		c := p.tasking(way, "token-of-a", nil)
		id := "task-mine-" + way
		params := form{"name": "wait", "_meta": form{"dev.toolyard/batch": id}}
		if way == session {
			params["task"] = form{}
		}
		for range 2 {
			if answer, _ := c.send("tools/call", params); at(answer, "result", "taskId") != id && at(answer, "result",
				"task", "taskId") != id {
				t.Fatalf("got %v", answer)
			}
		}
		<-p.began
		p.gate <- struct{}{}
		c.until(id, wire.Completed)
		if n := len(p.began); n > 0 {
			t.Errorf("it ran %d times more", n)
		}
	})
}

// TestTasksEnd: when the time has passed that a client asked for, as far as the pool keeps them, they are not there.
func TestTasksEnd(t *testing.T) {
	p := start(t, func(c *server.Config) { c.Lifetime = 2 * time.Second })
	c := p.tasking(session, "token-of-a", nil)
	task := c.asked("tools/call", form{"name": "echo", "task": form{"ttl": 1e300}})["task"].(form)
	if task["ttl"] != 2000.0 {
		t.Errorf("it is kept %v ms", task["ttl"])
	}
	for end := time.Now().Add(patience); ; {
		answer, _ := c.send("tasks/get", form{"taskId": task["taskId"]})
		if at(answer, "error", "code") == -32602.0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it is still there: %v", answer)
		}
	}
	if list := c.asked("tasks/list", form{}); len(list["tasks"].([]any)) > 0 {
		t.Errorf("the list has %v", list)
	}
}

// TestAServerBesideItKnowsTheTask: it has no state but the log.
func TestAServerBesideItKnowsTheTask(t *testing.T) {
	p := start(t, soon)
	inBoth(t, func(t *testing.T, way string) {
		id := p.tasking(way, "token-of-a", nil).begin("wait", nil)["taskId"]
		<-p.began
		c := p.second(server.Config{}).tasking(way, "token-of-a", nil)
		p.gate <- struct{}{}
		c.until(id, wire.Completed)
		if res := c.result(id); says(res) != "waited" {
			t.Errorf("the other server says %v", res)
		}
	})
}

// TestClientsAreToldOfTasks: a session of the task that it has made, a listener of those that it names.
func TestClientsAreToldOfTasks(t *testing.T) {
	p := start(t, soon)
	t.Run(session, func(t *testing.T) {
		c := p.tasking(session, "token-of-a", nil)
		told := make(chan form, 100)
		stream := c.stream(http.MethodGet, nil)
		go func() {
			for message := range messages(t, stream) {
				told <- message
			}
			close(told)
		}()
		// Who joins late misses the first reports of a call: another call has others.
		for end, seen := time.Now().Add(patience), false; !seen; {
			task := c.asked("tools/call", form{"name": "steps", "task": form{},
				"_meta": form{"progressToken": "mine"}})
			id := at(task, "task", "taskId")
			for range 3 {
				p.gate <- struct{}{}
			}
			for message := range told {
				params, _ := message["params"].(form)
				if message["method"] == "notifications/progress" && params["progressToken"] == "mine" {
					seen = true
				}
				if message["method"] != "notifications/tasks/status" || params["taskId"] != id {
					continue
				}
				if params["status"] != "completed" || params["ttl"] == nil || params["_meta"] != nil {
					t.Errorf("it was told %v", message)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatal("the session was told of no progress")
			}
		}
	})
	t.Run(alone, func(t *testing.T) {
		c := p.tasking(alone, "token-of-a", nil)
		id := c.begin("wait", nil)["taskId"]
		<-p.began
		var told []form
		c.told = func(method string, params form) {
			told = append(told, form{"method": method, "params": params})
			if len(told) == 2 { // what it stands at
				p.gate <- struct{}{}
			}
		}
		end, _ := c.send("subscriptions/listen", form{"notifications": form{"taskIds": []any{id, "task-none", id}}})
		if len(told) != 3 || at(end, "result") == nil {
			t.Fatalf("it was told %v, and then %v", told, end)
		}
		ack := at(told[0], "params", "notifications", "taskIds")
		if told[0]["method"] != "notifications/subscriptions/acknowledged" || fmt.Sprint(ack) != fmt.Sprint([]any{id}) {
			t.Errorf("at first it was told %v", told[0])
		}
		for i, status := range []string{"working", "completed"} {
			m := told[i+1]
			of := at(m, "params", "_meta", "io.modelcontextprotocol/subscriptionId")
			if m["method"] != "notifications/tasks" || at(m, "params", "taskId") != id ||
				at(m, "params", "status") != status || of != 7.0 {
				t.Errorf("then it was told %v, want %s", m, status)
			}
		}
		if says(at(told[2], "params", "result").(form)) != "waited" {
			t.Errorf("at last it was told %v", told[2])
		}
	})
}
