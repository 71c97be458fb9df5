package provider

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

const (
	nativeDoc    = `{"calls":[{"tool":"grep"}]}`
	anthropicDoc = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"grep","input":{}}]}`
	openaiDoc    = `[{"type":"function_call","call_id":"a","name":"grep","arguments":"{}"}]`
	chatDoc      = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"grep","arguments":"{}"}}]}`
	geminiDoc    = `{"role":"model","parts":[{"functionCall":{"name":"grep","args":{}}}]}`
)

func TestDecodeRecognises(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Format
	}{
		{nativeDoc, Native},
		{anthropicDoc, Anthropic},
		{`{"type":"message","id":"msg_1",` + anthropicDoc[1:], Anthropic},
		{openaiDoc, OpenAI},
		{`[{"type":"reasoning"},` + openaiDoc[1:], OpenAI},
		{`{"object":"response","output":` + openaiDoc + `}`, OpenAI},
		{`{"output":` + openaiDoc + `}`, OpenAI},
		{chatDoc, OpenAIChat},
		{strings.Replace(chatDoc, "null", `[{"type":"text","text":"so"}]`, 1), OpenAIChat},
		{`{"object":"chat.completion","choices":[{"message":` + chatDoc + `}]}`, OpenAIChat},
		{`{"choices":[{"message":` + chatDoc + `}]}`, OpenAIChat},
		{geminiDoc, Gemini},
		{strings.Replace(geminiDoc, `"role":"model",`, "", 1), Gemini},
		{`{"candidates":[{"content":` + geminiDoc + `}],"modelVersion":"x"}`, Gemini},
	} {
		for _, force := range []Format{"", tt.want} {
			batch, got, err := Decode([]byte(tt.text), force)
			if err != nil || got != tt.want {
				t.Errorf("Decode(%s, %q): %q, %v; want %q", tt.text, force, got, err, tt.want)
				continue
			}
			if len(batch.Calls) != 1 || batch.Calls[0].Tool != "grep" {
				t.Errorf("Decode(%s, %q): %+v", tt.text, force, batch)
			}
			batch.Normalize("b")
			if err := batch.Validate(); err != nil {
				t.Errorf("Decode(%s, %q) gives an invalid batch: %v", tt.text, force, err)
			}
		}
	}
}

