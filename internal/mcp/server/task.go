package server

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// A task is a batch of one call whose id begins with taskPrefix. It has no state beside the batch: its id is the
// batch's, how long it is kept stands in the id, and all else in the batch's log. So every server answers for it.

// taskPrefix is what the ids of tasks begin with.
const taskPrefix = "task-"

// newTaskID makes the id of a task that is to be kept so long; 0: as long as a batch.
func newTaskID(ttl time.Duration, unique toolyard.BatchID) toolyard.BatchID {
	if ttl == 0 {
		return taskPrefix + unique
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	return toolyard.BatchID(taskPrefix+strconv.FormatInt(seconds, 10)+"s-") + unique
}

func isTaskID(id toolyard.BatchID) bool { return strings.HasPrefix(string(id), taskPrefix) }

// ttlOf is how long a task is kept, which is never longer than the batch.
func ttlOf(id toolyard.BatchID, lifetime time.Duration) time.Duration {
	number, _, ok := strings.Cut(strings.TrimPrefix(string(id), taskPrefix), "s-")
	if !ok {
		return lifetime
	}
	seconds, err := strconv.ParseInt(number, 10, 64)
	if err != nil || seconds <= 0 || seconds >= int64(lifetime/time.Second) {
		return lifetime
	}
	return time.Duration(seconds) * time.Second
}

// keptFor is how long a task is to be kept that a client has asked for.
func keptFor(asked wire.Asked, lifetime time.Duration) time.Duration {
	if asked.TTL == nil {
		return 0
	}
	ttl := max(wire.Milliseconds(*asked.TTL), MinTaskTTL)
	if ttl >= lifetime {
		return 0
	}
	return ttl
}

// hasTasks reports whether a revision has tasks as a part of the protocol, and extendsTasks as an extension.
func hasTasks(version string) bool     { return version >= wire.Session2025 && version < wire.Alone2026 }
func extendsTasks(version string) bool { return version >= wire.Alone2026 }

// taskOf is a batch as a task. asks says that its person can be asked over MCP.
func taskOf(st *client.Standing, version string, asks bool, lifetime time.Duration) wire.Task {
	t := wire.Task{ID: string(st.ID), Status: wire.Working, Created: st.Submitted, Updated: st.Changed,
		TTL: ttlOf(st.ID, lifetime), Poll: PollInterval}
	switch over := st.Status == toolyard.StatusCompleted || st.Status == toolyard.StatusCanceled; {
	case st.Canceled:
		t.Status = wire.Cancelled
	case st.Refused != nil:
		t.Status, t.Message = wire.Completed, cut(st.Refused.Error(), maxMessageBytes)
		if hasTasks(version) {
			t.Status = wire.Failed
		}
	case over && len(st.Results) == 1:
		t.Status, t.Message = ended(&st.Results[0], version)
	case st.Asked && asks:
		t.Status, t.Message = wire.InputRequired, "A person has to allow the call."
	case st.Asked:
		t.Message = "A person has to allow the call."
	}
	return t
}

// ended is the last state of a task, by its call's result.
func ended(r *toolyard.Result, version string) (status wire.Status, message string) {
	if r.IsError {
		message = cut(string(r.Code)+": "+r.Error, maxMessageBytes)
	}
	switch {
	case r.Code == toolyard.Canceled:
		return wire.Cancelled, message
	case r.Code == toolyard.UnknownTool, r.IsError && hasTasks(version):
		return wire.Failed, message
	}
	return wire.Completed, message
}

// expired reports whether a task is kept no longer.
func expired(t *wire.Task, now time.Time) bool { return now.After(t.Created.Add(t.TTL)) }

// cursorOf is the place behind a batch in the list of tasks, for the client to carry.
func cursorOf(at uint64) string {
	return base64.RawURLEncoding.EncodeToString([]byte("t" + strconv.FormatUint(at, 10)))
}

// parseCursor reads a place in the list of tasks; "" is its beginning.
func parseCursor(cursor string) (after uint64, ok bool) {
	if cursor == "" {
		return 0, true
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || !strings.HasPrefix(string(text), "t") {
		return 0, false
	}
	after, err = strconv.ParseUint(string(text[1:]), 10, 64)
	return after, err == nil && after > 0 && cursorOf(after) == cursor
}

// askedOf reads what a client says of the task that it asks for; nil where it asks for none.
func askedOf(meta map[string]any) (*wire.Asked, error) {
	v, there := meta[wire.MetaTask]
	if !there {
		return nil, nil
	}
	asked := &wire.Asked{}
	data, err := json.Marshal(v)
	if err != nil || v == nil || json.Unmarshal(data, asked) != nil {
		return nil, malformed("task: want an object, whose ttl is a number of milliseconds")
	}
	return asked, nil
}
