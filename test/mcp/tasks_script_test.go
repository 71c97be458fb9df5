package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/tool"
)

// scripts adds a worker whose scripts write each word of their text, all at once.
func (p *pool) scripts() {
	p.work("scripts", made(p.T, toolyard.RunCodeTool, func(d *tool.Declaration) {
		d.ReadOnly, d.Class.Static, d.MaxInFlight = false, toolyard.WriteExclusive, 8
	}, func(ctx context.Context, env tool.Env, text string) (tool.Output, error) {
		words := strings.Fields(text)
		said := make([]string, len(words))
		var calls sync.WaitGroup
		for i, word := range words {
			calls.Go(func() {
				input, err := json.Marshal(map[string]string{"text": word})
				if err != nil {
					said[i] = err.Error()
					return
				}
				r, err := env.Call(ctx, "write", input)
				if said[i] = r.Output; err != nil || r.IsError {
					said[i] = fmt.Sprint(r.Error, err)
				}
			})
		}
		calls.Wait()
		return tool.Output{Text: strings.Join(said, "; ")}, nil
	}))
	for end := time.Now().Add(patience); ; { // the list follows the workers
		for _, t := range p.tasking(alone, "token-of-a", nil).asked("tools/list", form{})["tools"].([]any) {
			if at(t, "name") == toolyard.RunCodeTool {
				return
			}
		}
		if time.Now().After(end) {
			p.Fatal("the tool for scripts is not listed")
		}
	}
}

// waits looks at a task until it asks so many questions, and returns their keys by the word that each is about.
func (c *plain) waits(id any, words ...string) map[string]string {
	c.p.Helper()
	for end := time.Now().Add(patience); ; {
		task := c.asked("tasks/get", form{"taskId": id})
		requests, _ := task["inputRequests"].(form)
		if len(requests) == len(words) && task["status"] == string(wire.InputRequired) {
			keys := map[string]string{}
			for key, request := range requests {
				for _, word := range words {
					if strings.Contains(fmt.Sprint(at(request, "params", "message")), fmt.Sprintf("text: %q", word)) {
						keys[word] = key
					}
				}
			}
			if len(keys) == len(words) {
				return keys
			}
		}
		if time.Now().After(end) || wire.Status(fmt.Sprint(task["status"])).Terminal() {
			c.p.Fatalf("the task is %v, want it to ask about %q", task, words)
		}
	}
}