const forms = `want a native batch {"calls": [...]}, an Anthropic message {"role": "assistant", "content": [...]}, ` +
	`an OpenAI Responses output [{"type": "function_call", ...}] or response {"output": [...]}, ` +
	`an OpenAI Chat Completions message {"tool_calls": [...]} or completion {"choices": [...]}, ` +
	`a Gemini content {"parts": [...]} or response {"candidates": [...]}; ` +
	`force one with --input-format native|anthropic|openai|openai-chat|gemini`

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		force      Format
		want       string
	}{
		{"empty", "", "", `the input is empty; hand in one JSON document`},
		{"empty, forced", "\n", Gemini, `the input is empty; hand in one JSON document`},
		{"not JSON", "{\n  \"calls\": [}\n", "",
			`the input is not JSON at line 2, column 13: want a value or ']', got '}', near "{\n  \"calls\": [}\n"`},
		{"two values", nativeDoc + "\n" + nativeDoc, "",
			`the input goes on after its JSON value at line 2, column 1, near ..."lls\":[{\"tool\":\"grep\"}]}\n{\"calls\":[{\"tool\":\"grep\""...; hand in one JSON document`},
		{"not UTF-8", "{\"calls\xc3\x28\":[]}", "", `the input is not valid UTF-8 at byte 7 (0xc3); JSON is UTF-8`},
		{"10,000 levels", strings.Repeat("[", 10_000), "",
			`the input nests deeper than 512 levels of objects and arrays at line 1, column 513`},
		{"1,000,000 levels", `{"calls":[{"tool":"t","echo":` +
			strings.Repeat(`{"a":`, 1_000_000), "",
			`the input nests deeper than 512 levels of objects and arrays at line 1, column 2575`},
		{"duplicate key", `{"calls":[{"tool":"read_file","echo":{"file_path":"a","file_path":"b"}}]}`, "",
			`calls[0].echo.file_path: appears twice in its object, the second time at line 1, column 55; keep one`},

		{"scalar", `"hello"`, "", `the input is a string, which is no form known here; ` + forms},
		{"other object", `{"b":1,"a\u001b":2}`, "",
			`the input is an object with the fields "a\x1b", "b", which is no form known here; ` + forms},
		{"empty object", `{}`, "", `the input is an object with no fields, which is no form known here; ` + forms},
		{"many fields", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, "",
			`the input is an object with the fields "a", "b", "c", "d", "e", "f", ..., which is no form known here; ` +
				forms},
		{"empty array", `[]`, "", `the input is an array of other things, which is no form known here; ` + forms},
		{"array of blocks", `[{"type":"tool_use"}]`, "",
			`the input is an array of other things, which is no form known here; ` + forms},
		{"an API's error", `{"type":"error","error":{"type":"overloaded_error"}}`, "",
			`the input is an object with the fields "error", "type", which is no form known here; ` + forms},
		{"two forms", `{"choices":[],"candidates":[]}`, "",
			`the input could be openai-chat or gemini; say which with --input-format native|anthropic|openai|openai-chat|gemini`},
		{"unknown format", nativeDoc, "yaml",
			`"yaml" is not a format; use one of native, anthropic, openai, openai-chat, gemini`},

		{"no calls, native", `{"calls":[]}`, "", `calls: has no calls; a batch needs at least one`},
		{"no calls, forced native", `{"agent":"a"}`, Native, `calls: has no calls; a batch needs at least one`},
		{"no calls, anthropic", `{"role":"assistant","content":[{"type":"text","text":"hi"}]}`, "",
			`the input has no calls: as anthropic it has no tool_use block, so there is nothing to run`},
		{"no calls, openai", `[{"type":"message"}]`, "",
			`the input has no calls: as openai it has no function_call item without an output, so there is nothing to run`},
		{"no calls, chat", `{"role":"assistant","content":"hi"}`, "",
			`the input has no calls: as openai-chat it has no tool_calls, so there is nothing to run`},
		{"no calls, gemini", `{"candidates":[]}`, "",
			`the input has no calls: as gemini it has no functionCall part, so there is nothing to run`},

		{"forced format's errors", nativeDoc, Anthropic, `content: want array, got nothing`},
		{"forced native", anthropicDoc, Native,
			`content: is not a field of a batch; the fields are id, agent, session, workspace, interactive, open, calls, options`},
		{"wrong type", `{"calls":[{"tool":"a"},{"tool":"a"},{"tool":7}]}`, "",
			`calls[2].tool: want string, got number`},
		{"unknown field", `{"calls":[{"tool":"a"}],"options":{"partion":"sequential"}}`, "",
			`options.partion: is not a field of options; did you mean "partition"?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Decode([]byte(tt.text), tt.force)
			e, ok := errors.AsType[*toolyard.InputError](err)
			if !ok {
				t.Fatalf("want an InputError, got %T: %v", err, err)
			}
			if e.TooLarge {
				t.Error("TooLarge is set")
			}
			if err.Error() != tt.want {
				t.Errorf("\n got %s\nwant %s", err, tt.want)
			}
		})
	}
}

// TestDecodeLeavesInCalls: what a model wrote wrong in a call stays in that call, as text that no tool takes.
func TestDecodeLeavesInCalls(t *testing.T) {
	deep := strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)
	for name, c := range map[string]struct{ text, tool, input string }{
		"a key twice, native":    {`{"calls":[{"tool":"t","input":{"a":1,"a":2}}]}`, "t", `"{\"a\":1,\"a\":2}"`},
		"a key twice, anthropic": {`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{"a":1,"a":2}}]}`, "t", `"{\"a\":1,\"a\":2}"`},
		"a key twice, gemini": {`{"parts":[{"functionCall":{"name":"t","args":{"a":1,"a":2}}}]}`, "t",
			`"{\"a\":1,\"a\":2}"`},
		"a million levels, native": {`{"calls":[{"tool":"t","input":` + deep + `}]}`, "t", `"` + deep + `"`},
		"a million levels, gemini": {`{"parts":[{"functionCall":{"name":"t","args":` + deep + `}}]}`, "t", `"` + deep +
			`"`},
		"no name, anthropic": {`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"","input":{}}]}`, "",
			`{}`},
		"no name, openai": {`[{"type":"function_call","call_id":"a","name":"","arguments":"{}"}]`, "", `{}`},
		"no name, chat":   {`{"tool_calls":[{"id":"a","function":{"name":"","arguments":"{}"}}]}`, "", `{}`},
		"no name, gemini": {`{"parts":[{"functionCall":{"name":"","args":{}}}]}`, "", `{}`},
		"no input, anthropic": {`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t"}]}`, "t",
			`""`},
		"no arguments, openai": {`[{"type":"function_call","call_id":"a","name":"t"}]`, "t", `""`},
		"an object, openai": {`[{"type":"function_call","call_id":"a","name":"t","arguments":{"a":1}}]`, "t",
			`{"a":1}`},
		"no input, custom":   {`[{"type":"custom_tool_call","call_id":"a","name":"t"}]`, "t", `""`},
		"no arguments, chat": {`{"tool_calls":[{"id":"a","function":{"name":"t"}}]}`, "t", `""`},
		"an object, chat": {`{"tool_calls":[{"id":"a","function":{"name":"t","arguments":{"a":1}}}]}`, "t",
			`{"a":1}`},
		"another type, chat": {`{"tool_calls":[{"id":"a","type":"builtin_function","function":{"name":"$web_search","arguments":"{}"}}]}`, "$web_search", `{}`},
	} {
		b, _, err := Decode([]byte(c.text), "")
		if err != nil || len(b.Calls) != 1 || b.Calls[0].Tool != c.tool || string(b.Calls[0].Input) != c.input {
			t.Errorf("%s: %.300s, %v", name, b.Calls, err)
		}
	}
}

