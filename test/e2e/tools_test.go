package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
	pool "github.com/toolyard/toolyard/worker"
)

// sentTool is what every provider's form of a tool has, wherever it stands there.
type sentTool struct {
	name   string
	schema map[string]any
	strict any
}

// sentTools reads what tools --format printed: exactly one line, the array.
func sentTools(t *testing.T, format, stdout string) (out []sentTool) {
	t.Helper()
	if strings.Count(stdout, "\n") != 1 || !strings.HasPrefix(stdout, "[") {
		t.Fatalf("%s is not one line with an array:\n%s", format, stdout)
	}
	var list []map[string]any
	decode(t, []byte(stdout), &list)
	if format == "gemini" {
		var declarations []map[string]any
		for _, d := range list[0]["functionDeclarations"].([]any) {
			declarations = append(declarations, d.(map[string]any))
		}
		list = declarations
	}
	key := map[string]string{"anthropic": "input_schema", "openai": "parameters", "openai-chat": "parameters", "gemini": "parametersJsonSchema", "mcp": "inputSchema"}[format]
	for _, d := range list {
		if f, ok := d["function"].(map[string]any); ok {
			d = f
		}
		schema, _ := d[key].(map[string]any)
		if schema["type"] != "object" {
			t.Errorf("%s: the schema of %v is %v", format, d["name"], schema)
		}
		out = append(out, sentTool{fmt.Sprint(d["name"]), schema, d["strict"]})
	}
	return out
}

func TestToolsForProviders(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	var surface struct{ Tools []struct{ Name string } }
	decode(t, []byte(p.ok(nil, "tools", "--json")), &surface)
	for _, format := range []string{"anthropic", "openai", "openai-chat", "gemini", "mcp"} {
		stdout, stderr, status := p.run(nil, nil, "tools", "--format", format)
		if status != 0 || stderr != "" {
			t.Fatalf("%s: status %d, %s", format, status, stderr)
		}
		if again := p.ok(nil, "tools", "--format", format); again != stdout {
			t.Errorf("%s: the second time it is\n%s\nnot\n%s", format, again, stdout)
		}
		sent := sentTools(t, format, stdout)
		if len(sent) != len(surface.Tools) {
			t.Errorf("%s: %d tools of %d", format, len(sent), len(surface.Tools))
		}
		for i, s := range sent {
			if s.name != surface.Tools[i].Name {
				t.Errorf("%s: tool %d is %s, want %s", format, i, s.name, surface.Tools[i].Name)
			}
			if wantsFalse := strings.HasPrefix(format, "openai"); wantsFalse && s.strict != false || !wantsFalse && s.strict != nil {
				t.Errorf("%s: %s has strict %v", format, s.name, s.strict)
			}
		}
		denied := p.ok(nil, "tools", "--format", format, "--deny", "bash")
		if list := sentTools(t, format, denied); len(list) != len(sent)-1 || list[0].name == "bash" {
			t.Errorf("%s with bash denied: %+v", format, list)
		}
	}
	stdout, stderr, status := p.run(nil, nil, "tools", "--format", "openai", "--strict", "--report")
	if status != 0 || !strings.Contains(stderr, "read_file: /properties/limit changed: it is optional") {
		t.Errorf("status %d, report:\n%s", status, stderr)
	}
	for _, s := range sentTools(t, "openai", stdout) {
		if fields := s.schema["properties"].(map[string]any); s.strict != true || s.schema["additionalProperties"] != false || len(s.schema["required"].([]any)) != len(fields) {
			t.Errorf("%s is not strict: %v %v", s.name, s.strict, s.schema)
		}
	}
	for _, wrong := range [][]string{{"--format", "native"}, {"--strict"}, {"--report"}, {"--format", "mcp", "--json"}, {"--lint", "--json"}} {
		if stdout, stderr, status := p.run(nil, nil, append([]string{"tools"}, wrong...)...); status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, %q, %q", wrong, status, stdout, stderr)
		}
	}
	if out := p.ok(nil, "tools", "--lint"); !strings.HasSuffix(out, "tools, 0 remarks\n") {
		t.Errorf("the built-in tools:\n%s", out)
	}
}

// TestToolsOfARunningSystem: what the workers of a system offer, with names and schemas that some provider does not take.
func TestToolsOfARunningSystem(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	nc, err := nats.Connect(d.says["nats"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	made := func(name, schema string) tool.Tool {
		return tool.Tool{
			Declaration: tool.Declaration{Name: name, Description: "Counts.", InputSchema: json.RawMessage(schema), Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
			Run:         func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil },
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- pool.Run(ctx, nc, pool.Options{Pool: "own", Ready: func(id string) { ready <- id }, Tools: []tool.Tool{
			made("count.words", `{"type":"object","properties":{"text":{"type":"string"}}}`),
			made("count_lines", `{"type":"object","allOf":[{"properties":{"text":{"type":"string"}},"required":["text"]}]}`),
			made("count_pages", `{"type":"object","properties":{"filter[id]":{"type":"string"}},"required":["filter[id]"]}`),
		}})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); <-ended })
	p := newPlace(t, nil)
	names := func(format string, args ...string) (list []string, stderr string) {
		stdout, stderr, status := p.run(nil, nil, append([]string{"tools", "--nats", d.says["nats"], "--format", format}, args...)...)
		if status != 0 {
			t.Fatalf("%s: status %d: %s", format, status, stderr)
		}
		for _, s := range sentTools(t, format, stdout) {
			list = append(list, s.name)
			if _, composed := s.schema["allOf"]; composed && format != "mcp" {
				t.Errorf("%s: %s keeps allOf at the root", format, s.name)
			}
		}
		return list, stderr
	}
	for format, want := range map[string][]string{
		"anthropic": {"count_words", "count_lines"}, "openai": {"count_words", "count_lines", "count_pages"}, "mcp": {"count.words", "count_lines", "count_pages"},
	} {
		got, stderr := names(format)
		if !slices.Equal(got, want) {
			t.Errorf("%s gets %q, want %q", format, got, want)
		}
		// Nobody has to ask to be told that a tool is not there.
		if left := strings.Contains(stderr, "count_pages: left out: "); left != (format == "anthropic") || left && !bytes.Contains([]byte(stderr), []byte(`"filter[id]"`)) {
			t.Errorf("%s: %q", format, stderr)
		}
	}
	if got, _ := names("openai", "--deny", "count.words"); !slices.Equal(got, []string{"count_lines", "count_pages"}) {
		t.Errorf("with count.words denied: %q", got)
	}
	if out := p.ok(nil, "tools", "--nats", d.says["nats"], "--lint"); !strings.Contains(out, `count.words: the name "count.words" is not one that every provider takes`) ||
		!strings.Contains(out, `count.words: the field "text" has no description`) {
		t.Errorf("remarks:\n%s", out)
	}
}
