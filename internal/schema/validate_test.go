package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

const readFile = `{"type":"object","required":["file_path"],"properties":{
	"file_path":{"type":"string","minLength":1},"offset":{"type":"integer","minimum":1},"limit":{"type":"integer"},
	"mode":{"enum":["text","binary"]}}}`

func TestValidateMessages(t *testing.T) {
	tests := []struct{ name, schema, input, want string }{
		{"fits", readFile, `{"file_path":"a","offset":2}`, ""},
		{"wrong type", readFile, `{"file_path":5}`, `file_path: expected string, got number 5`},
		{"slip", readFile, `{"file_path":"a","limt":5}`, `limt: unknown field; did you mean "limit"?`},
		{"unknown", readFile, `{"file_path":"a","zzzzz":5}`,
			`zzzzz: unknown field; the fields are file_path, limit, mode, offset`},
		{"missing", readFile, `{}`, `file_path: is required and missing`},
		{"enum", readFile, `{"file_path":"a","mode":"binry"}`,
			`mode: expected one of "text", "binary", got string "binry"; did you mean "binary"?`},
		{"several", readFile, `{"limt":1,"offset":0,"limit":"x"}`, "4 problems:\n" +
			"- file_path: is required and missing\n- limit: expected integer, got string \"x\"\n" +
			"- limt: unknown field; did you mean \"limit\"?\n- offset: expected at least 1, got number 0"},
		{"float", readFile, `{"file_path":"a","limit":1.5}`, `limit: expected integer, got number 1.5`},
		{"whole float", readFile, `{"file_path":"a","limit":1.0}`, ``},
		{"empty text", readFile, `{"file_path":""}`, `file_path: expected at least 1 characters, got 0`},
		{"array", readFile, `[1,2]`, `input: expected object, got array of 2`},
		{"null", readFile, `null`, `input: expected object, got null`},
		{"cut arguments", readFile, `"{\"file_path\": \"a"`,
			`the arguments were not valid JSON: it ends too early at byte 16 (line 1), near "{\"file_path\": \"a"; send one complete JSON object`},
		{"bad arguments", readFile, `"{file_path: 1}"`,
			`the arguments were not valid JSON: invalid character 'f' looking for beginning of object key string at byte 1 (line 1), near "{file_path: 1}"; send one complete JSON object`},
		{"two values", readFile, `"{} {}"`,
			`the arguments were not valid JSON: there is more text after the end of the value at byte 4 (line 1), near "{} {}"; send one complete JSON object`},
		{"no arguments", readFile, `""`,
			`the arguments were empty; send a JSON object, {} when there is nothing to say`},
		{"twice encoded", readFile, `"{\"file_path\":\"a\"}"`,
			`the arguments are a JSON string that holds JSON; send the object itself, not a string of it`},
		{"too deep for a batch", readFile, `"{\"file_path\":` + strings.Repeat("[", 509) + strings.Repeat("]", 509) + `}"`,
			`input: is nested more than 509 deep; send something flatter`},
		{"far too deep", readFile, `"` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `"`,
			`input: is nested more than 509 deep; send something flatter`},
		{"a key twice", readFile, `"{\"file_path\":\"a\",\"file_path\":\"b\"}"`,
			`file_path: appears twice in its object, the second time at line 1, column 18; keep one`},
		{"control characters", readFile, `{"file_path":7,"a\u0000\u202eb":1}`, "2 problems:\n" +
			`- ["a\x00\u202eb"]: unknown field; the fields are file_path, limit, mode, offset` + "\n" +
			`- file_path: expected string, got number 7`},
		{"long value", readFile, `{"file_path":"a","limit":"` + strings.Repeat("x", 100) + `"}`,
			`limit: expected integer, got string "` + strings.Repeat("x", 60) + `"… (100 characters)`},
		{"number out of range", readFile, `{"file_path":"a","limit":1e999999999}`,
			`limit: expected a number of at most 1000 characters and an exponent of at most 400, got 1e999999999`},
		{"exact integer", `{"type":"object","properties":{"n":{"const":9007199254740993}}}`, `{"n":9007199254740992}`,
			`n: expected 9007199254740993, got number 9007199254740992`},
		{"no properties at all", `{"type":"object"}`, `{"a":1}`, `a: unknown field; no fields are allowed here`},
		{"opened", `{"type":"object","additionalProperties":true}`, `{"a":1}`, ``},
		{"opened by schema", `{"type":"object","additionalProperties":{"type":"string"}}`, `{"a":1}`,
			`a: expected string, got number 1`},
		{"opened by a part", `{"type":"object","properties":{"a":{}},"allOf":[{"additionalProperties":true}]}`,
			`{"b":1}`, ``},
		{"nested", `{"type":"object","properties":{"o":{"type":"object","properties":{"a":{}}}}}`, `{"o":{"b":1}}`,
			`o.b: unknown field; the fields are a`},
		{"nested map stays open", `{"type":"object","properties":{"o":{"type":"object"}}}`, `{"o":{"b":1}}`, ``},
		{"in an array",
			`{"type":"object","properties":{"l":{"items":{"type":"object","properties":{"a":{"type":"string"}}}}}}`,
			`{"l":[{"a":"x"},{"a":1,"b":2}]}`,
			"2 problems:\n- l[1].a: expected string, got number 1\n- l[1].b: unknown field; the fields are a"},
		{"allOf names both", `{"type":"object","properties":{"a":{}},"allOf":[{"properties":{"b":{}}}]}`,
			`{"a":1,"b":2}`, ``},
		{"allOf unknown", `{"type":"object","properties":{"a":{}},"allOf":[{"properties":{"b":{}}}]}`, `{"c":2}`,
			`c: unknown field; the fields are a, b`},
		{"allOf describes one field twice",
			`{"type":"object","allOf":[{"properties":{"o":{"properties":{"x":{}}}}},{"properties":{"o":{"properties":{"y":{}}}}}]}`,
			`{"o":{"x":1,"y":2}}`, ``},
		{"ref",
			`{"type":"object","properties":{"o":{"$ref":"#/$defs/O"}},"$defs":{"O":{"type":"object","properties":{"a":{}}}}}`, `{"o":{"b":1}}`,
			`o.b: unknown field; the fields are a`},
		{"ref in allOf",
			`{"type":"object","properties":{"o":{"allOf":[{"$ref":"#/$defs/O"}],"properties":{"c":{}}}},"$defs":{"O":{"type":"object","properties":{"a":{}}}}}`,
			`{"o":{"a":1,"c":2,"b":1}}`, `o.b: unknown field; the fields are a, c`},
		{"optional model",
			`{"type":"object","properties":{"o":{"anyOf":[{"$ref":"#/$defs/O"},{"type":"null"}]}},"$defs":{"O":{"type":"object","properties":{"a":{}}}}}`,
			`{"o":{"b":1}}`, `o.b: unknown field; the fields are a (in the closest of 2 alternatives)`},
		{"optional model, null",
			`{"type":"object","properties":{"o":{"anyOf":[{"$ref":"#/$defs/O"},{"type":"null"}]}},"$defs":{"O":{"type":"object","properties":{"a":{}}}}}`,
			`{"o":null}`, ``},
		{"nullable", `{"type":"object","properties":{"o":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"o":5}`,
			`o: expected null or string, got number 5`},
		{"union",
			`{"type":"object","properties":{"k":{}},"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"string"}},"required":["x"]},{"properties":{"k":{"const":"b"},"y":{}}}]}`,
			`{"k":"a"}`, `x: is required and missing (in the closest of 2 alternatives)`},
		{"union, other's field",
			`{"type":"object","oneOf":[{"properties":{"k":{"const":"a"},"x":{}},"required":["k"]},{"properties":{"k":{"const":"b"},"y":{}},"required":["k"]}]}`,
			`{"k":"a","y":1}`, `y: is not allowed together with the other fields`},
		{"union that fits twice",
			`{"type":"object","properties":{"u":{"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}}}`,
			`{"u":{"a":1}}`,
			`u: fits alternatives 1 and 2 of the schema; it must fit exactly one`},
		{"a definition that is asked about stays as it is",
			`{"type":"object","properties":{"o":{"type":"object"}},"if":{"properties":{"o":{"$ref":"#/$defs/O"}}},"then":{"required":["x"]},"$defs":{"O":{"properties":{"a":{}}}}}`,
			`{"o":{"z":1}}`, `x: is required and missing`},
		{"and so its else part does not apply",
			`{"type":"object","properties":{"o":{"type":"object"},"x":{}},"if":{"properties":{"o":{"$ref":"#/$defs/O"}}},"then":{"required":["x"]},"else":{"required":["y"]},"$defs":{"O":{"properties":{"a":{}}}}}`,
			`{"o":{"z":1},"x":1}`, ``},
		{"a part describes a nested object further",
			`{"type":"object","properties":{"o":{"properties":{"x":{}}}},"allOf":[{"properties":{"o":{"properties":{"y":{}}}}}]}`,
			`{"o":{"x":1,"y":2}}`, ``},
		{"dependent", `{"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}}`, `{"a":1}`,
			`b: is required when "a" is given, and missing`},
		{"sizes",
			`{"type":"object","maxProperties":9,"properties":{"s":{"maxLength":2},"l":{"minItems":2},"m":{"maxItems":1},"n":{"exclusiveMinimum":1.5},"o":{"exclusiveMaximum":0},"p":{"maximum":3},"q":{"multipleOf":2},"r":{"pattern":"^x$"},"t":{"not":{"type":"null"}}}}`,
			`{"s":"abc","l":[],"m":[1,2],"n":1.5,"o":0,"p":4,"q":3,"r":"y","t":null}`,
			"9 problems:\n- l: expected at least 2 items, got 0\n- m: expected at most 1 items, got 2\n" +
				"- n: expected more than 1.5, got number 1.5\n- o: expected less than 0, got number 0\n- p: expected " +
				"at most 3, got number 4\n" +
				"- q: expected a multiple of 2, got number 3\n- r: expected text that matches the pattern ^x$, got " +
				"string \"y\"\n" +
				"- s: expected at most 2 characters, got 3\n- t: is what the schema's \"not\" excludes, got null"},
		{"recursive", `{"type":"object","properties":{"next":{"$ref":"#"},"v":{"type":"integer"}}}`,
			`{"next":{"next":{"w":1}}}`, `next.next.w: unknown field; the fields are next, v`},
		{"draft 7",
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"o":{"$ref":"#/definitions/O"}},"definitions":{"O":{"type":"object","properties":{"a":{}}}}}`,
			`{"o":{"b":1},"p":1}`,
			"2 problems:\n- o.b: unknown field; the fields are a\n- p: unknown field; the fields are o"},
		{"if keeps its meaning",
			`{"type":"object","properties":{"a":{},"b":{}},"if":{"properties":{"a":{"properties":{"x":{"const":1}},"required":["x"]}},"required":["a"]},"then":{"required":["b"]}}`,
			`{"a":{"x":1,"y":2}}`, `b: is required and missing`},
		{"unique", `{"type":"object","properties":{"l":{"uniqueItems":true}}}`, `{"l":[1,1.0]}`,
			`l: expected items that differ, got the same at 0 and 1`},
		{"property names", `{"type":"object","additionalProperties":{},"propertyNames":{"pattern":"^a"}}`, `{"b":1}`,
			`input: the field name "b" is not allowed: expected text that matches the pattern ^a, got object of 1 fields`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := CompileInput(json.RawMessage(tt.schema))
			must.OK(t, err)
			for range 5 { // the validator walks maps: the order must not show
				got := ""
				if err := s.Validate(json.RawMessage(tt.input)); err != nil {
					got = err.Error()
				}
				if got != tt.want {
					t.Fatalf("got:  %s\nwant: %s", got, tt.want)
				}
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"l":{"items":{"type":"string"}}}}`))
	must.OK(t, err)
	input := json.RawMessage(`{"l":[` + strings.Repeat("1,", 5_000) + `1]}`)
	invalid := s.Validate(input).(*Error)
	if len(invalid.Problems) != MaxProblems || invalid.More != 5_001-MaxProblems {
		t.Errorf("%d problems and %d more", len(invalid.Problems), invalid.More)
	}
	if want := "l[9]: expected string, got number 1"; invalid.Problems[9] != want {
		t.Errorf("got %q, want %q: indices are ordered as numbers", invalid.Problems[9], want)
	}
	for name, input := range map[string]string{
		"values": `[` + strings.Repeat("1,", MaxValues) + `1]`,
		"depth":  strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2),
		"digits": strings.Repeat("1", MaxNumberChars+1),
	} {
		if err := s.Validate(json.RawMessage(input)); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %.100v", name, err)
		}
	}
}

