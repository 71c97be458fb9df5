package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/google/go-cmp/cmp"
	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// sdkTool is a definition as a provider's own SDK reads it.
type sdkTool struct {
	Name, Description string
	Schema            json.RawMessage
	Strict, Deferred  bool
}

// sdkTools reads what [Tools] wrote with the types of the provider's SDK, those of a request; MCP's also adds them to a
// server.
func sdkTools(t *testing.T, format provider.Format, data []byte) (tools []sdkTool) {
	t.Helper()
	raw := func(v any) json.RawMessage {
		b := must.JSON(t, v)
		return b
	}
	var err error
	switch format {
	case provider.Anthropic:
		var list []anthropicsdk.ToolUnionParam
		err = json.Unmarshal(data, &list)
		for _, u := range list {
			d := u.OfTool
			tools = append(tools, sdkTool{d.Name, d.Description.Value, raw(d.InputSchema), d.Strict.Value,
				d.DeferLoading.Value})
		}
	case provider.OpenAI:
		var list []responses.ToolUnionParam
		err = json.Unmarshal(data, &list)
		for _, u := range list {
			d := u.OfFunction
			if !d.Strict.Valid() {
				t.Errorf("%s says nothing of strict", d.Name)
			}
			tools = append(tools, sdkTool{d.Name, d.Description.Value, raw(d.Parameters), d.Strict.Value,
				d.DeferLoading.Value})
		}
	case provider.OpenAIChat:
		var list []openaisdk.ChatCompletionToolUnionParam
		err = json.Unmarshal(data, &list)
		for _, u := range list {
			d := u.OfFunction.Function
			tools = append(tools, sdkTool{d.Name, d.Description.Value, raw(d.Parameters), d.Strict.Value, false})
		}
	case provider.Gemini:
		var list []*genai.Tool
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		err = strict.Decode(&list)
		for _, u := range list {
			for _, d := range u.FunctionDeclarations {
				tools = append(tools, sdkTool{d.Name, d.Description, raw(d.ParametersJsonSchema), false, false})
			}
		}
	case provider.MCP:
		var list []*mcpsdk.Tool
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		err = strict.Decode(&list)
		server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "test"}, nil)
		for _, d := range list {
			server.AddTool(d, nil) // panics for a schema that is not of an object
			if d.Annotations == nil || d.Annotations.DestructiveHint == nil || d.Annotations.OpenWorldHint == nil {
				t.Errorf("%s has the annotations %+v", d.Name, d.Annotations)
			}
			tools = append(tools, sdkTool{d.Name, d.Description, raw(d.InputSchema), false, false})
		}
	}
	if err != nil {
		t.Fatalf("%s: the SDK does not read %s: %v", format, data, err)
	}
	return tools
}

func declare(name, schema string) tool.Declaration {
	return tool.Declaration{Name: name, Description: "does <what> & its name says",
		InputSchema: json.RawMessage(schema)}
}

// write sends tools out as a surface would.
func write(t *testing.T, format provider.Format, tools []tool.Declaration, opts provider.ToolOptions) (data []byte,
	notes []string) {
	t.Helper()
	rule, err := provider.ToolNames(format)
	must.OK(t, err)
	var names []string
	for _, d := range tools {
		names = append(names, d.Name)
	}
	opts.Names = toolname.NewTable(rule, names, nil)
	data, list, err := provider.Tools(format, tools, opts)
	if err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	for _, n := range list {
		notes = append(notes, n.String())
	}
	return data, notes
}

const fileSchema = `{"type":"object","properties":{"path":{"type":"string","description":"<where>"},"depth":{"$ref":"#/$defs/n"}},"required":["path"],"additionalProperties":false,
	"$defs":{"n":{"type":"integer","minimum":1}},"title":"File","examples":[{"path":"a"}]}`

