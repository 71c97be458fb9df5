// Package mcp has what the pool as an MCP server and the pool as a client of MCP servers share: the forms of MCP's
// tasks, in both revisions of the protocol that have them, and what carries these forms past the SDK.
//
// The SDK's types have no fields for tasks. What they would drop, [LiftRequest] and [LiftResponse] move to where the
// SDK keeps everything: to _meta, under a name of ours. [LowerRequest] and [LowerNotification] move it back on the way
// out. All four work on single messages, and leave alone what is no message or has nothing to move. [LiftResponse]
// moves structured content as well, where the SDK would change it.
//
// Authority: none. What stands in a message was written by the other side, before and after.
package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// The revisions of the protocol with tasks. Revisions are dates, and compare as texts.
const (
	// Session2025 is the one that has tasks as a part of the protocol: the client asks for a task.
	Session2025 = "2025-11-25"
	// Alone2026 is the one that has tasks as an extension: the server decides.
	Alone2026 = "2026-07-28"
)

// Extension is the name of the extension in the capabilities of both sides, from [Alone2026] on.
const Extension = "io.modelcontextprotocol/tasks"

// RelatedTask is the field of _meta that says which task a message belongs to, in [Session2025].
const RelatedTask = "io.modelcontextprotocol/related-task"

// The methods of tasks.
const (
	MethodGet    = "tasks/get"
	MethodResult = "tasks/result" // Session2025 alone
	MethodList   = "tasks/list"   // Session2025 alone
	MethodCancel = "tasks/cancel"
	MethodUpdate = "tasks/update" // Alone2026 alone
	// The notifications of a task's state.
	NotifyStatus2025 = "notifications/tasks/status"
	NotifyStatus2026 = "notifications/tasks"
)

// Status is where a task stands.
type Status string

// The states of a task.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// Terminal reports whether the state is the last one.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// known reports whether the protocol has the state.
func (s Status) known() bool { return s.Terminal() || s == Working || s == InputRequired }

// Support is whether a tool can be called as a task.
type Support string

// The kinds of support.
const (
	Forbidden Support = "forbidden" // never; what a tool is that says nothing
	Optional  Support = "optional"  // as the client likes; the server in Alone2026
	Required  Support = "required"  // always
)

// MaxTaskIDBytes is how long the id of a task may be that a server gives us.
const MaxTaskIDBytes = 1 << 10

// Task is a task's state.
type Task struct {
	ID      string
	Status  Status
	Message string
	// Created and Updated are when the task was made, and when its state changed last.
	Created, Updated time.Time
	// TTL is how long after Created the task is kept; 0: without end.
	TTL time.Duration
	// Poll is how long to wait between two looks; 0: it does not say.
	Poll time.Duration
}

// taskForm is what a task has in both revisions; task2025 and task2026 are its forms on the wire.
type taskForm struct {
	ID      string    `json:"taskId"`
	Status  Status    `json:"status"`
	Message string    `json:"statusMessage"`
	Created time.Time `json:"createdAt"`
	Updated time.Time `json:"lastUpdatedAt"`
}

type task2025 struct {
	taskForm
	TTL  *float64 `json:"ttl"`
	Poll float64  `json:"pollInterval"`
}

type task2026 struct {
	taskForm
	TTL  *float64 `json:"ttlMs"`
	Poll float64  `json:"pollIntervalMs"`
}

// Encode is the task as a revision has it. It never fails: a time past the year 9999 is cut to none.
func (t *Task) Encode(version string) map[string]any {
	form := map[string]any{
		"taskId": t.ID, "status": t.Status, "createdAt": t.Created.UTC().Format(time.RFC3339Nano),
		"lastUpdatedAt": t.Updated.UTC().Format(time.RFC3339Nano),
	}
	if t.Message != "" {
		form["statusMessage"] = t.Message
	}
	ttl, poll := "ttl", "pollInterval"
	if version >= Alone2026 {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	form[ttl] = nil
	if t.TTL > 0 {
		form[ttl] = t.TTL.Milliseconds()
	}
	if t.Poll > 0 {
		form[poll] = t.Poll.Milliseconds()
	}
	return form
}

// DecodeTask reads a task of a revision. It fails for what has no id that can be sent back, or no known state.
func DecodeTask(data []byte, version string) (Task, error) {
	var form task2026
	var err error
	if version >= Alone2026 {
		err = json.Unmarshal(data, &form)
	} else {
		err = json.Unmarshal(data, (*task2025)(&form)) // whose fields have other names
	}
	switch {
	case err != nil:
		return Task{}, fmt.Errorf("read a task: %w", err)
	case form.ID == "" || len(form.ID) > MaxTaskIDBytes:
		return Task{}, fmt.Errorf("read a task: its id has %d bytes; 1 to %d are taken", len(form.ID), MaxTaskIDBytes)
	case !form.Status.known():
		return Task{}, errors.New("read a task: its state is none that the protocol has")
	}
	t := Task{ID: form.ID, Status: form.Status, Message: form.Message, Created: form.Created, Updated: form.Updated,
		Poll: Milliseconds(form.Poll)}
	if form.TTL != nil {
		t.TTL = Milliseconds(*form.TTL)
	}
	return t, nil
}

// Milliseconds is a number of milliseconds that somebody else wrote, between none and the longest time there is.
func Milliseconds(ms float64) time.Duration {
	switch {
	case !(ms > 0): // nor what is no number
		return 0
	case ms >= float64(math.MaxInt64/time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms * float64(time.Millisecond))
}
