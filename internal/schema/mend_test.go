package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestMend(t *testing.T) {
	field := func(f string) string { return `{"type":"object","properties":{"v":` + f + `}}` }
	for _, tt := range []struct {
		name, in, out string // out is empty where nothing is changed
		lines         []string
	}{
		{"nothing", field(`{"type":"string","nullable":false,"required":[]}`), "", nil},
		{"an older draft",
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"v":{"items":[{},{}]}}}`, "", nil},
		{"draft 4",
			`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"v":{"minimum":1,"exclusiveMinimum":true}}}`, "", nil},
		{"no root type", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"type":"object"}`,
			[]string{"the root does not say that it is an object; it is read as one"}},
		{"several root types", `{"type":["object","null"]}`, `{"type":"object"}`,
			[]string{"the root may be other than an object; it is read as one"}},
		{"none", `null`, `{"additionalProperties":true,"type":"object"}`,
			[]string{"there is no input schema; any fields are taken"}},
		{"true", `true`, `{"additionalProperties":true,"type":"object"}`,
			[]string{"there is no input schema; any fields are taken"}},
		{"a tuple", field(`{"items":[{"type":"string"}],"additionalItems":false}`),
			field(`{"items":false,"prefixItems":[{"type":"string"}]}`),
			[]string{"/properties/v/items: a list is read as prefixItems, which 2020-12 calls it"}},
		{"draft 4's booleans", field(`{"minimum":1,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false}`),
			field(`{"exclusiveMinimum":1,"maximum":9}`),
			[]string{"/properties/v/exclusiveMaximum: false is read as draft 4 has it",
				"/properties/v/exclusiveMinimum: true is read as draft 4 has it"}},
		{"draft 3's booleans", `{"type":"object","properties":{"a":{"required":true},"b":{"required":false}}}`,
			`{"properties":{"a":{},"b":{}},"required":["a"],"type":"object"}`,
			[]string{"/properties/a/required: true is read as draft 3 has it",
				"/properties/b/required: false is read as draft 3 has it"}},
		{"required twice", `{"type":"object","required":["a","a"]}`, `{"required":["a"],"type":"object"}`,
			[]string{"/required: names that stand there twice, and what is no name, are taken out"}},
		{"OpenAPI's null", field(`{"type":"string","nullable":true,"enum":["a"]}`),
			field(`{"enum":["a",null],"nullable":true,"type":["string","null"]}`),
			[]string{"/properties/v/nullable: null is taken too, as OpenAPI means it"}},
		{"nulls", `{"type":"object","required":null,"properties":{"v":{"description":null,"default":null}}}`,
			field(`{"default":null}`),
			[]string{"/required: null says nothing and is taken out",
				"/properties/v/description: null says nothing and is taken out"}},
		{"Python's types", field(`{"type":["str","int","string"]}`), field(`{"type":["string","integer"]}`),
			[]string{`/properties/v/type: "str" is read as "string"`,
				`/properties/v/type: "int" is read as "integer"`}},
		{"no type", field(`{"type":"any"}`), field(`{}`),
			[]string{`/properties/v/type: "any" is no type; any value is taken`}},
		{"an unknown draft", `{"$schema":"https://spec.openapis.org/oas/3.1/dialect/base","type":"object"}`,
			`{"type":"object"}`,
			[]string{"/$schema: https://spec.openapis.org/oas/3.1/dialect/base is no draft that is known; it is read " +
				"as 2020-12"}},
		{"a reference to nothing", field(`{"$ref":"#/$defs/x"}`), field(`{}`),
			[]string{"/properties/v/$ref: #/$defs/x is not in the schema; any value is taken"}},
		{"a reference out", field(`{"$ref":"https://example.com/x.json"}`), field(`{}`),
			[]string{"/properties/v/$ref: https://example.com/x.json leads out of the schema, and nothing is loaded; " +
				"any value is taken"}},
		{"what means nothing", field(`{"minLength":"1","enum":"a","description":7}`), field(`{}`),
			[]string{"/properties/v/description: it means nothing there and is taken out",
				"/properties/v/enum: it means nothing there and is taken out",
				"/properties/v/minLength: it means nothing there and is taken out"}},
		{"a field that is none", field(`"a string"`), field(`{}`),
			[]string{"/properties/v: it means nothing there and is taken out"}},
		{"a field called properties", field(`{"properties":{"type":5}}`), field(`{"properties":{"type":{}}}`),
			[]string{"/properties/v/properties/type: it means nothing there and is taken out"}},
		{"a generic's name",
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"v":{"$ref":"#/definitions/Page[Item]"},"w":{"$ref":"#/definitions/My%20Type"}},"definitions":{"Page[Item]":{},"My Type":{}}}`, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, lines, err := Mend(json.RawMessage(tt.in), true)
			must.OK(t, err)
			want := tt.in
			if tt.out != "" {
				v, err := Parse(json.RawMessage(tt.out))
				must.OK(t, err)
				want = string(v.Canonical())
			}
			if string(got) != want || strings.Join(lines, "\n") != strings.Join(tt.lines, "\n") {
				t.Errorf("%s\n%s\nwant %s\n%s", got, strings.Join(lines, "\n"), want, strings.Join(tt.lines, "\n"))
			}
			if again, lines, err := Mend(got, true); err != nil || string(again) != string(got) || len(lines) > 0 {
				t.Errorf("mended again: %s %q %v", again, lines, err)
			}
		})
	}
	for name, in := range map[string]string{"no object": `{"type":"string"}`, "a list": `[]`, "false": `false`,
		"no JSON": `{`, "other types": `{"type":["string"]}`} {
		if got, _, err := Mend(json.RawMessage(in), true); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, _, err := Mend(json.RawMessage(`{"type":"array","items":[{}]}`), false); err != nil ||
		string(got) != `{"prefixItems":[{}],"type":"array"}` {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzMend: what is mended compiles, the same way each time, and mending it again changes nothing.
func FuzzMend(f *testing.F) {
	for _, s := range []string{`{"type":"str","items":[1],"exclusiveMinimum":true,"required":[1,"a","a"]}`,
		`{"properties":{"properties":{"type":5,"$ref":"x"}},"$defs":7}`,
		`{"$id":"a","$ref":"#b","allOf":[{"$anchor":"b"},null]}`, `{"$schema":5,"patternProperties":{"(":3}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, input := range []bool{true, false} {
			got, lines, err := Mend(json.RawMessage(in), input)
			if err != nil {
				continue
			}
			if _, err := CompileInput(got); err != nil {
				t.Fatalf("%s from %s: %v", got, in, err)
			}
			if len(lines) == 0 && string(got) != in {
				t.Fatalf("changed without a word: %s from %s", got, in)
			}
			again, _, err := Mend(json.RawMessage(in), input)
			if err != nil || string(again) != string(got) {
				t.Fatalf("%s and %s from %s, %v", got, again, in, err)
			}
			twice, lines, err := Mend(got, input)
			if err != nil || string(twice) != string(got) {
				t.Fatalf("%s mended to %s %q, %v", got, twice, lines, err)
			}
		}
	})
}

