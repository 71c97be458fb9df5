package native

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestDecode(t *testing.T) {
	got, err := Decode([]byte(`{
		"id": "b-1", "agent": "a", "session": "s", "workspace": "w", "interactive": true,
		"calls": [
			{"id": "1", "tool": "read_file", "input": { "file_path": "x", "n": 1.50 }},
			{"tool": "t"},
			{"id": null, "tool": "t", "input": null},
			{"tool": "t", "input": " {\"a\": 1}\n"},
			{"tool": "t", "input": "{\"a\": "},
			{"tool": "t", "input": "[1]"},
			{"tool": "t", "input": "{\"a\":1,\"a\":2}"},
			{"tool": "t", "input": ""},
			{"tool": "t", "input": [1]},
			{"tool": "t", "input": {}, "echo": {"namespace": "n"}}
		],
		"options": {"partition": "sequential", "max_concurrency": 3, "on_error": "continue", "timeout_ms": 9223372036854775807,
			"call_timeout_ms": 5, "deny": ["bash"], "ask": ["a", "b"], "tags": ["gpu", "region=eu"], "priority": "bulk"}
	}`))
	must.OK(t, err)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	want := toolyard.Batch{
		ID: "b-1", Agent: "a", Session: "s", Workspace: "w", Interactive: true,
		Calls: []toolyard.Call{
			{ID: "1", Tool: "read_file", Input: raw(`{ "file_path": "x", "n": 1.50 }`)},
			{Tool: "t"},
			{Tool: "t", Input: raw(`null`)},
			{Tool: "t", Input: raw(`{"a": 1}`)},
			{Tool: "t", Input: raw(`"{\"a\": "`)},
			{Tool: "t", Input: raw(`"[1]"`)},
			{Tool: "t", Input: raw(`"{\"a\":1,\"a\":2}"`)},
			{Tool: "t", Input: raw(`""`)},
			{Tool: "t", Input: raw(`[1]`)},
			{Tool: "t", Input: raw(`{}`), Echo: raw(`{"namespace": "n"}`)},
		},
		Options: toolyard.Options{Partition: toolyard.Sequential, MaxConcurrency: 3, OnError: toolyard.Continue,
			TimeoutMS: 1<<63 - 1, CallTimeoutMS: 5, Deny: []string{"bash"}, Ask: []string{"a", "b"},
			Tags: []toolyard.Tag{"gpu", "region=eu"}, Priority: toolyard.Bulk},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestDecodeNullsAndNothing(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"id":null,"agent":null,"session":null,"workspace":null,"interactive":null,"calls":null,"options":null}`,
		`{"options":{"partition":null,"max_concurrency":null,"on_error":null,"timeout_ms":null,"call_timeout_ms":null,"deny":null,"ask":null}}`,
	} {
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, toolyard.Batch{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`[]`, `the input should be one JSON object, and is array`},
		{`{"id":1}`, `id: want string, got number`},
		{`{"agent":{}}`, `agent: want string, got object`},
		{`{"interactive":"yes"}`, `interactive: want boolean, got string`},
		{`{"calls":{}}`, `calls: want array, got object`},
		{`{"calls":[{"tool":"a"},7]}`, `calls[1]: want object, got number`},
		{`{"calls":[{"tool":"a"},{"tool":"a"},{"tool":7}]}`, `calls[2].tool: want string, got number`},
		{`{"calls":[{"id":"a"}]}`, `calls[0].tool: want string, got nothing`},
		{`{"calls":[{"tool":null}]}`, `calls[0].tool: want string, got null`},
		{`{"calls":[{"id":true,"tool":"a"}]}`, `calls[0].id: want string, got boolean`},
		{`{"calls":[{"tool":"a","echo":[]}]}`,
			`calls[0].echo: is no JSON object; give the provider's fields as they came, or leave it out`},
		{`{"calls":[{"tool":"a","echo":{"x":"` + strings.Repeat("x", toolyard.MaxEchoBytes) +
			`"}}]}`, `calls[0].echo: has 16392 bytes; at most 16384 are allowed`},
		{`{"options":[]}`, `options: want object, got array`},
		{`{"options":{"partition":1}}`, `options.partition: want string, got number`},
		{`{"options":{"max_concurrency":"10"}}`, `options.max_concurrency: want a whole number, got string`},
		{`{"options":{"max_concurrency":1.5}}`,
			`options.max_concurrency: want a whole number of at most 64 bits, got 1.5`},
		{`{"options":{"timeout_ms":1e3}}`, `options.timeout_ms: want a whole number of at most 64 bits, got 1e3`},
		{`{"options":{"timeout_ms":9223372036854775808}}`,
			`options.timeout_ms: want a whole number of at most 64 bits, got 9223372036854775808`},
		{`{"options":{"deny":"bash"}}`, `options.deny: want array, got string`},
		{`{"options":{"ask":["bash",1]}}`, `options.ask[1]: want string, got number`},

		{`{"call":[]}`, `call: is not a field of a batch; did you mean "calls"?`},
		{`{"Calls":[]}`, `Calls: is not a field of a batch; did you mean "calls"?`},
		{`{"batch_id":"x"}`, `batch_id: is not a field of a batch; did you mean "id"?`},
		{`{"colour":"red"}`,
			`colour: is not a field of a batch; the fields are id, agent, session, workspace, interactive, open, calls, options`},
		{`{"calls":[{"tol":"a"}]}`, `calls[0].tol: is not a field of a call; did you mean "tool"?`},
		{`{"calls":[{"tool":"a","Tool":"b"}]}`, `calls[0].Tool: is not a field of a call; did you mean "tool"?`},
		{`{"calls":[{"name":"a"}]}`, `calls[0].name: is not a field of a call; did you mean "tool"?`},
		{`{"calls":[{"tool":"a","arguments":{}}]}`,
			`calls[0].arguments: is not a field of a call; did you mean "input"?`},
		{`{"calls":[{"tool":"a","x":1}]}`,
			`calls[0].x: is not a field of a call; the fields are id, tool, input, echo, incomplete`},
		{`{"options":{"maxConcurrency":1}}`,
			`options.maxConcurrency: is not a field of options; did you mean "max_concurrency"?`},
		{`{"options":{"timeout":1}}`, `options.timeout: is not a field of options; did you mean "timeout_ms"?`},
		{`{"options":{"allow":[]}}`,
			`options.allow: is not a field of options; the fields are partition, max_concurrency, on_error, timeout_ms, call_timeout_ms, deny, ask, supersede, repair, dry_run, snapshot, overlay, undo, named_locks, background_after_ms, tags, priority, fence, program_timeout_ms, parent`},
		{`{"\u001b[2J":1}`,
			`["\x1b[2J"]: is not a field of a batch; the fields are id, agent, session, workspace, interactive, open, calls, options`},
		{`{"` + strings.Repeat("calls", 100_000) + `":1}`,
			`["callscallscallscallscallscallscallscallscallscal"...]: is not a field of a batch; the fields are id, agent, session, workspace, interactive, open, calls, options`},
	} {
		_, err := Decode([]byte(tt.text))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
			t.Errorf("%.80s: want an InputError, got %v", tt.text, err)
			continue
		}
		if err.Error() != tt.want {
			t.Errorf("%.80s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// The fields known here are those of the vocabulary: a new one there must be read here.
func TestFieldsAreThoseOfTheVocabulary(t *testing.T) {
	for _, tt := range []struct {
		of    any
		names []string
	}{{toolyard.Batch{}, batchFields}, {toolyard.Call{}, callFields}, {toolyard.Options{}, optionFields}} {
		typ := reflect.TypeOf(tt.of)
		var want []string
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want = append(want, name)
		}
		if !reflect.DeepEqual(tt.names, want) {
			t.Errorf("%v: known are %q, the vocabulary has %q", typ, tt.names, want)
		}
	}
}

func TestRender(t *testing.T) {
	results := []toolyard.Result{{Index: 0, CallID: "1", Tool: "grep", Output: "a < b && c", Phases: []toolyard.Fact{}}}
	got, err := Render(results)
	must.OK(t, err)
	if !strings.HasPrefix(string(got), "[\n  {\n    \"index\": 0,\n    \"call_id\": \"1\"") ||
		!strings.Contains(string(got), "a < b && c") {
		t.Errorf("got %s", got)
	}
	var back []toolyard.Result
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, results) {
		t.Errorf("got back %+v, %v", back, err)
	}
	if got, err := Render(nil); err != nil || string(got) != "[]" {
		t.Errorf("no results: %s, %v", got, err)
	}
}
