package mcp

import (
	"bytes"
	"encoding/json"
)

// The fields under which the SDK carries what it has no types for. A peer that sends them itself says no more than it
// could say in the protocol's own fields.
const (
	// MetaTask is a task: of a request, what the client asks for ([Asked]); of a result, the task that was made.
	MetaTask = "dev.toolyard/task"
	// MetaTaskIDs are the tasks that a listener wants to hear of, as a list of texts.
	MetaTaskIDs = "dev.toolyard/task-ids"
	// MetaExecution is the field execution of a listed tool ([Execution]).
	MetaExecution = "dev.toolyard/execution"
	// ExperimentalTasks is the capability tasks of a server of [Session2025], among its experimental ones.
	ExperimentalTasks = "dev.toolyard/tasks"
	// MetaCall is, of a question that a server asks, the call on whose response it came ([LiftQuestion]).
	MetaCall = "dev.toolyard/call"
	// MetaNotification is a notification of a kind that the SDK does not send, in one of progress ([Notification]).
	MetaNotification = "dev.toolyard/notification"
	// MetaStructured is the field structuredContent of a result, as its text: the SDK would round its numbers.
	MetaStructured = "dev.toolyard/structured"
	// MetaInput and MetaOutput are the schemas of a listed tool, as their texts: the SDK would round their numbers.
	MetaInput  = "dev.toolyard/input-schema"
	MetaOutput = "dev.toolyard/output-schema"
	// MetaContent is the field content of a person's answer, as its text: the SDK rounds its numbers, and checks the
	// field, which therefore stays.
	MetaContent = "dev.toolyard/content"
)

// Asked is what a client says of the task that it asks for.
type Asked struct {
	// TTL is how long the task is to be kept, in milliseconds. Nil: as long as the server likes.
	TTL *float64 `json:"ttl,omitempty"`
}

// Execution is what a server says of how a tool runs.
type Execution struct {
	TaskSupport Support `json:"taskSupport"`
}

// Notification is any notification.
type Notification struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// object is a JSON object whose fields are as they were written.
type object map[string]json.RawMessage

// objectOf reads an object; nil if it is none.
func objectOf(data []byte) object {
	var o object
	if json.Unmarshal(data, &o) != nil {
		return nil
	}
	return o
}

// put sets a field to a value that can be encoded.
func (o object) put(name string, value any) bool {
	data, err := json.Marshal(value)
	if err != nil {
		return false
	}
	o[name] = data
	return true
}

// text is a field that is a text; "" if it is none.
func (o object) text(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// into moves a value into the object that a field is, which is made where it is missing. It fails where the field is
// something else.
func (o object) into(field, name string, value json.RawMessage) bool {
	inner := object{}
	if have, ok := o[field]; ok && string(have) != "null" {
		if inner = objectOf(have); inner == nil {
			return false
		}
	}
	inner[name] = value
	return o.put(field, inner)
}

// LiftRequest moves what a client says of tasks to where the SDK keeps it: the field task of a call, and the tasks that
// a listener names. It adds the text of a person's answer whose numbers the SDK would round, also to the response to a
// question.
func LiftRequest(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"task"`)) && !bytes.Contains(message, []byte(`"taskIds"`)) &&
		!(bytes.Contains(message, []byte(`"content"`)) && rounded(message)) {
		return message
	}
	m := objectOf(message)
	if result := objectOf(m["result"]); result != nil && m["method"] == nil {
		if !liftAnswer(result) {
			return message
		}
		return m.with("result", result, message)
	}
	params := objectOf(m["params"])
	if params == nil {
		return message
	}
	switch m.text("method") {
	case "tools/call":
		task, lifted := params["task"]
		if lifted = lifted && params.into("_meta", MetaTask, task); lifted {
			delete(params, "task")
		}
		if !liftAnswers(params) && !lifted {
			return message
		}
	case MethodUpdate:
		if !liftAnswers(params) {
			return message
		}
	case "subscriptions/listen":
		wanted := objectOf(params["notifications"])
		ids, ok := wanted["taskIds"]
		if !ok || !params.into("_meta", MetaTaskIDs, ids) {
			return message
		}
		delete(wanted, "taskIds")
		if !params.put("notifications", wanted) {
			return message
		}
	default:
		return message
	}
	return m.with("params", params, message)
}

// liftAnswers is liftAnswer for all answers that a request has.
func liftAnswers(params object) bool {
	answers, lifted := objectOf(params["inputResponses"]), false
	for key := range answers {
		if answer := objectOf(answers[key]); liftAnswer(answer) {
			lifted = answers.put(key, answer) || lifted
		}
	}
	return lifted && params.put("inputResponses", answers)
}

// liftAnswer adds the text of its content to a person's answer, and reports whether that was needed.
func liftAnswer(answer object) bool {
	content, ok := answer["content"]
	if !ok || answer["action"] == nil || !rounded(content) {
		return false
	}
	text, err := json.Marshal(string(content))
	return err == nil && answer.into("_meta", MetaContent, text)
}

// LowerRequest is the other way round, for a call that asks for a task.
func LowerRequest(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"`+MetaTask+`"`)) {
		return message
	}
	m := objectOf(message)
	params := objectOf(m["params"])
	meta := objectOf(params["_meta"])
	task, ok := meta[MetaTask]
	if !ok || m.text("method") != "tools/call" {
		return message
	}
	delete(meta, MetaTask)
	params["task"] = task
	if !params.put("_meta", meta) {
		return message
	}
	return m.with("params", params, message)
}

