package lower

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestLower(t *testing.T) {
	for _, c := range []struct {
		name    string
		target  Target
		in, out string
		changes []string // path keyword: what
	}{
		{"as it is", Anthropic,
			`{"type":"object","properties":{"b":{"type":"string","minLength":1},"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"not":{}}}}`,
			`{"type":"object","properties":{"b":{"type":"string","minLength":1},"a":{"not":{}}}}`, nil},
		{"references and allOf are put in", OpenAI, `{"type":"object","properties":{"m":{"allOf":[{"$ref":"#/$defs/M"}],"default":"a","description":"which"},"l":{"type":"array","items":{"$ref":"#/$defs/P"}}},
			"$defs":{"M":{"type":"string","enum":["a","b"],"description":"a mode","title":"M"},"P":{"type":"object","properties":{"m":{"$ref":"#/$defs/M"}},"required":["m"],"additionalProperties":false}}}`,
			`{"type":"object","properties":{"m":{"type":"string","enum":["a","b"],"default":"a","description":"which","title":"M"},"l":{"type":"array","items":
			{"type":"object","properties":{"m":{"type":"string","enum":["a","b"],"description":"a mode","title":"M"}},"required":["m"],"additionalProperties":false}}}}`, nil},
		{"what allOf says twice is joined", Anthropic, `{"type":"object","properties":{"a":{"type":["integer","null"],"minimum":1,"allOf":[{"type":"number","minimum":3,"maximum":9},{"maximum":7}]},
			"o":{"allOf":[{"properties":{"x":{"type":"string"}},"required":["x"]},{"properties":{"x":{"minLength":2},"y":true},"required":["x","y"]}]}}}`,
			`{"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":7},"o":{"properties":{"x":{"type":"string","minLength":2},"y":true},"required":["x","y"]}}}`, nil},
		{"what cannot be joined stays", Anthropic,
			`{"type":"object","properties":{"a":{"pattern":"^a","allOf":[{"pattern":"b$"},{"if":{"const":"ab"},"then":{"maxLength":2}},{"if":{},"else":{}}]}}}`,
			`{"type":"object","properties":{"a":{"pattern":"^a","if":{"const":"ab"},"then":{"maxLength":2},"allOf":[{"pattern":"b$"},{"if":{},"else":{}}]}}}`, nil},
		{"a definition that refers to itself stays one", Anthropic,
			`{"type":"object","properties":{"t":{"$ref":"#/$defs/Tree"},"d0":{"$ref":"#/$defs/d0"}},"$defs":{"d0":{"type":"null"},"Tree":{"type":"object","properties":{"of":{"type":"array","items":{"$ref":"#/$defs/Tree","description":"below"}}}}}}`,
			`{"type":"object","properties":{"t":{"type":"object","properties":{"of":{"type":"array","items":{"$ref":"#/$defs/d1","description":"below"}}}},"d0":{"type":"null"}},
			"$defs":{"d1":{"type":"object","properties":{"of":{"type":"array","items":{"$ref":"#/$defs/d1","description":"below"}}}}}}`, nil},
		{"a root of parts", OpenAI,
			`{"$ref":"#/$defs/In","$defs":{"In":{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},{"const":1}]}}}}}`,
			`{"type":"object","properties":{"a":{"oneOf":[{"type":"string"},{"const":1}]}}}`, nil},
		{"a name that is no pointer", Anthropic,
			`{"type":"object","properties":{"a":{"$ref":"#x"}},"$defs":{"x":{"$anchor":"x","type":"string"}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#x"}},"$defs":{"x":{"$anchor":"x","type":"string"}}}`, nil},
		{"patterns that OpenAI refuses", OpenAI, `{"type":"object","properties":{"pattern":{"type":"string","pattern":"^(?!\\.)a$","description":"an address"},"n":{"not":{"pattern":"\\p{L}"}},"p":{"pattern":"^[a-z]{2,3}$"},
			"m":{"patternProperties":{"^(?!x)":{"type":"string"}},"additionalProperties":false},"o":{"oneOf":[{"pattern":"(?=a)"},{"type":"null"}]}},"default":{"pattern":"(?=a)"}}`,
			`{"type":"object","properties":{"pattern":{"type":"string","description":"an address (pattern: \"^(?!\\\\.)a$\")"},"n":{},"p":{"pattern":"^[a-z]{2,3}$"},
			"m":{"patternProperties":{},"additionalProperties":true},"o":{"anyOf":[{"description":"(pattern: \"(?=a)\")"},{"type":"null"}]}},"default":{"pattern":"(?=a)"}}`,
			[]string{"/properties/m patternProperties: dropped", "/properties/n/not pattern: moved to the description",
				"/properties/n not: dropped",
				"/properties/o/oneOf pattern: moved to the description", "/properties/o oneOf: changed",
				"/properties/pattern pattern: moved to the description"}},
		{"patterns in a strict form", OpenAIStrict,
			`{"type":"object","properties":{"a":{"type":"string","pattern":"(?<=a)b"},"b":{"type":"string","pattern":"^b$"}},"required":["a","b"]}`,
			`{"type":"object","properties":{"a":{"type":"string","description":"(pattern: \"(?<=a)b\")"},"b":{"type":"string","pattern":"^b$"}},"required":["a","b"],"additionalProperties":false}`,
			[]string{"/properties/a pattern: moved to the description"}},
		{"the whole language for MCP, references too", MCP,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, nil},
		{"no type", MCP, `{"properties":{"a":true}}`, `{"properties":{"a":true},"type":"object"}`, nil},
		{"the whole language for MCP", MCP, `{"type":"object","oneOf":[{"required":["a"]}]}`,
			`{"type":"object","oneOf":[{"required":["a"]}]}`, nil},
		{"array without items", OpenAI, `{"type":"object","properties":{"a":{"type":"array"}}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{}}}}`, nil},
		{"a field's name", Anthropic, `{"type":"object","properties":{"a b":{},"c.d":{}},"additionalProperties":false}`,
			`{"type":"object","properties":{"c.d":{}}}`,
			[]string{"/properties/a b : dropped"}},
		{"a field's name elsewhere", OpenAI, `{"type":"object","properties":{"a b":{}}}`,
			`{"type":"object","properties":{"a b":{}}}`, nil},
		{"a choice at the root", Anthropic,
			`{"oneOf":[{"properties":{"a":{"type":"string"}},"required":["a","c"]},{"properties":{"a":{"type":"integer"},"b":{}},"required":["c"]}]}`,
			`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"integer"}]},"b":{}},"required":["c"],"type":"object"}`,
			[]string{" oneOf: changed", " anyOf: changed"}},
		{"allOf at the root", OpenAI,
			`{"type":"object","allOf":[{"properties":{"a":{"type":["string","null"]}}},{"properties":{"a":{"type":"string","minLength":2}},"required":["a"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string","minLength":2}},"required":["a"]}`, nil},
		{"an older draft", Anthropic,
			`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/definitions/a","minLength":3},"t":{"type":"array","items":[{"type":"string"}],"additionalItems":false}},"definitions":{"a":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"type":"string"},"t":{"type":"array","maxItems":1,"prefixItems":[{"type":"string"}]}}}`, nil},
		{"Gemini's subset", Gemini,
			`{"type":"object","properties":{"p":{"$ref":"#/$defs/p","description":"a path"},"k":{"const":"x"},"n":{"const":null},"m":{"type":"object","patternProperties":{"^x":{}},"additionalProperties":false}},"$defs":{"p":{"type":"string","minLength":1,"pattern":"^/","format":"uri"}}}`,
			`{"type":"object","properties":{"p":{"type":"string","description":"a path (format: \"uri\"; pattern: \"^/\"; minLength: 1)"},"k":{"enum":["x"]},"n":{"description":"(const: null)"},"m":{"type":"object","additionalProperties":true}}}`,
			[]string{"/properties/m patternProperties: dropped", "/properties/n const: moved to the description",
				"/properties/p format: moved to the description", "/properties/p pattern: moved to the description",
				"/properties/p minLength: moved to the description"}},
		{"what moves stays beside the description that counts", Gemini, `{"type":"object","properties":{"a":{"allOf":[{"$ref":"#/$defs/d"}],"description":"mine"},"b":{"$ref":"#/$defs/d"},
			"c":{"allOf":[{"pattern":"^a"},{"pattern":"b$"}],"minLength":1}},"$defs":{"d":{"type":"string","minLength":3,"description":"its own"}}}`,
			`{"type":"object","properties":{"a":{"type":"string","description":"mine (minLength: 3)"},"b":{"type":"string","description":"its own (minLength: 3)"},
			"c":{"description":"(pattern: \"^a\"; pattern: \"b$\"; minLength: 1)"}}}`,
			[]string{"/properties/a/allOf/0 minLength: moved to the description",
				"/properties/b minLength: moved to the description",
				"/properties/c/allOf/0 pattern: moved to the description",
				"/properties/c/allOf/1 pattern: moved to the description",
				"/properties/c minLength: moved to the description"}},
		{"recursion is cut", Gemini,
			`{"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"object","properties":{"v":{"type":"string"},"next":{"$ref":"#/$defs/t"}}}}}`,
			`{"type":"object","properties":{"t":{"type":"object","properties":{"v":{"type":"string"},"next":{}}}}}`,
			[]string{"/properties/t/properties/next $ref: dropped"}},
		{"strict", OpenAIStrict,
			`{"type":"object","properties":{"path":{"type":"string","description":"where","minLength":1},"limit":{"type":"integer","minimum":1,"default":3},"mode":{"enum":["a","b"]}},"required":["path"]}`,
			`{"type":"object","properties":{"path":{"type":"string","description":"where (minLength: 1)"},"limit":{"type":["integer","null"],"description":"(default: 3)","minimum":1},"mode":{"type":["string","null"],"enum":["a","b",null]}},"required":["limit","mode","path"],"additionalProperties":false}`,
			[]string{"/properties/limit default: moved to the description",
				"/properties/path minLength: moved to the description",
				"/properties/limit : changed", "/properties/mode : changed"}},
		{"strict recursion", OpenAIStrict,
			`{"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"required":["t"],"$defs":{"t":{"type":"object","properties":{"next":{"$ref":"#/$defs/t"}}}}}`,
			`{"type":"object","properties":{"t":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/d0"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}},"required":["t"],"$defs":{"d0":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/d0"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}},"additionalProperties":false}`,
			[]string{"/properties/t/properties/next : changed", "/$defs/d0/properties/next : changed"}},
		{"strict for Anthropic", AnthropicStrict,
			`{"type":"object","properties":{"n":{"type":"integer","minimum":1},"f":{"type":"string","format":"uuid"}}}`,
			`{"type":"object","properties":{"n":{"type":"integer","description":"(minimum: 1)"},"f":{"type":"string","format":"uuid"}},"additionalProperties":false}`,
			[]string{"/properties/n minimum: moved to the description"}},
	} {
		got, err := Lower(c.target, json.RawMessage(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(decoded(t, c.out), decoded(t, string(got.Schema))); d != "" {
			t.Errorf("%s: %s\n(-want +got):\n%s", c.name, got.Schema, d)
		}
		var changes []string
		for _, ch := range got.Changes {
			changes = append(changes, fmt.Sprintf("%s %s: %s", ch.Path, ch.Keyword, ch.What))
			if ch.Why == "" {
				t.Errorf("%s: %+v says no reason", c.name, ch)
			}
		}
		if d := cmp.Diff(c.changes, changes); d != "" {
			t.Errorf("%s: changes (-want +got):\n%s", c.name, d)
		}
	}
}

func TestFieldsKeepTheirOrder(t *testing.T) {
	const in = `{"type":"object","properties":{"zeta":{"type":"string"},"alpha":{"type":"string"}},"required":["zeta"],"description":"d"}`
	for _, target := range Targets {
		got, err := Lower(target, json.RawMessage(in))
		must.OK(t, err)
		if s := string(got.Schema); strings.Index(s, `"zeta":`) > strings.Index(s, `"alpha":`) ||
			!strings.HasPrefix(s, `{"type"`) {
			t.Errorf("%s: %s", target, s)
		}
	}
}

func TestNoStrictForm(t *testing.T) {
	many := func(n int, each string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `%s"%s%d"`, map[bool]string{true: ",", false: ""}[i > 0], each, i)
		}
		return b.String()
	}
	for why, in := range map[string]string{
		"values of any type":        `{"type":"object","properties":{"a":{}}}`,
		"takes fields that it does": `{"type":"object","additionalProperties":true}`,
		"takes any fields":          `{"type":"object","properties":{"a":{"type":"object"}}}`,
		"does not name":             `{"type":"object","properties":{"a":{"type":"object","patternProperties":{"^x":{"type":"string"}}}}}`,
		`requires "b"`:              `{"type":"object","properties":{"a":{"type":"string"}},"required":["b"]}`,
		"levels of nesting": `{"type":"object","properties":{"a":` +
			strings.Repeat(`{"type":"array","items":`, 10) + `{"type":"string"}` + strings.Repeat("}", 10) + `}}`,
		"1001 enum values": `{"type":"object","properties":{"a":{"enum":[` + many(1001, "") + `]}}}`,
		"past 250 values": `{"type":"object","properties":{"a":{"enum":[` +
			many(251, strings.Repeat("x", 60)) + `]}}}`,
		"characters of names": `{"type":"object","properties":{"` + strings.Repeat("x", MaxStrictNameChars+1) +
			`":{"type":"string"}}}`,
		"objects and other values": `{"type":"object","properties":{"a":{"minLength":1,"pattern":"x","anyOf":[{"type":"object","properties":{"b":{"type":"string"}}},{"type":"string"}]}}}`,
		"5001 properties": `{"type":"object","properties":{` +
			strings.ReplaceAll(many(5001, "p"), `",`, `":{"type":"null"},`) + `:{"type":"null"}}}`,
		"an enum holds an object":     `{"type":"object","properties":{"a":{"enum":[{}]}}}`,
		"/properties/a/items: it acc": `{"type":"object","properties":{"a":{"type":"array"}}}`,
	} {
		_, err := Lower(OpenAIStrict, json.RawMessage(in))
		if !errors.Is(err, ErrNotStrict) || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q, got %v", why, err)
		}
		if _, err := Lower(OpenAI, json.RawMessage(in)); err != nil {
			t.Errorf("%s: without strict: %v", why, err)
		}
	}
}