func TestDecodeTooLarge(t *testing.T) {
	data := append([]byte(nativeDoc), bytes.Repeat([]byte("\n"), toolyard.MaxBatchBytes)...)
	_, _, err := Decode(data, "")
	e, ok := errors.AsType[*toolyard.InputError](err)
	if want := "the input is 16777243 bytes; at most 16777216 are allowed in a batch"; !ok || !e.TooLarge ||
		e.Error() != want {
		t.Errorf("got %#v, want %s", err, want)
	}
	if _, _, err := Decode(data[:toolyard.MaxBatchBytes], ""); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

// Decode keeps nothing of what it was given: a caller may use its buffer again.
func TestDecodeKeepsNoData(t *testing.T) {
	for _, text := range []string{
		`{"calls":[{"id":"a","tool":"grep","input":{"p":"x"}}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"grep","input":{"p":"x"}}]}`,
		`[{"type":"function_call","call_id":"a","name":"grep","arguments":"{\"p\":\"x\"}"}]`,
		`{"tool_calls":[{"id":"a","type":"function","function":{"name":"grep","arguments":"{\"p\":\"x\"}"}}]}`,
		`{"parts":[{"functionCall":{"id":"a","name":"grep","args":{"p":"x"}}}]}`,
	} {
		data := []byte(text)
		batch, _, err := Decode(data, "")
		if err != nil {
			t.Fatal(err)
		}
		clear(data)
		if c := batch.Calls[0]; c.ID != "a" || c.Tool != "grep" || string(c.Input) != `{"p":"x"}` {
			t.Errorf("%s: %+v", text, c)
		}
	}
}

func TestParseFormat(t *testing.T) {
	for _, f := range append([]Format{""}, Formats...) {
		if got, err := ParseFormat(string(f)); err != nil || got != f {
			t.Errorf("%q: %q, %v", f, got, err)
		}
	}
	_, err := ParseFormat("Anthropic")
	if _, ok := errors.AsType[*toolyard.InputError](err); !ok ||
		err.Error() != `"Anthropic" is not a format; use one of native, anthropic, openai, openai-chat, gemini` {
		t.Errorf("got %v", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(`{"role":"assistant","content":[` +
		strings.Repeat(`{"type":"tool_use","id":"toolu_01A09q90qw90lq917835lq9","name":"read_file","input":{"file_path":"README.md","limit":30}},`, 9) +
		`{"type":"text","text":"so"}]}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(data, ""); err != nil {
			b.Fatal(err)
		}
	}
}