func TestToolsAreReadBySDKs(t *testing.T) {
	tools := []tool.Declaration{declare("fs.read", fileSchema), declare("plain", `{"type":"object"}`),
		declare("deferred", `{"type":"object","properties":{"a":{"type":"string"}}}`)}
	tools[2].ShouldDefer = true
	for _, format := range provider.ToolFormats {
		for _, strict := range []bool{false, true} {
			data, _ := write(t, format, tools, provider.ToolOptions{Strict: strict})
			for range 20 {
				if again, _ := write(t, format, tools, provider.ToolOptions{Strict: strict}); !bytes.Equal(again,
					data) {
					t.Fatalf("%s, strict %t: not the same twice:\n%s\n%s", format, strict, data, again)
				}
			}
			got := sdkTools(t, format, data)
			want := []string{"fs_read", "plain", "deferred"}
			if format == provider.Gemini || format == provider.MCP {
				want[0] = "fs.read"
			}
			if format == provider.Gemini || format == provider.OpenAIChat {
				want = want[:2]
			}
			var names []string
			for i, d := range got {
				names = append(names, d.Name)
				if d.Description != tools[i].Description {
					t.Errorf("%s: %s is described as %q", format, d.Name, d.Description)
				}
				if wantStrict := strict && format != provider.Gemini && format != provider.MCP; d.Strict != wantStrict {
					t.Errorf("%s, strict %t: %s is strict: %t", format, strict, d.Name, d.Strict)
				}
				if i == 2 && format != provider.MCP && !d.Deferred {
					t.Errorf("%s: the deferred tool is not", format)
				}
				s, err := schema.CompileOutput(d.Schema)
				if err != nil {
					t.Fatalf("%s: %s: %v", format, d.Schema, err)
				}
				input := `{"path":"a","depth":3}`
				if d.Strict && i > 0 {
					continue // a closed object without these fields
				}
				if err := s.Validate(json.RawMessage(input)); err != nil {
					t.Errorf("%s, strict %t: %s refuses %s: %v", format, strict, d.Schema, input, err)
				}
			}
			if d := cmp.Diff(want, names); d != "" {
				t.Errorf("%s (-want +got):\n%s", format, d)
			}
			if s := string(got[0].Schema); strings.Contains(s, "$ref") != (format == provider.MCP) ||
				strings.Contains(s, "$defs") != (format == provider.MCP) {
				t.Errorf("%s: references go to those whose documents take them, and to no other: %s", format, s)
			}
		}
	}
}

func TestToolNotes(t *testing.T) {
	tools := []tool.Declaration{
		declare("fs.read", fileSchema), declare("scalar", `{"type":"string"}`),
		declare("anything", `{"type":"object","properties":{"x":{}}}`),
		declare("brackets", `{"type":"object","properties":{"filter[id]":{"type":"string"}}}`),
		declare("needs-brackets",
			`{"type":"object","properties":{"filter[id]":{"type":"string"}},"required":["filter[id]"]}`),
		declare("later", `{"type":"object"}`),
	}
	tools[5].ShouldDefer = true
	tools[0].OutputSchema = json.RawMessage(`{"type":"string"}`)
	for format, want := range map[provider.Format][]string{
		provider.Anthropic: {
			`fs.read: name changed: the provider gets it as "fs_read"`,
			`scalar: left out: lowering a schema: want a schema of an object, got one of string`,
			`anything: strict dropped: /properties/x: it accepts values of any type, which a strict form cannot say`,
			`brackets: strict dropped: the schema: it takes fields that it does not name`,
			`brackets: /properties/filter[id] dropped: the provider takes names of 1 to 64 letters, digits and "_.-" alone`,
			`needs-brackets: left out: lowering a schema: it requires the field "filter[id]"`,
		},
		provider.OpenAIChat: {
			`fs.read: name changed`, `scalar: left out`, `anything: strict dropped`,
			`later: left out: it is deferred and not loaded`,
		},
		provider.Gemini: {`fs.read: strict dropped: the provider has no strict tools`, `scalar: left out`,
			`fs.read: examples moved to the description`},
		provider.MCP: {`scalar: left out`, `fs.read: outputSchema dropped`},
	} {
		data, notes := write(t, format, tools, provider.ToolOptions{Strict: true})
		for _, w := range want {
			if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, w) }) {
				t.Errorf("%s: no note %q in\n%s", format, w, strings.Join(notes, "\n"))
			}
		}
		for _, d := range sdkTools(t, format, data) {
			if d.Name == "scalar" || format == provider.Anthropic && d.Name == "needs-brackets" {
				t.Errorf("%s: %s is sent", format, d.Name)
			}
		}
	}
	data, _ := write(t, provider.OpenAIChat, tools, provider.ToolOptions{Loaded: map[string]bool{"later": true}})
	if got := sdkTools(t, provider.OpenAIChat, data); got[len(got)-1].Name != "later" {
		t.Errorf("a loaded tool is not sent: %+v", got)
	}
}

// TestALoadKeepsTheBytes: where a definition has a place for deferral, the search's output tells the model of a tool,
// and the request's tools stay what they were to the byte; elsewhere the tool joins them.
func TestALoadKeepsTheBytes(t *testing.T) {
	later := declare("later", `{"type":"object"}`)
	later.ShouldDefer = true
	tools := []tool.Declaration{later, declare("now", `{"type":"object"}`), declare("tool_search", `{"type":"object"}`)}
	for format, stays := range map[provider.Format]bool{provider.Anthropic: true, provider.OpenAI: true,
		provider.MCP: true, provider.OpenAIChat: false,
		provider.Gemini: false} {
		before, _ := write(t, format, tools, provider.ToolOptions{})
		after, _ := write(t, format, tools, provider.ToolOptions{Loaded: map[string]bool{"later": true}})
		if string(before) == string(after) != stays {
			t.Errorf("%s: the bytes stay: %t, want %t\n%s\n%s", format, !stays, stays, before, after)
		}
	}
}