// TestMendingManyKeywords: those that mean nothing are taken out together, since each look for them compiles the
// schema.
func TestMendingManyKeywords(t *testing.T) {
	wrong := func(n int) []byte {
		fields := []string{}
		for i := range maxMends {
			value := `1`
			if i < n {
				value = `"x"`
			}
			fields = append(fields, fmt.Sprintf(`"f%d":{"type":"string","minLength":%s}`, i, value))
		}
		return []byte(`{"type":"object","properties":{` + strings.Join(fields, ",") + `}}`)
	}
	work := func(n int) float64 {
		raw := wrong(n)
		return testing.AllocsPerRun(1, func() {
			if _, lines, err := Mend(raw, true); err != nil || len(lines) != n {
				t.Errorf("%d lines, %v; want %d", len(lines), err, n)
			}
		})
	}
	if one, many := work(1), work(maxMends); many > 5*one {
		t.Errorf("%.0f allocations for one keyword, and %.0f for %d", one, many, maxMends)
	}
	more := []byte(strings.Replace(string(wrong(maxMends)), `"f0":{`, `"f0":{"maxLength":"x",`, 1))
	if _, _, err := Mend(more, true); err == nil || !strings.Contains(err.Error(), "more than 100 keywords") {
		t.Errorf("past the limit: %v", err)
	}
}