func TestLowerRefuses(t *testing.T) {
	for why, in := range map[string]string{
		"is not JSON": `{`, "more text": `{} {}`, "want an object, got array": `[]`,
		"of an object, got one of string": `{"type":"string"}`,
		"no alternative":                  `{"anyOf":[{"type":"string"}]}`,
		"nested more": strings.Repeat(`{"not":`, 600) + "{}" +
			strings.Repeat("}", 600),
	} {
		if _, err := Lower(Gemini, json.RawMessage(in)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: want %q, got %v", brief(in), why, err)
		}
	}
}

// TestDefinitionsThatGrow: a small schema whose definitions use each other ten times over stays small.
func TestDefinitionsThatGrow(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 12 {
		fmt.Fprintf(&b, `"d%d":{"type":"object","properties":{`, i)
		for j := range 10 {
			fmt.Fprintf(&b, `%s"p%d":{"$ref":"#/$defs/d%d"}`, map[bool]string{true: ",", false: ""}[j > 0], j, i+1)
		}
		b.WriteString(`}},`)
	}
	b.WriteString(`"d12":{"type":"string"}}}`)
	for _, target := range []Target{Gemini, OpenAIStrict, AnthropicStrict} {
		got, err := Lower(target, json.RawMessage(b.String()))
		if err != nil && !errors.Is(err, ErrNotStrict) {
			t.Fatal(err)
		}
		if len(got.Schema) > 2*maxInlined {
			t.Errorf("%s: %d bytes", target, len(got.Schema))
		}
	}
	long := `{"type":"object","properties":{` + `"p":{"$ref":"#/$defs/d"}`
	for i := range 1_000 {
		long += fmt.Sprintf(`,"p%d":{"$ref":"#/$defs/d"}`, i)
	}
	long += `},"$defs":{"d":{"type":"string","description":"` + strings.Repeat("long ", 10_000) + `"}}}`
	for _, target := range []Target{Gemini, OpenAIStrict} {
		got, err := Lower(target, json.RawMessage(long))
		if target == OpenAIStrict != errors.Is(err, ErrNotStrict) || len(got.Schema) > 2*maxInlined {
			t.Errorf("%s: %d bytes, %v", target, len(got.Schema), err)
		}
	}
	if _, err := DropNulls(json.RawMessage(b.String()), json.RawMessage(`{"a":{"p0":null}}`)); err != nil {
		t.Fatal(err)
	}
}

