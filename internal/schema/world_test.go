package schema

import (
	"encoding/json"
	"testing"
)

// TestSchemasOfTheWorld: what real tools declare compiles, takes the inputs that their authors mean, and refuses
// others.
func TestSchemasOfTheWorld(t *testing.T) {
	field := func(f string) string { return `{"type":"object","properties":{"v":` + f + `}}` }
	for _, tt := range []struct {
		name, schema string
		fits, misfit []string
	}{
		{"zod's email",
			field(`{"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}`),
			[]string{`{"v":"a.b@example.com"}`}, []string{`{"v":"a..b@example.com"}`, `{"v":".a@example.com"}`,
				`{"v":"a"}`}},
		{"zod's hostname",
			field(`{"type":"string","pattern":"^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$"}`),
			[]string{`{"v":"www.example.com"}`}, []string{`{"v":"-a"}`, `{"v":"a b"}`}},
		{"zod's emoji", field(`{"type":"string","pattern":"^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$"}`),
			[]string{`{"v":"😀"}`}, []string{`{"v":"a"}`}},
		{"a script", field(`{"type":"string","pattern":"^\\p{Script=Greek}+$"}`), []string{`{"v":"αβγ"}`},
			[]string{`{"v":"abc"}`}},
		{"anything", field(`{"type":"string","pattern":"^[^]*$"}`), []string{`{"v":"a\nb"}`, `{"v":""}`}, nil},
		{"a long repeat", field(`{"type":"string","pattern":"^[\\s\\S]{0,1500}$"}`), []string{`{"v":"a\nb"}`}, nil},
		{"a back-reference", field(`{"type":"string","pattern":"^(['\"]).*\\1$"}`), []string{`{"v":"'a'"}`},
			[]string{`{"v":"'a\""}`}},
		{"a look-behind", field(`{"type":"string","pattern":"(?<!a)b"}`), []string{`{"v":"cb"}`},
			[]string{`{"v":"ab"}`}},
		{"a named group", field(`{"type":"string","pattern":"^(?<y>\\d{4})-\\k<y>$"}`), []string{`{"v":"2026-2026"}`},
			[]string{`{"v":"2026-2027"}`}},
		{"what only the older syntax allows", field(`{"type":"string","pattern":"^[\\w-.]+\\@\\_{x}$"}`),
			[]string{`{"v":"a-b.c@_{x}"}`}, []string{`{"v":"@"}`}},
		{"Python's and Go's", field(`{"type":"string","pattern":"\\A(?i)(?P<n>abc)\\z"}`), []string{`{"v":"ABC"}`},
			[]string{`{"v":"AabcZ"}`}},
		{"Python's look-ahead", field(`{"type":"string","pattern":"\\A(?P<n>a)(?!b)"}`), []string{`{"v":"ac"}`},
			[]string{`{"v":"ab"}`}},
		{"the end is the end", field(`{"type":"string","pattern":"^a$"}`), []string{`{"v":"a"}`},
			[]string{`{"v":"a\n"}`}},
		{"a pattern that nobody reads", field(`{"type":"string","pattern":"^(a"}`), []string{`{"v":"b"}`},
			[]string{`{"v":1}`}},
		{"names by a pattern that nobody reads",
			`{"type":"object","patternProperties":{"^(a":{"type":"string"}},"additionalProperties":false}`,
			[]string{`{"b":1}`}, nil},
		{"what is not excluded for sure", field(`{"not":{"pattern":"(a"}}`), []string{`{"v":"b"}`}, nil},
		{"a choice by a pattern that nobody reads", field(`{"oneOf":[{"pattern":"(a"},{"type":"string"}]}`),
			[]string{`{"v":"b"}`}, nil},
		{"what is not excluded for sure, elsewhere",
			`{"type":"object","properties":{"v":{"not":{"$ref":"#/$defs/x"}}},"$defs":{"x":{"type":"string","pattern":"(a"}}}`, []string{`{"v":"b"}`}, nil},
		{"a property that is called pattern",
			`{"type":"object","properties":{"pattern":{"type":"string","default":"("}}}`, []string{`{"pattern":"("}`},
			[]string{`{"pattern":1}`}},
		{"pydantic's date-time", field(`{"type":"string","format":"date-time"}`),
			[]string{`{"v":"2026-01-31T12:00:00"}`, `{"v":"2026-01-31 12:00"}`}, []string{`{"v":1}`}},
		{"pydantic's time", field(`{"type":"string","format":"time"}`), []string{`{"v":"14:30"}`}, nil},
		{"pydantic's uuid, Notion's ids", field(`{"type":"string","format":"uuid"}`),
			[]string{`{"v":"123e4567e89b12d3a456426614174000"}`}, nil},
		{"formats of an older draft",
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"v":{"type":"string","format":"date"},"r":{"type":"string","format":"regex"}}}`,
			[]string{`{"v":"tomorrow","r":"(?P<x>a)"}`}, nil},
		{"formats nobody knows", field(`{"type":"integer","format":"int32"}`), []string{`{"v":1}`},
			[]string{`{"v":"1"}`}},

		{"names with a rule", `{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}}`, []string{`{"a":1}`},
			[]string{`{"A":1}`}},
		{"names beside a rule", `{"type":"object","properties":{"a":{}},"propertyNames":{"maxLength":3}}`,
			[]string{`{"b":1}`}, []string{`{"bbbb":1}`}},
		{"a constant", field(`{"type":"object","const":{"a":1}}`), []string{`{"v":{"a":1}}`},
			[]string{`{"v":{"a":2}}`}},
		{"a constant beside properties", field(`{"properties":{"a":{}},"enum":[{"a":1,"b":2}]}`),
			[]string{`{"v":{"a":1,"b":2}}`}, []string{`{"v":{"a":1}}`}},
		{"patterns of names", `{"type":"object","patternProperties":{"^x-":{"type":"string"}}}`,
			[]string{`{"x-a":"b"}`, `{"other":1}`}, []string{`{"x-a":1}`}},
		{"patterns beside properties", `{"type":"object","properties":{"a":{}},"patternProperties":{"^x-":{}}}`,
			[]string{`{"a":1,"x-b":2}`}, []string{`{"b":1}`}},
		{"what needs what", `{"type":"object","dependentRequired":{"a":["b"]}}`, []string{`{"a":1,"b":2}`, `{"c":1}`},
			[]string{`{"a":1}`}},
		{"what needs what, nested", field(`{"dependentSchemas":{"a":{"required":["b"]}}}`),
			[]string{`{"v":{"a":1,"b":2}}`}, []string{`{"v":{"a":1}}`}},
		{"required and not described", `{"type":"object","properties":{"a":{}},"required":["b"]}`,
			[]string{`{"a":1,"b":2}`}, []string{`{"a":1}`}},
		{"one of two that are not described", `{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			[]string{`{"a":1}`}, []string{`{"c":1}`}},
		{"at least one field", `{"type":"object","minProperties":1}`, []string{`{"a":1}`}, []string{`{}`}},
		{"not both", `{"type":"object","properties":{"a":{}},"not":{"required":["a","b"]}}`,
			[]string{`{"a":1}`, `{"b":1}`}, []string{`{"a":1,"b":2}`}},
		{"what is asked about",
			`{"type":"object","properties":{"a":{}},"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"required":["a"]}}`, []string{`{"k":1,"a":1}`, `{"k":2}`}, []string{`{"k":1}`}},
		{"nothing said", `{"type":"object"}`, []string{`{}`}, []string{`{"a":1}`}},
		{"empty properties", `{"type":"object","properties":{}}`, []string{`{}`}, []string{`{"a":1}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := CompileInput(json.RawMessage(tt.schema))
			if err != nil {
				t.Fatal(err)
			}
			for _, input := range tt.fits {
				if err := s.Validate(json.RawMessage(input)); err != nil {
					t.Errorf("%s: %v", input, err)
				}
			}
			for _, input := range tt.misfit {
				if s.Validate(json.RawMessage(input)) == nil {
					t.Errorf("%s fits", input)
				}
			}
		})
	}
}