func TestCompileRefusesWhatItCannotSee(t *testing.T) {
	for _, bad := range []string{
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/schema"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"file:///etc/hostname"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"other.json"}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`,
		`{"$schema":"https://example.com/meta","type":"object"}`,
		`{"$id":"file:///etc/x","type":"object","properties":{"a":{"$ref":"hostname"}}}`,
		`{"type":"objekt"}`, `{"type":`, ``,
		`{"type":"object","properties":{"a":{"minimum":1e999999999}}}`,
		`{"title":"` + strings.Repeat("x", MaxSchemaBytes) + `"}`,
	} {
		if _, err := CompileInput(json.RawMessage(bad)); err == nil {
			t.Errorf("compiled: %.100s", bad)
		}
	}
}

// TestCompileReadsNoFile: one that would do is there, and is not looked at.
func TestCompileReadsNoFile(t *testing.T) {
	file := must.File(t, "schema.json", `{"type":"string"}`)
	for _, ref := range []string{"file://" + file, file} {
		_, err := CompileInput(json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"a":{"$ref":%q}}}`, ref)))
		if err == nil || !strings.Contains(err.Error(), "must be whole") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestOutputSchemasAreNotClosed(t *testing.T) {
	s, err := CompileOutput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`))
	must.OK(t, err)
	if err := s.Validate(json.RawMessage(`{"b":1}`)); err != nil {
		t.Error(err)
	}
	if err := s.Validate(json.RawMessage(`{"a":1}`)); err == nil {
		t.Error("a wrong type passed")
	}
}