func TestDropNulls(t *testing.T) {
	const in = `{"type":"object","required":["r"],"properties":{
		"r":{"type":"string"},"o":{"type":"integer"},"n":{"type":["string","null"]},"e":{"enum":["a"]},"any":{},
		"c":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/t"}]},"t":{"$ref":"#/$defs/t"},"l":{"type":"array","items":{"$ref":"#/$defs/t"}}},
		"$defs":{"t":{"type":"object","properties":{"v":{"type":"string"},"next":{"$ref":"#/$defs/t"}},"required":["v"]}}}`
	for input, want := range map[string]string{
		`{"r":null,"o":null,"n":null,"e":null,"any":null,"x":null}`: `{"r":null,"n":null,"any":null,"x":null}`,
		`{"c":null,"t":{"v":null,"next":null}}`:                     `{"t":{"v":null}}`,
		`{"l":[{"v":"a","next":null},null,{"next":{"next":null}}]}`: `{"l":[{"v":"a"},null,{"next":{}}]}`,
		`{"r":"kept  as it is" }`:                                   `{"r":"kept  as it is" }`,
		`{"r":`:                                                     `{"r":`,
		`[null]`:                                                    `[null]`,
	} {
		got, err := DropNulls(json.RawMessage(in), json.RawMessage(input))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", input, got, err, want)
		}
	}
}

