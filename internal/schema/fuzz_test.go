package schema

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

func run[In any](context.Context, tool.Env, In) (string, error) { return "", nil }

// FuzzValidate: any schema and any input end in an answer, the same one each time, and closing never accepts what the
// schema as written refuses.
func FuzzValidate(f *testing.F) {
	f.Add(readFile, `{"file_path":5,"x":[1,{"a":null}]}`)
	f.Add(`{"type":"object","oneOf":[{"properties":{"a":{}}},{"$ref":"#/$defs/x"}],"$defs":{"x":{"allOf":[{"$ref":"#"}]}}}`, `{"a":1}`)
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, `{"a":1}`)
	f.Add(`{"type":"object","oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"a":1}`)
	f.Add(`{"type":"object","patternProperties":{"^x":{"not":{}}}}`, `"{\"x"`)
	f.Fuzz(func(t *testing.T, schema, input string) {
		closed, err := CompileInput(json.RawMessage(schema))
		if err != nil {
			return
		}
		open, err := CompileOutput(json.RawMessage(schema))
		if err != nil {
			t.Fatalf("compiles closed and not as written: %v", err)
		}
		if closed.Validate(json.RawMessage(input)) == nil && open.Validate(json.RawMessage(input)) != nil {
			t.Fatalf("closing accepts what the schema refuses: %s for %s", input, schema)
		}
		first := closed.Validate(json.RawMessage(input))
		second := closed.Validate(json.RawMessage(input))
		if (first == nil) != (second == nil) || (first != nil && first.Error() != second.Error()) {
			t.Fatalf("two answers: %v and %v", first, second)
		}
		if first != nil && len(first.Error()) > 1<<20 {
			t.Fatalf("%d bytes of message", len(first.Error()))
		}
	})
}
