package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// TestATaskIsReadFromItsBatch: its state in both revisions, for what a log can say.
func TestATaskIsReadFromItsBatch(t *testing.T) {
	result := func(code toolyard.Code) []toolyard.Result {
		return []toolyard.Result{{Code: code, IsError: code != toolyard.OK, Error: "why"}}
	}
	over := toolyard.StatusCompleted
	for _, tt := range []struct {
		name         string
		st           client.Standing
		asks         bool
		older, newer wire.Status
	}{
		{"it runs", client.Standing{BatchView: toolyard.BatchView{Status: toolyard.StatusRunning}}, false, wire.Working,
			wire.Working},
		{"its result is there, and the batch not over", client.Standing{BatchView: toolyard.BatchView{
			Status: toolyard.StatusRunning, Results: result(toolyard.OK)}}, false, wire.Working, wire.Working},
		{"a person who is not here", client.Standing{Asked: true}, false, wire.Working, wire.Working},
		{"a person", client.Standing{Asked: true}, true, wire.InputRequired, wire.InputRequired},
		{"it is done", client.Standing{BatchView: toolyard.BatchView{Status: over, Results: result(toolyard.OK)}}, true,
			wire.Completed, wire.Completed},
		{"it failed", client.Standing{BatchView: toolyard.BatchView{Status: over,
			Results: result(toolyard.ExecutionFailed)}}, false, wire.Failed, wire.Completed},
		{"its tool is gone", client.Standing{BatchView: toolyard.BatchView{Status: over,
			Results: result(toolyard.UnknownTool)}}, false, wire.Failed, wire.Failed},
		{"its call was canceled", client.Standing{BatchView: toolyard.BatchView{Status: toolyard.StatusCanceled,
			Results: result(toolyard.Canceled)}}, false, wire.Cancelled, wire.Cancelled},
		{"canceled, and it runs", client.Standing{Canceled: true}, false, wire.Cancelled, wire.Cancelled},
		{"canceled, and done all the same", client.Standing{Canceled: true, BatchView: toolyard.BatchView{Status: over,
			Results: result(toolyard.OK)}}, false, wire.Cancelled, wire.Cancelled},
		{"refused", client.Standing{Refused: &client.RefusedError{Status: 429}}, false, wire.Failed, wire.Completed},
	} {
		for version, want := range map[string]wire.Status{wire.Session2025: tt.older, wire.Alone2026: tt.newer} {
			if got := taskOf(&tt.st, version, tt.asks, time.Hour); got.Status != want {
				t.Errorf("%s: in %s it is %s, want %s", tt.name, version, got.Status, want)
			}
		}
	}
}

// TestHowLongTasksAreKept: as long as was asked for, within bounds, which the id says.
func TestHowLongTasksAreKept(t *testing.T) {
	const lifetime = time.Hour
	number := func(ms float64) *float64 { return &ms }
	for _, tt := range []struct {
		asked *float64
		want  time.Duration
	}{
		{nil, lifetime}, {number(0), MinTaskTTL}, {number(-1), MinTaskTTL}, {number(90_500), 91 * time.Second},
		{number(1e300), lifetime}, {number(math.Inf(1)), lifetime}, {number(3_600_000), lifetime},
	} {
		id := newTaskID(keptFor(wire.Asked{TTL: tt.asked}, lifetime), client.NewBatchID())
		if got := ttlOf(id, lifetime); got != tt.want || !isTaskID(id) || toolyard.CheckName("id", string(id)) != nil {
			t.Errorf("of %v ms comes %s, which is kept %s, want %s", tt.asked, id, got, tt.want)
		}
	}
	for _, id := range []toolyard.BatchID{"task-", "task-s-x", "task--5s-x", "task-0s-x",
		"task-99999999999999999999s-x", "task-mine", "task-7200s-x"} {
		if got := ttlOf(id, lifetime); got != lifetime {
			t.Errorf("%s is kept %s", id, got)
		}
	}
	task := wire.Task{Created: time.Unix(1_000, 0), TTL: time.Minute}
	if expired(&task, time.Unix(1_060, 0)) || !expired(&task, time.Unix(1_061, 0)) {
		t.Error("a task is kept for another time than it says")
	}
}

// FuzzCursor: a place in the list is one that the server gave, or none.
func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(cursorOf(1))
	f.Add(cursorOf(math.MaxUint64))
	f.Add("dDAx")
	f.Fuzz(func(t *testing.T, cursor string) {
		after, ok := parseCursor(cursor)
		if ok && cursor != "" && cursorOf(after) != cursor {
			t.Errorf("%q is taken for %d", cursor, after)
		}
	})
}

// FuzzTasks: whatever a client says of tasks is answered, in both revisions, and is never the server's fault.
func FuzzTasks(f *testing.F) {
	s := bare(f)
	methods := []string{wire.MethodGet, wire.MethodResult, wire.MethodList, wire.MethodCancel, wire.MethodUpdate,
		"tools/call", "subscriptions/listen"}
	for i := range methods {
		for _, params := range []string{`{}`, `{"taskId":"task-x"}`, `{"taskId":7}`, `{"cursor":"x"}`,
			`{"taskId":"task-x","inputResponses":{"approval-1":{"action":"accept"}}}`, `{"name":"t","task":{"ttl":1}}`,
			`{"notifications":{"taskIds":["task-x","other"]}}`} {
			f.Add(uint8(i), params)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, raw string) {
		var params map[string]any
		if json.Unmarshal([]byte(raw), &params) != nil || params == nil {
			return
		}
		method := methods[int(n)%len(methods)]
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": stateless,
			"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "x", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{
				"extensions": map[string]any{wire.Extension: struct{}{}}},
		}
		body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // for what is asked of the pool
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(string(body)))
		name := params["taskId"]
		if name == nil {
			name = params["name"]
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			versionHeader: {stateless}, methodHeader: {method}, nameHeader: {fmt.Sprint(name)}}
		w := httptest.NewRecorder()
		s.Serve(w, r, "a", nil)
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", method, raw, w.Code, w.Body)
		}
		if _, err := askedOf(map[string]any{wire.MetaTask: params["task"]}); params["task"] == nil && err == nil {
			t.Error("a task that is nothing is taken")
		}
	})
}