// keywordsOf is what each target may get, written down a second time: by the provider's documents, not by subset.go.
var keywordsOf = map[Target]string{
	AnthropicStrict: "type title description enum properties required items anyOf additionalProperties default format",
	OpenAIStrict: "type title description enum properties required items anyOf additionalProperties pattern format " +
		"minimum maximum exclusiveMinimum exclusiveMaximum " +
		"multipleOf minItems maxItems $ref $defs",
	Gemini: "type title description enum properties required items prefixItems anyOf additionalProperties format " +
		"minimum maximum minItems maxItems",
}

// inSubset walks a lowered schema and says what the target would refuse.
func inSubset(target Target, node any, root bool) error {
	m, ok := node.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no schema", node)
	}
	if len(m) > 1 && m["$ref"] != nil {
		return fmt.Errorf("$ref does not stand alone: %s", text(m))
	}
	allowed := strings.Fields(keywordsOf[target])
	for k, v := range m {
		if !slices.Contains(allowed, k) {
			return fmt.Errorf("%s is not in the subset of %s", k, target)
		}
		var below []any
		switch k {
		case "properties", "$defs":
			for _, e := range v.(map[string]any) {
				below = append(below, e)
			}
		case "items":
			below = []any{v}
		case "anyOf", "prefixItems":
			below = v.([]any)
		case "additionalProperties":
			if _, isBool := v.(bool); !isBool {
				below = []any{v}
			}
		}
		if (k == "anyOf" || k == "$ref") && root {
			return fmt.Errorf("%s at the root", k)
		}
		for _, e := range below {
			if err := inSubset(target, e, false); err != nil {
				return err
			}
		}
	}
	if strict := target == OpenAIStrict || target == AnthropicStrict; strict && hasType(m, "object") {
		if m["additionalProperties"] != false {
			return fmt.Errorf("an object is not closed: %s", text(m))
		}
		if fields := m["properties"].(map[string]any); target == OpenAIStrict &&
			len(stringsOf(m["required"])) != len(fields) {
			return fmt.Errorf("an object has optional fields: %s", text(m))
		}
	}
	return nil
}