func TestDerivedSchema(t *testing.T) {
	type in struct {
		Name  string   `json:"name"`
		Tags  []string `json:"tags,omitempty"`
		Inner struct {
			X int `json:"x"`
		} `json:"inner"`
	}
	s := derived[in](t)
	if err := s.Validate(json.RawMessage(`{"name":"a","inner":{"x":1}}`)); err != nil {
		t.Error(err)
	}
	if err := s.Validate(json.RawMessage(`{"name":"a","inner":{"x":1,"y":2}}`)); err == nil {
		t.Error("an unknown nested field passed")
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		` {"b" : 1.0 , "a":[ {"d":1,"c":"<é>"} ]} `: `{"a":[{"c":"<é>","d":1}],"b":1.0}`,
		`{"a":1,"a":2}`:                  `{"a":2}`,
		`123456789012345678901234567890`: `123456789012345678901234567890`,
	} {
		v, err := Parse(json.RawMessage(in))
		must.OK(t, err)
		if got := string(v.Canonical()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestCacheIsBoundedAndRemembersFailures(t *testing.T) {
	c := Cache{Size: 2}
	one := func(i int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"type":"object","title":"%d"}`, i)) }
	first, err := c.Input(one(0))
	must.OK(t, err)
	if again, _ := c.Input(one(0)); again != first {
		t.Error("compiled twice")
	}
	if out, _ := c.Output(one(0)); out == first {
		t.Error("an output schema is the closed one")
	}
	for i := range 5 {
		if _, err := c.Input(one(i)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Len() != 2 {
		t.Errorf("%d kept, want 2", c.Len())
	}
	if _, err := c.Input(json.RawMessage(`{"type":"objekt"}`)); err == nil {
		t.Error("compiled")
	}
	if _, err := c.Input(json.RawMessage(`{"type":"objekt"}`)); err == nil {
		t.Error("the failure was forgotten")
	}
}

func derived[In any](t *testing.T) *Schema {
	t.Helper()
	made, err := tool.New(tool.Typed[In, string]{
		Declaration: tool.Declaration{Name: "t", Description: "d"},
		Run:         nil,
	})
	if err == nil {
		t.Fatal("a tool without Run")
	}
	made, err = tool.New(tool.Typed[In, string]{Declaration: tool.Declaration{Name: "t", Description: "d"},
		Run: run[In]})
	must.OK(t, err)
	s, err := CompileInput(made.InputSchema)
	must.OK(t, err)
	return s
}