func TestLimitsOfTools(t *testing.T) {
	for format, most := range map[provider.Format]int{provider.OpenAI: 128, provider.OpenAIChat: 128,
		provider.Gemini: 512, provider.Anthropic: 0, provider.MCP: 0} {
		var tools []tool.Declaration
		for i := range 600 {
			tools = append(tools, declare(fmt.Sprintf("t%d", i), `{"type":"object"}`))
		}
		if most == 0 {
			if data, _ := write(t, format, tools, provider.ToolOptions{}); len(sdkTools(t, format,
				data)) != len(tools) {
				t.Errorf("%s does not get all", format)
			}
			continue
		}
		if data, _ := write(t, format, tools[:most], provider.ToolOptions{}); len(sdkTools(t, format, data)) != most {
			t.Errorf("%s does not get %d tools", format, most)
		}
		_, _, err := provider.Tools(format, tools[:most+1], provider.ToolOptions{})
		if wrong, ok := errors.AsType[*toolyard.InputError](err); !ok || !wrong.TooLarge ||
			!strings.Contains(err.Error(), fmt.Sprint(most)) {
			t.Errorf("%s takes %d tools: %v", format, most+1, err)
		}
	}
	// Anthropic's budgets of strict tools: of tools, of optional fields, of fields of several types.
	for name, c := range map[string]struct {
		schema string
		strict int
	}{
		"tools":     {`{"type":"object"}`, anthropic.MaxStrictTools},
		"optionals": {`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string"}}}`, anthropic.MaxStrictOptionals / 3},
		"unions":    {`{"type":"object","properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"required":["a","b"]}`, anthropic.MaxStrictUnions / 2},
	} {
		var tools []tool.Declaration
		for i := range 30 {
			tools = append(tools, declare(fmt.Sprintf("t%d", i), c.schema))
		}
		data, notes := write(t, provider.Anthropic, tools, provider.ToolOptions{Strict: true})
		strict := 0
		for i, d := range sdkTools(t, provider.Anthropic, data) {
			if d.Strict != (i < c.strict) {
				t.Errorf("%s: tool %d is strict: %t", name, i, d.Strict)
			}
			if d.Strict {
				strict++
			}
		}
		if strict != c.strict || len(notes) != len(tools)-c.strict {
			t.Errorf("%s: %d of %d are strict, want %d; %d notes", name, strict, len(tools), c.strict, len(notes))
		}
	}
	if _, _, err := provider.Tools(provider.Native, nil, provider.ToolOptions{}); err == nil ||
		!strings.Contains(err.Error(), "anthropic, openai, openai-chat, gemini, mcp") {
		t.Errorf("native tools: %v", err)
	}
	for _, format := range provider.ToolFormats {
		if data, _ := write(t, format, nil, provider.ToolOptions{}); string(data) != "[]" {
			t.Errorf("%s without tools: %s", format, data)
		}
	}
}

func TestHints(t *testing.T) {
	yes, no := true, false
	read := tool.ClassRule{Static: toolyard.ReadOnly}
	for name, c := range map[string]struct {
		d    tool.Declaration
		want string
	}{
		"nothing declared": {tool.Declaration{},
			`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`},
		"reads files": {tool.Declaration{Class: read, ReadOnly: true, Specifier: tool.Specifier{Path: "p"}},
			`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		"reads the web": {tool.Declaration{Class: read, ReadOnly: true, Specifier: tool.Specifier{URL: "u"}},
			`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}`},
		"edits files": {tool.Declaration{Class: tool.ClassRule{Static: toolyard.WriteExclusive}, EditsWorkspace: true,
			Destructive: &no, Idempotent: &yes, Specifier: tool.Specifier{Path: "p"}},
			`{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		"judged by its command": {tool.Declaration{Class: tool.ClassRule{Shell: "c"}, ReadOnly: true},
			`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`},
	} {
		c.d.Name, c.d.InputSchema = "t", json.RawMessage(`{"type":"object"}`)
		data, _ := write(t, provider.MCP, []tool.Declaration{c.d}, provider.ToolOptions{})
		if !strings.Contains(string(data), `"annotations":`+c.want) {
			t.Errorf("%s: %s", name, data)
		}
	}
}