// holds checks one schema against everything that lowering promises, with the given inputs.
func holds(t *testing.T, raw json.RawMessage, inputs []any) (fitted map[Target]int) {
	t.Helper()
	declared, err := schema.CompileInput(raw)
	if err != nil {
		return nil // not a tool
	}
	if root := decoded(t, string(raw)); circular(root, root) {
		return nil
	}
	fitted = map[Target]int{}
	for _, target := range Targets {
		got, err := Lower(target, raw)
		if err != nil {
			continue
		}
		again, err := Lower(target, raw)
		if err != nil || string(again.Schema) != string(got.Schema) || !cmp.Equal(again.Changes, got.Changes) {
			t.Fatalf("%s of %s is not the same twice", target, raw)
		}
		if _, checked := keywordsOf[target]; checked {
			if err := inSubset(target, decoded(t, string(got.Schema)), true); err != nil {
				t.Fatalf("%s of %s\nis %s\n%v", target, raw, got.Schema, err)
			}
		}
		lowered, err := schema.CompileOutput(got.Schema)
		if err != nil {
			t.Fatalf("%s of %s\nis %s\nwhich does not compile: %v", target, raw, got.Schema, err)
		}
		for _, in := range inputs {
			if _, isObject := in.(map[string]any); !isObject {
				continue // the input of a call is an object
			}
			input := must.JSON(t, in)
			if declared.Validate(input) != nil {
				continue
			}
			fitted[target]++
			if back, err := DropNulls(raw, input); err != nil || declared.Validate(back) != nil {
				t.Fatalf("the input %s without nulls is %s and no longer fits %s: %v", input, back, raw, err)
			}
			candidates := []any{in}
			if target == OpenAIStrict {
				root := decoded(t, string(got.Schema))
				candidates = filled(root, root, in)
			}
			if !slices.ContainsFunc(candidates, func(c any) bool {
				input, err := json.Marshal(c)
				return err == nil && lowered.Validate(input) == nil
			}) {
				t.Fatalf("%s of %s\nis %s\nwhich refuses %s", target, raw, got.Schema, input)
			}
		}
	}
	return fitted
}