// TestATaskAsksSeveralQuestions: two calls of a script wait for a person at once. The script's task has both questions,
// and takes the answers one by one, in any order, or together.
func TestATaskAsksSeveralQuestions(t *testing.T) {
	p := start(t, func(c *server.Config) { soon(c); asking(c) })
	p.scripts()
	allow := form{"action": "accept", "content": form{"decision": "allow"}}
	deny := form{"action": "accept", "content": form{"decision": "deny", "reason": "not on a Friday"}}
	begin := func(way string) (*plain, any) {
		c := p.tasking(way, "token-of-a", form{"elicitation": form{}})
		return c, c.begin(toolyard.RunCodeTool, form{"text": "one two"})["taskId"]
	}
	ends := func(t *testing.T, c *plain, id any) {
		t.Helper()
		c.until(id, wire.Completed)
		if text := says(c.result(id)); !strings.HasPrefix(text, "wrote one; ") ||
			!strings.Contains(text, "not on a Friday") {
			t.Errorf("the script says %q", text)
		}
	}
	for _, first := range []string{"one", "two"} {
		t.Run("one by one, "+first+" first", func(t *testing.T) {
			c, id := begin(alone)
			answers := map[string]form{"one": allow, "two": deny}
			second := map[string]string{"one": "two", "two": "one"}[first]
			keys := c.waits(id, "one", "two")
			c.asked("tasks/update", form{"taskId": id, "inputResponses": form{keys[first]: answers[first]}})
			if left := c.waits(id, second); left[second] != keys[second] {
				t.Errorf("the other question is now %q, and was %q", left[second], keys[second])
			}
			c.asked("tasks/update", form{"taskId": id, "inputResponses": form{keys[first]: deny,
				keys[second]: answers[second]}}) // an answer to what is answered changes nothing
			ends(t, c, id)
		})
	}
	t.Run("together", func(t *testing.T) {
		c, id := begin(alone)
		keys := c.waits(id, "one", "two")
		c.asked("tasks/update", form{"taskId": id, "inputResponses": form{keys["one"]: allow, keys["two"]: deny}})
		ends(t, c, id)
	})
	t.Run("a listener", func(t *testing.T) {
		c, id := begin(alone)
		var statuses []any
		answered := false // a second notice may come for the second question
		c.told = func(method string, params form) {
			statuses = append(statuses, params["status"])
			if params["status"] == string(wire.InputRequired) && !answered {
				answered = true
				d := p.tasking(alone, "token-of-a", c.caps)
				keys := d.waits(id, "one", "two")
				d.asked("tasks/update", form{"taskId": id, "inputResponses": form{keys["one"]: allow,
					keys["two"]: deny}})
			}
		}
		c.send("subscriptions/listen", form{"notifications": form{"taskIds": []any{id}}})
		ends(t, c, id)
		if len(statuses) < 3 || statuses[len(statuses)-1] != string(wire.Completed) {
			t.Errorf("the listener was told %v", statuses)
		}
	})
	t.Run("of a session", func(t *testing.T) {
		c, id := begin(session)
		c.until(id, wire.InputRequired)
		asked := 0
		c.person = func(params form) form {
			asked++
			if at(params, "_meta", wire.RelatedTask, "taskId") != id {
				t.Errorf("the question is %v", params)
			}
			if strings.Contains(fmt.Sprint(params["message"]), `text: "one"`) {
				return allow
			}
			return deny
		}
		res := c.result(id)
		if asked != 2 || !strings.HasPrefix(says(res), "wrote one; ") {
			t.Errorf("of %d questions comes %v", asked, res)
		}
		ends(t, c, id)
	})
	t.Run("of another agent", func(t *testing.T) {
		c, id := begin(alone)
		c.waits(id, "one", "two")
		other := p.tasking(alone, "token-of-b", form{"elicitation": form{}})
		own := other.begin(toolyard.RunCodeTool, form{"text": "three"})["taskId"]
		other.waits(own, "three")
		c.waits(id, "one", "two")
		for _, of := range []struct {
			c  *plain
			id any
		}{{c, id}, {other, own}} {
			of.c.asked("tasks/cancel", form{"taskId": of.id})
			of.c.until(of.id, wire.Cancelled)
		}
	})
}

// TestAScriptIsAskedAboutAfterAFailure: the list of approvals cannot be read once, and the person is asked later.
func TestAScriptIsAskedAboutAfterAFailure(t *testing.T) {
	p, line := start(t, nil), &watched{}
	p.scripts()
	p = p.second(server.Config{Client: line.over(p), Approvals: true, TaskAfter: time.Millisecond})
	p.follow()
	c := p.tasking(session, "token-of-a", form{"elicitation": form{}})
	id := c.begin(toolyard.RunCodeTool, form{"text": "one"})["taskId"]
	c.until(id, wire.InputRequired)
	asked := 0
	c.person = func(form) form {
		asked++
		return form{"action": "accept", "content": form{"decision": "allow"}}
	}
	other := p.tasking(alone, "token-of-a", nil)
	defer time.AfterFunc(10*time.Second, func() { other.asked("tasks/cancel", form{"taskId": id}) }).Stop()
	const ofTheRequest = 1
	line.fails.Store(line.looks.Load() + ofTheRequest + 1)
	if res := c.result(id); asked != 1 || says(res) != "wrote one" {
		t.Errorf("of %d questions comes %v", asked, res)
	}
	if line.looks.Load() < line.fails.Load() {
		t.Error("nothing has failed")
	}
}
