package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/mcp/toolset"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestTasksOverAPipe: in a session, and told of as they change.
func TestTasksOverAPipe(t *testing.T) {
	p := start(t, nil)
	m, err := server.New(server.Config{Client: p.client, Log: testenv.Log(t), Pipe: server.Caller{Agent: "agent-a"}})
	must.OK(t, err)
	t.Cleanup(m.Stop)
	must.OK(t, m.SetSurface(p.surface()))
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, toServer, fromServer) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	lines := bufio.NewScanner(toClient)
	var told []form
	send := func(method string, params form) form {
		t.Helper()
		message := form{"jsonrpc": "2.0", "method": method, "params": params}
		if !strings.HasPrefix(method, "notifications/") {
			message["id"] = 1
		}
		data := must.JSON(t, message)
		if _, err := fmt.Fprintf(fromClient, "%s\n", data); err != nil {
			t.Fatal(err)
		}
		for message["id"] != nil && lines.Scan() {
			var answer form
			must.OK(t, json.Unmarshal(lines.Bytes(), &answer))
			if res, ok := answer["result"].(form); ok {
				return res
			}
			if answer["method"] == nil {
				t.Fatalf("%s: %v", method, answer)
			}
			told = append(told, answer)
		}
		return nil
	}
	hello := send("initialize", form{"protocolVersion": session, "capabilities": form{},
		"clientInfo": form{"name": "pipe", "version": "1"}})
	if at(hello, "capabilities", "tasks", "list") == nil {
		t.Errorf("the server says %v", hello)
	}
	send("notifications/initialized", form{})
	id := at(send("tools/call", form{"name": "wait", "task": form{}}), "task", "taskId")
	<-p.began
	if task := send("tasks/get", form{"taskId": id}); task["status"] != "working" {
		t.Errorf("the task is %v", task)
	}
	p.gate <- struct{}{}
	if res := send("tasks/result", form{"taskId": id}); says(res) != "waited" ||
		at(res, "_meta", wire.RelatedTask, "taskId") != id {
		t.Errorf("the result is %v", res)
	}
	over := func(m form) bool {
		return m["method"] == "notifications/tasks/status" && at(m, "params", "taskId") == id &&
			at(m, "params", "status") == "completed"
	}
	for end := time.Now().Add(patience); !slices.ContainsFunc(told, over); {
		send("ping", form{})
		if time.Now().After(end) {
			t.Fatalf("the client was told %v", told)
		}
	}
}

// TestAPoolsTasksAreAnotherPoolsCalls: a worker calls the tools of a pool's MCP server as tasks, and a call that is
// canceled there is canceled here.
func TestAPoolsTasksAreAnotherPoolsCalls(t *testing.T) {
	p := start(t, soon)
	set, err := toolset.New(toolset.Options{Log: testenv.Log(t), Lookup: os.LookupEnv,
		Server: manifest.Server{Name: "pool", URL: p.url,
			Headers:  map[string]string{"Authorization": "Bearer token-of-a"},
			MaxTools: 100, MaxInFlight: 4, StartTimeoutMS: patience.Milliseconds()}})
	must.OK(t, err)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		set.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-over
	})
	<-set.Settled()
	must.OK(t, set.Down())
	tools := set.Tools()
	i := slices.IndexFunc(tools, func(t tool.Tool) bool { return strings.HasSuffix(t.Name, "wait") })
	call := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			out, err := tools[i].Run(ctx, tool.Env{}, json.RawMessage(`{}`))
			if err == nil && toolyard.TextOf(out.Content) != "waited" {
				err = fmt.Errorf("the output is %v", out)
			}
			ended <- err
		}()
		<-p.began
		return ended
	}
	lister := p.tasking(session, "token-of-a", nil)
	isTask := func() {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			list := lister.asked("tasks/list", form{})
			if tasks := list["tasks"].([]any); len(tasks) > 0 && at(tasks[0], "status") == "working" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the call is no task: %v", list)
			}
		}
	}
	ended := call(t.Context())
	isTask()
	p.gate <- struct{}{}
	if err := <-ended; err != nil {
		t.Errorf("the call ends with %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	ended = call(canceled)
	isTask()
	cancel()
	if err := <-ended; err == nil {
		t.Error("a call that was canceled ends well")
	}
	<-p.ended
}