// inPlace are the keywords whose schemas apply to the same value as the schema they stand in.
var inPlace = []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"}

// circular says whether a part of a schema needs its own verdict on a value for its verdict on that value. JSON Schema
// forbids that (Core, 9.4.1): the validator's verdict then depends on where it entered the circle.
func circular(root, doc any) bool {
	switch d := doc.(type) {
	case map[string]any:
		if leadsBack(root, d, nil) {
			return true
		}
		for _, e := range d {
			if circular(root, e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(d, func(e any) bool { return circular(root, e) })
	}
	return false
}

// leadsBack follows what applies to the same value, until a reference comes that was followed already.
func leadsBack(root, doc any, followed []string) bool {
	d, isObject := doc.(map[string]any)
	if !isObject {
		return false
	}
	for _, k := range inPlace {
		switch e := d[k].(type) {
		case string:
			target, _ := lookup(root, strings.TrimPrefix(e, "#"))
			if slices.Contains(followed, e) || leadsBack(root, target, append(slices.Clone(followed), e)) {
				return true
			}
		case []any:
			if slices.ContainsFunc(e, func(e any) bool { return leadsBack(root, e, followed) }) {
				return true
			}
		default:
			if leadsBack(root, e, followed) {
				return true
			}
		}
	}
	return false
}

// filled are the ways to write an input with null for every field that a strict schema requires and the input leaves
// out.
func filled(root, schema, value any) []any {
	const most = 64 // ways that are looked at
	node := schema.(map[string]any)
	if ref, ok := node["$ref"].(string); ok {
		target, _ := lookup(root, strings.TrimPrefix(ref, "#"))
		return filled(root, target, value)
	}
	var out []any
	if choice, ok := node["anyOf"].([]any); ok {
		for _, branch := range choice {
			out = append(out, filled(root, branch, value)...)
		}
		return out[:min(len(out), most)]
	}
	switch v := value.(type) {
	case map[string]any:
		out = []any{map[string]any{}}
		fields, _ := node["properties"].(map[string]any)
		all := names(v)
		for name := range fields {
			if _, given := v[name]; !given {
				all = append(all, name)
			}
		}
		for _, name := range all {
			ways := []any{nil}
			if field, given := v[name]; given {
				ways = []any{field}
				if fields[name] != nil {
					ways = filled(root, fields[name], field)
				}
			}
			var next []any
			for _, so := range out {
				for _, way := range ways {
					one := clone(so.(map[string]any))
					one[name] = way
					next = append(next, one)
				}
			}
			out = next[:min(len(next), most)]
		}
	case []any:
		out = []any{[]any{}}
		for _, e := range v {
			ways := []any{e}
			if node["items"] != nil {
				ways = filled(root, node["items"], e)
			}
			var next []any
			for _, so := range out {
				for _, way := range ways {
					next = append(next, append(slices.Clone(so.([]any)), way))
				}
			}
			out = next[:min(len(next), most)]
		}
	default:
		out = []any{value}
	}
	return out
}

func decoded(t *testing.T, raw string) any {
	t.Helper()
	doc, _, err := read(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return doc
}

// maker makes random schemas of few names and values, so that they meet, and inputs that are likely to fit them.
type maker struct{ *rand.Rand }

func (m maker) of(list ...any) any { return list[m.IntN(len(list))] }
func (m maker) once(in int) bool   { return m.IntN(in) == 0 }

func (m maker) schema(depth int) any {
	if m.once(25) {
		return m.of(true, false)
	}
	s := map[string]any{}
	if !m.once(5) {
		s["type"] = m.of("object", "object", "string", "integer", "number", "array", "boolean", "null",
			[]any{"string", "null"}, []any{"object", "string"})
	}
	if depth > 0 && (hasType(s, "object") || m.once(8)) {
		m.object(s, depth)
	}
	if depth > 0 && (hasType(s, "array") || m.once(12)) {
		if m.once(3) {
			s["prefixItems"] = []any{m.schema(depth - 1), m.schema(depth - 1)}
		}
		if !m.once(3) {
			s["items"] = m.schema(depth - 1)
		}
		if m.once(4) {
			s["contains"], s["maxItems"] = m.schema(depth-1), 2
		}
	}
	more := map[string]any{
		"minLength": 1, "maxLength": 2, "pattern": m.of("^[ab]*$", `^(?!b)[ab\p{Lu}]*$`), "minimum": 1, "maximum": 2,
		"multipleOf": 2, "enum": []any{"a", 1, nil}, "const": m.of("a", 1, nil),
		"default": "a", "description": "text", "format": m.of("date", "uri", "email"), "$comment": "x",
		"uniqueItems": true, "minProperties": 1,
	}
	for _, k := range names(more) {
		if m.once(15) {
			s[k] = more[k]
		}
	}
	if m.once(6) {
		s["$ref"] = m.of("#/$defs/a", "#/$defs/b", "#", "#/properties/a")
	}
	if depth > 0 {
		for _, k := range []string{"allOf", "anyOf", "oneOf"} {
			if m.once(8) {
				s[k] = []any{m.schema(depth - 1), m.schema(depth - 1)}
			}
		}
		if m.once(12) {
			s["if"], s["then"] = m.schema(depth-1), m.schema(depth-1)
		}
		if m.once(12) {
			s["not"] = m.schema(depth - 1)
		}
	}
	return s
}

func (m maker) object(s map[string]any, depth int) {
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c"} {
		if !m.once(3) {
			fields[name] = m.schema(depth - 1)
		}
	}
	s["properties"] = fields
	if m.once(2) {
		s["required"] = []any{m.of("a", "b")}
	}
	if m.once(6) {
		s["additionalProperties"] = m.of(true, false, m.schema(depth-1))
	}
	if m.once(12) {
		s["unevaluatedProperties"] = m.of(true, false)
	}
	if m.once(12) {
		s["patternProperties"] = map[string]any{"^[cx]": m.schema(depth - 1)}
	}
}

func (m maker) value(root map[string]any, schema any, depth int) any {
	s, _ := schema.(map[string]any)
	if s == nil || depth == 0 || m.once(12) {
		return m.of(nil, "a", "b", 1, 2, true, map[string]any{}, []any{}, map[string]any{"a": "a"})
	}
	if c, ok := s["const"]; ok {
		return c
	}
	if ref, ok := s["$ref"].(string); ok {
		if target, ok := lookup(root, strings.TrimPrefix(ref, "#")); ok {
			return m.with(root, s, m.value(root, target, depth-1), depth)
		}
	}
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[k].([]any); ok {
			return m.with(root, s, m.value(root, list[m.IntN(len(list))], depth-1), depth)
		}
	}
	if list := types(s); len(list) > 0 {
		switch m.of(anyList(list)...) {
		case "string":
			return m.of("a", "ab", "", "2026-01-01")
		case "integer", "number":
			return m.of(0, 1, 2)
		case "boolean":
			return true
		case "null":
			return nil
		case "array":
			out := []any{}
			for range m.IntN(3) {
				out = append(out, m.value(root, s["items"], depth-1))
			}
			return out
		}
	}
	return m.with(root, s, map[string]any{}, depth)
}

// with adds the fields of a schema to a value that is an object.
func (m maker) with(root, s map[string]any, value any, depth int) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	object = clone(object)
	fields, _ := s["properties"].(map[string]any)
	for _, name := range names(fields) {
		if _, given := object[name]; !given && (m.once(2) || slices.Contains(stringsOf(s["required"]), name)) {
			object[name] = m.value(root, fields[name], depth-1)
		}
	}
	return object
}

