package lower

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// many returns n times a text, in which @ is the number.
func many(n int, text string) string {
	var out []string
	for i := range n {
		out = append(out, strings.ReplaceAll(text, "@", fmt.Sprint(i)))
	}
	return strings.Join(out, ",")
}

// allocated is how many bytes a function takes.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestWorkGrowsWithTheSchema: twice the fields, or definitions, take about twice the memory, which shows the work on
// any machine.
func TestWorkGrowsWithTheSchema(t *testing.T) {
	required := func(n int) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + many(n, `"f@":{"type":"string"}`) + `},"required":[` +
			many(n, `"f@"`) + `]}`)
	}
	recursive := func(n int) json.RawMessage {
		return json.RawMessage(`{"type":"object","properties":{` + many(n, `"f@":{"$ref":"#/$defs/t@"}`) +
			`},"additionalProperties":false,"$defs":{` + many(n, `"t@":{"type":"array","items":{"$ref":"#/$defs/t@"}}`) +
			`}}`)
	}
	for name, work := range map[string]func(n int){
		"nulls": func(n int) {
			raw, err := DropNulls(required(n), json.RawMessage(`{`+many(n, `"f@":null`)+`}`))
			if err != nil || len(raw) == 0 {
				t.Error(err)
			}
		},
		"required": func(n int) {
			if _, err := Lower(AnthropicStrict, required(n)); err != nil {
				t.Error(err)
			}
		},
		"recursive definitions": func(n int) {
			if _, err := Lower(OpenAIStrict, recursive(n)); err != nil {
				t.Error(err)
			}
		},
		"recursive definitions, inlined": func(n int) {
			if _, err := Lower(OpenAI, recursive(n)); err != nil {
				t.Error(err)
			}
		},
	} {
		once, twice := allocated(func() { work(500) }), allocated(func() { work(1_000) })
		if twice > 3*once {
			t.Errorf("%s: %d bytes, and %d for twice the size", name, once, twice)
		}
	}
}