// LiftResponse moves what a server says of tasks to where the SDK keeps it: the capability, the support of listed
// tools, and a task in the place of a result. So it does with structured content and schemas whose numbers the SDK
// would round.
func LiftResponse(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"task"`)) && !bytes.Contains(message, []byte(`"tasks"`)) &&
		!bytes.Contains(message, []byte(`"execution"`)) && !bytes.Contains(message, []byte(structuredField)) &&
		!(bytes.Contains(message, []byte(`"inputSchema"`)) && rounded(message)) {
		return message
	}
	m := objectOf(message)
	result := objectOf(m["result"])
	if result == nil {
		return message
	}
	if task := made(result); task != nil {
		result = object{"content": json.RawMessage("[]")}
		if !result.into("_meta", MetaTask, task) {
			return message
		}
		return m.with("result", result, message)
	}
	changed := liftTools(result)
	changed = liftStructured(result) || changed
	if caps := objectOf(result["capabilities"]); caps["tasks"] != nil {
		changed = caps.into("experimental", ExperimentalTasks, caps["tasks"]) && result.put("capabilities", caps) ||
			changed
	}
	if !changed {
		return message
	}
	return m.with("result", result, message)
}

// made is the task that a result of a call is; nil if it is none.
func made(result object) json.RawMessage {
	if _, ok := result["content"]; ok {
		return nil
	}
	if result.text("resultType") == "task" {
		data, err := json.Marshal(result)
		if err != nil {
			return nil
		}
		return data
	}
	if task := result["task"]; objectOf(task)["taskId"] != nil {
		return task
	}
	return nil
}

// liftTools moves what listed tools say of how they run, and their schemas where that is needed. It reports whether
// there was something.
func liftTools(result object) bool {
	var tools []json.RawMessage
	if result["tools"] == nil || json.Unmarshal(result["tools"], &tools) != nil {
		return false
	}
	changed := false
	for i := range tools {
		tool := objectOf(tools[i])
		execution, lifted := tool["execution"]
		lifted = lifted && tool.into("_meta", MetaExecution, execution)
		lifted = liftRounded(tool, "inputSchema", MetaInput) || lifted
		lifted = liftRounded(tool, "outputSchema", MetaOutput) || lifted
		if !lifted {
			continue
		}
		if data, err := json.Marshal(tool); err == nil {
			tools[i], changed = data, true
		}
	}
	return changed && result.put("tools", tools)
}

// structuredField is the name of the field, as a message has it.
const structuredField = `"structuredContent"`

// LiftStructured is what [LiftResponse] does for a result that stands alone.
func LiftStructured(result []byte) []byte {
	if !bytes.Contains(result, []byte(structuredField)) {
		return result
	}
	o := objectOf(result)
	if o == nil || !liftStructured(o) {
		return result
	}
	data, err := json.Marshal(o)
	if err != nil {
		return result
	}
	return data
}

// liftStructured moves the structured content of a result, and reports whether that was needed.
func liftStructured(result object) bool {
	return liftRounded(result, "structuredContent", MetaStructured)
}

// liftRounded moves a field to a place in _meta, as its text, and reports whether that was needed. The SDK reads
// numbers as float64, which keeps no two ids of 64 bits apart, and reads no message at all that has a number past its
// range.
func liftRounded(in object, field, meta string) bool {
	value, ok := in[field]
	if !ok || !rounded(value) {
		return false
	}
	text, err := json.Marshal(string(value))
	if err != nil || !in.into("_meta", meta, text) {
		return false
	}
	in[field] = json.RawMessage("{}") // so that it still says that there is some
	return true
}

// rounded reports whether a JSON text has a number that a float64 may not keep: one that is long, or has an exponent.
func rounded(text []byte) bool {
	const exactChars = 15 // digits that a float64 always keeps
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			from := i
			for i+1 < len(text) && bytes.IndexByte([]byte("+-.0123456789eE"), text[i+1]) >= 0 {
				i++
			}
			if number := text[from : i+1]; len(number) > exactChars || bytes.ContainsAny(number, "eE") {
				return true
			}
		}
	}
	return false
}

// LiftQuestion has a question (elicitation/create) say on which call's response it came. call names one of ours, and is
// empty for what came on no call's response. A server that writes its questions so that this does not find them can
// name a call of its own, on whose response it could ask as well.
func LiftQuestion(message []byte, call string) []byte {
	if !bytes.Contains(message, []byte(`"elicitation/create"`)) {
		return message
	}
	m := objectOf(message)
	params := objectOf(m["params"])
	name, err := json.Marshal(call)
	if err != nil || params == nil || m.text("method") != "elicitation/create" ||
		!params.into("_meta", MetaCall, name) {
		return message
	}
	return m.with("params", params, message)
}

// LowerNotification is the notification that one of progress carries.
func LowerNotification(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"`+MetaNotification+`"`)) {
		return message
	}
	m := objectOf(message)
	if m.text("method") != "notifications/progress" {
		return message
	}
	carried := objectOf(objectOf(objectOf(m["params"])["_meta"])[MetaNotification])
	if carried["method"] == nil || carried["params"] == nil {
		return message
	}
	m["method"] = carried["method"]
	return m.with("params", objectOf(carried["params"]), message)
}

// with is the message with another object in a field; the message as it was if that cannot be encoded.
func (o object) with(field string, value object, as []byte) []byte {
	if value == nil || !o.put(field, value) {
		return as
	}
	data, err := json.Marshal(o)
	if err != nil {
		return as
	}
	return data
}
