package hooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// occasion is the event that a hook runs for. Each hook gets its own.
type occasion struct {
	event Event
	in    pipeline.HookInput // of a call
	// dir is the directory in which a command runs. Empty: this process's own.
	dir string
	// body is the event in JSON.
	body []byte
}

// BatchInput is a completed batch, with what was shown of its calls before.
type BatchInput struct {
	Key          toolyard.BatchKey
	Session      toolyard.Session
	Workspace    toolyard.Workspace
	WorkspaceDir string
	Calls        []BatchCall // in the order of the calls
}

// BatchCall is one call of it.
type BatchCall struct {
	CallID string
	Tool   string
	// Input is the observable copy; nil if the call did not get that far.
	Input json.RawMessage
	Code  toolyard.Code
	// Text is what the model reads: the output, or the error.
	Text    string
	IsError bool
}

// message is the event in JSON, in Claude Code's form. Our own fields are under toolyard.
type message struct {
	SessionID      string          `json:"session_id"`
	TranscriptPath string          `json:"transcript_path"` // always empty: there is no file with the conversation
	Cwd            string          `json:"cwd"`
	PermissionMode string          `json:"permission_mode"`
	HookEventName  Event           `json:"hook_event_name"`
	ToolName       string          `json:"tool_name,omitempty"`
	ToolInput      json.RawMessage `json:"tool_input,omitempty"`
	ToolResponse   any             `json:"tool_response,omitempty"`
	ToolUseID      string          `json:"tool_use_id,omitempty"`
	Error          string          `json:"error,omitempty"`
	IsInterrupt    *bool           `json:"is_interrupt,omitempty"`
	DurationMS     *int64          `json:"duration_ms,omitempty"`
	ToolCalls      []messageCall   `json:"tool_calls,omitempty"`
	Toolyard       own             `json:"toolyard"`
}

type messageCall struct {
	ToolName     string          `json:"tool_name"`
	ToolInput    json.RawMessage `json:"tool_input"`
	ToolUseID    string          `json:"tool_use_id"`
	ToolResponse string          `json:"tool_response"`
	Toolyard     ownCall         `json:"toolyard"`
}

// own has the fields that Claude Code's form lacks.
type own struct {
	Agent     toolyard.Agent     `json:"agent"`
	Batch     toolyard.BatchID   `json:"batch"`
	Session   toolyard.Session   `json:"session,omitempty"`
	Workspace toolyard.Workspace `json:"workspace,omitempty"`
	*ownTool
}

type ownTool struct {
	ownCall
	Index       int             `json:"index"`
	CallID      string          `json:"call_id,omitempty"`
	InputHash   string          `json:"input_hash,omitempty"`
	Interactive bool            `json:"interactive"`
	Judgement   *tool.Judgement `json:"judgement,omitempty"`
	// Origin is where an output from outside comes from.
	Origin string `json:"origin,omitempty"`
	// Content and Structured are what an output has beside its text.
	Content    []toolyard.Content `json:"content,omitempty"`
	Structured json.RawMessage    `json:"structured,omitempty"`
}

type ownCall struct {
	Tool    string        `json:"tool"`
	Code    toolyard.Code `json:"code,omitempty"`
	IsError bool          `json:"is_error,omitempty"`
}

// modes are the names of permission modes in Claude Code.
var modes = map[policy.Mode]string{
	policy.Default: "default", policy.AcceptEdits: "acceptEdits", policy.Plan: "plan", policy.DontAsk: "dontAsk",
	policy.Bypass: "bypassPermissions",
}

// callMessage makes the event of a call.
func (s *Set) callMessage(event Event, in pipeline.HookInput, cwd string) ([]byte, error) {
	shown, err := absolute(in.Tool, in.WorkspaceDir, in.Input)
	if err != nil {
		return nil, err
	}
	m := message{
		SessionID: sessionOf(in.Session, in.Key), Cwd: cwd, PermissionMode: modes[s.mode], HookEventName: event,
		ToolName: known(in.Tool).theirs, ToolInput: shown, ToolUseID: in.CallID,
		Toolyard: own{Agent: in.Key.Agent, Batch: in.Key.ID, Session: in.Session, Workspace: in.Workspace,
			ownTool: &ownTool{
				ownCall: ownCall{Tool: in.Tool, Code: in.Outcome.Code, IsError: in.Outcome.IsError}, Index: in.Index,
				CallID:    in.CallID,
				InputHash: in.InputHash, Interactive: in.Interactive, Judgement: &in.Judgement,
				Origin: in.Outcome.Origin, Content: in.Outcome.Content, Structured: in.Outcome.Structured,
			}},
	}
	if m.ToolUseID == "" {
		m.ToolUseID = fmt.Sprintf("%s/%s/%d", in.Key.Agent, in.Key.ID, in.Index)
	}
	ms := int64(in.Outcome.ExecuteMS)
	switch event {
	case PostToolUse:
		m.ToolResponse, m.DurationMS = responseOf(in, shown), &ms
	case PostToolUseFailure:
		interrupted := in.Outcome.Code == toolyard.Canceled || in.Outcome.Code == toolyard.SiblingCanceled
		failed := toolyard.Result{IsError: true, Code: in.Outcome.Code, Error: in.Outcome.Error,
			Output: in.Outcome.Output}
		m.Error, m.IsInterrupt, m.DurationMS = failed.Text(), &interrupted, &ms
	}
	return encode(m)
}