func anyList(list []string) []any { return listOf(list) }

// TestLowerKeepsWhatFits makes schemas and inputs; the seed is fixed and a failure names both.
func TestLowerKeepsWhatFits(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	fitted := map[Target]int{}
	for range 500 {
		root := map[string]any{"$defs": map[string]any{"a": m.schema(1), "b": m.schema(2)}}
		if !m.once(4) {
			root["type"] = "object"
		}
		m.object(root, 3)
		for _, k := range []string{"allOf", "anyOf", "oneOf"} {
			if m.once(6) {
				root[k] = []any{m.schema(2), m.schema(2)}
			}
		}
		raw := must.JSON(t, root)
		root = decoded(t, string(raw)).(map[string]any)
		var inputs []any
		for range 12 {
			inputs = append(inputs, m.value(root, root, 6))
		}
		for target, n := range holds(t, raw, inputs) {
			fitted[target] += n
		}
	}
	for _, target := range Targets {
		if fitted[target] < 50 {
			t.Errorf("%s: %d inputs fit their schemas, which tests little", target, fitted[target])
		}
	}
	t.Log(fitted)
}

func FuzzLower(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"allOf":[{"$ref":"#"},{"oneOf":[{},{"const":1}]}]}}}`), []byte(`{"a":{}}`))
	f.Add([]byte(`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"a":{"items":[{}],"exclusiveMinimum":true}}}`), []byte(`{"a":[1]}`))
	f.Add([]byte(`{"type":["object","null"],"anyOf":[{"required":["a"]},{"properties":{"a":false}}],"patternProperties":{"x":{}}}`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, raw, input []byte) {
		for _, target := range Targets {
			_, _ = Lower(target, raw) // also what no tool may have: it does not panic
		}
		_, _ = DropNulls(raw, input)
		if doc, _, err := read(input); err == nil {
			holds(t, raw, []any{doc})
		}
	})
}
