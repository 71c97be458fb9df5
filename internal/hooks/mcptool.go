package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/schema"
)

// CallTool calls a tool of an MCP server, and returns the text of its answer. An answer that says that the tool failed
// is an error. It returns soon after its context ended.
type CallTool func(ctx context.Context, server, tool string, input json.RawMessage) (text string, err error)

// mcpTool is a hook that is a tool of an MCP server: it is called with an input that is made from the event, and the
// text of its answer is read as a command's output.
type mcpTool struct {
	server, tool string
	input        json.RawMessage // with places for parts of the event
	call         CallTool
}

// eventPart is a place in an input's string for a part of the event, as ${tool_input.file_path}.
var eventPart = regexp.MustCompile(`\$\{([^{}]*)\}`)

func newMCPTool(c handlerConfig, o Options) (*mcpTool, error) {
	m := &mcpTool{server: c.server, tool: c.tool, input: c.toolInput, call: o.CallTool}
	switch {
	case o.Names == nil: // no call runs in this process
		return m, nil
	case !slices.Contains(o.Servers, c.server) || o.CallTool == nil:
		return nil, fmt.Errorf("server: there is no MCP server %q here; declare it in a file of --tools", c.server)
	}
	return m, nil
}

// readMCPTool reads the fields of a hook that is a tool.
func (h *handlerConfig) readMCPTool(o strictjson.Object) (err error) {
	if h.event == PostToolBatch {
		return strictjson.Errorf(o.At("type"), "%s hooks run in a dispatcher, which has no MCP servers; use command or http",
			PostToolBatch)
	}
	if h.server, err = o.String("server"); err != nil {
		return err
	}
	if h.tool, err = o.String("tool"); err != nil {
		return err
	}
	if h.server == "" || h.tool == "" {
		return strictjson.Errorf(o.Path(), "server or tool is empty")
	}
	h.toolInput = json.RawMessage("{}")
	if !o.Given("input") {
		return nil
	}
	if o.Kind("input") != "object" {
		return strictjson.Errorf(o.At("input"), "want object, got %s", o.Kind("input"))
	}
	h.toolInput = bytes.Clone(o.Value("input"))
	for _, place := range eventPart.FindAllStringSubmatch(string(h.toolInput), -1) {
		if place[1] == "" {
			return strictjson.Errorf(o.At("input"), "${} names no part of the event")
		}
	}
	return nil
}

// run implements runner.
func (m *mcpTool) run(ctx context.Context, o *occasion) (answer, error) {
	input, err := fillIn(m.input, o.body)
	if err != nil {
		return answer{}, err
	}
	text, err := m.call(ctx, m.server, m.tool, input)
	switch {
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case err != nil:
		return answer{}, fmt.Errorf("the tool %q of the MCP server %q: %w", m.tool, m.server, err)
	case len(text) > MaxAnswerBytes:
		return answer{}, fmt.Errorf("the tool's answer has more than %d bytes", MaxAnswerBytes)
	}
	return fromExit(o.event, 0, text, "")
}

// fillIn puts parts of the event into the strings of an input. A part that the event does not have is an error: a tool
// that is to judge a call should not judge an empty text.
func fillIn(input, event json.RawMessage) (json.RawMessage, error) {
	var what, from any
	for _, d := range []struct {
		data json.RawMessage
		to   *any
	}{{input, &what}, {event, &from}} {
		dec := json.NewDecoder(bytes.NewReader(d.data))
		dec.UseNumber()
		if err := dec.Decode(d.to); err != nil {
			return nil, fmt.Errorf("read the tool's input or the event: %w", err)
		}
	}
	filled, err := fillValue(what, from)
	if err != nil {
		return nil, err
	}
	return schema.Encode(filled)
}

func fillValue(v, event any) (_ any, err error) {
	switch v := v.(type) {
	case string:
		var missing error
		text := eventPart.ReplaceAllStringFunc(v, func(place string) string {
			part, err := partOf(event, place[len("${"):len(place)-len("}")])
			missing = errors.Join(missing, err)
			return part
		})
		return text, missing
	case map[string]any:
		for name := range v {
			if v[name], err = fillValue(v[name], event); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = fillValue(v[i], event); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// partOf is a part of the event: a text as it is, and anything else as JSON.
func partOf(event any, path string) (string, error) {
	for name := range strings.SplitSeq(path, ".") {
		o, _ := event.(map[string]any) // of anything else there are no parts
		var ok bool
		if event, ok = o[name]; !ok {
			return "", fmt.Errorf("its input needs ${%s}, which the event does not have", path)
		}
	}
	if text, ok := event.(string); ok {
		return text, nil
	}
	text, err := schema.Encode(event)
	return string(text), err
}