// batchMessage makes the event of a batch. If it is too long, it shows only the ends of the last texts.
func (s *Set) batchMessage(in BatchInput, cwd string) ([]byte, error) {
	m := message{
		SessionID: sessionOf(in.Session, in.Key), Cwd: cwd, PermissionMode: modes[s.mode], HookEventName: PostToolBatch,
		Toolyard:  own{Agent: in.Key.Agent, Batch: in.Key.ID, Session: in.Session, Workspace: in.Workspace},
		ToolCalls: []messageCall{},
	}
	room := MaxBatchBytes
	for i, c := range in.Calls {
		input := c.Input
		if len(input) > room || len(input) == 0 {
			input = json.RawMessage("{}")
		}
		shown, err := absolute(c.Tool, in.WorkspaceDir, input)
		if err != nil {
			return nil, err
		}
		room -= len(shown)
		text := c.Text
		if len(text) > max(room, 0) {
			text = display.CutMark(len(text))
		}
		room -= len(text)
		id := c.CallID
		if id == "" {
			id = fmt.Sprintf("%s/%s/%d", in.Key.Agent, in.Key.ID, i)
		}
		m.ToolCalls = append(m.ToolCalls, messageCall{ToolName: known(c.Tool).theirs, ToolInput: shown, ToolUseID: id,
			ToolResponse: text,
			Toolyard:     ownCall{Tool: c.Tool, Code: c.Code, IsError: c.IsError}})
	}
	return encode(m)
}

func sessionOf(s toolyard.Session, k toolyard.BatchKey) string {
	if s != "" {
		return string(s)
	}
	return string(k.Agent)
}

func encode(m message) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return b.Bytes(), nil
}

// responseOf is the outcome in the form that Claude Code has for the tool: an object. Other tools have the text under
// output.
func responseOf(in pipeline.HookInput, shown json.RawMessage) any {
	switch known(in.Tool).theirs {
	case "Bash":
		return map[string]any{"stdout": in.Outcome.Output, "stderr": "", "interrupted": false, "isImage": false}
	case "Write", "Edit":
		path, _ := policy.Field(shown, known(in.Tool).path) // the schema requires it
		return map[string]any{"filePath": path, "success": true, "output": in.Outcome.Output}
	}
	return map[string]any{"output": in.Outcome.Output}
}

// absolute makes the path absolute that existing hooks expect to be absolute: another spelling of the same path must
// not evade a hook that checks paths.
func absolute(name, dir string, input json.RawMessage) (json.RawMessage, error) {
	doc, path, full, err := pathOf(name, dir, input)
	if err != nil || full == path {
		return input, err
	}
	doc[known(name).path] = full
	return schema.Encode(doc)
}

// relative undoes [absolute] in what a hook returns, if the hook has not changed the path.
func relative(name, dir string, input, update json.RawMessage) (json.RawMessage, error) {
	_, path, full, err := pathOf(name, dir, input)
	if err != nil || full == path {
		return update, err
	}
	v, err := schema.Parse(update)
	if err != nil {
		return nil, err
	}
	doc, ok := v.Doc().(map[string]any)
	if !ok || doc[known(name).path] != full {
		return update, nil
	}
	doc[known(name).path] = path
	return schema.Encode(doc)
}

// pathOf finds a path in an input, and its absolute form. They are equal if there is nothing to do.
func pathOf(name, dir string, input json.RawMessage) (doc map[string]any, path, full string, err error) {
	field := known(name).path
	if field == "" || dir == "" {
		return nil, "", "", nil
	}
	v, err := schema.Parse(input)
	if err != nil {
		return nil, "", "", fmt.Errorf("the input cannot be read: %w", err)
	}
	doc, _ = v.Doc().(map[string]any)
	path, ok := doc[field].(string)
	if !ok || path == "" || partial(path) || strings.ContainsRune(path, 0) {
		return nil, "", "", nil
	}
	if full = path; !filepath.IsAbs(full) {
		full = filepath.Join(dir, full)
	}
	return doc, path, filepath.Clean(full), nil
}
