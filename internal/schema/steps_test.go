package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAChecksTimeIsBounded: two alternatives that refer to their schema do not double the time with each level of an
// input, whether it fits or not. Without a bound this test does not end.
func TestAChecksTimeIsBounded(t *testing.T) {
	shared := NewAllowance(time.Hour)
	for name, node := range map[string]string{
		"oneOf": `"oneOf":[
			{"type":"object","properties":{"op":{"const":"not"},"arg":{"$ref":"#/$defs/expr"}},"required":["op"]},
			{"type":"object","properties":{"op":{"const":"minus"},"arg":{"$ref":"#/$defs/expr"}},"required":["op"]}]`,
		"allOf": `"allOf":[{"properties":{"arg":{"$ref":"#/$defs/expr"},"op":{"enum":["not","minus"]}}},
			{"properties":{"arg":{"$ref":"#/$defs/expr"},"op":{"enum":["not","minus"]}}}]`,
		"not": `"not":{"not":{"properties":{"op":{"enum":["not","minus"]},"arg":{"$ref":"#/$defs/expr"}},
			"patternProperties":{"^a":{"$ref":"#/$defs/expr"}}}}`,
	} {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"e":{"$ref":"#/$defs/expr"}},
			"$defs":{"expr":{` + node + `}}}`))
		must.OK(t, err)
		const depth = 40
		v, err := Parse(json.RawMessage(`{"e":` + strings.Repeat(`{"op":"minus","arg":`, depth) + `{"op":"other"}` +
			strings.Repeat(`}`, depth+1)))
		must.OK(t, err)
		for range 10 {
			if err := s.CheckWithin(v, shared); err == nil || !strings.Contains(err.Error(), "too many steps") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestAlternativesThatFailAreCounted: those that a value fails at once cost an error each, which an input of a few
// kilobytes must not have millions of.
func TestAlternativesThatFailAreCounted(t *testing.T) {
	var consts, patterns []string
	for i := range 200 {
		consts = append(consts, fmt.Sprintf(`{"const":%d}`, i))
		patterns = append(patterns, fmt.Sprintf(`"^a{0,%d}":{"const":%d}`, i, i))
	}
	for what, node := range map[string]string{
		"anyOf":             `"items":{"anyOf":[` + strings.Join(consts, ",") + `]}`,
		"oneOf":             `"items":{"oneOf":[` + strings.Join(consts, ",") + `]}`,
		"allOf":             `"items":{"allOf":[` + strings.Join(consts, ",") + `]}`,
		"patternProperties": `"items":{"patternProperties":{` + strings.Join(patterns, ",") + `}}`,
	} {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"list":{"type":"array",` + node + `}}}`))
		must.OK(t, err)
		for items, tooMany := range map[int]bool{100: false, 3_000: true} {
			v, err := Parse(json.RawMessage(`{"list":[` + strings.Repeat(`{"a":-1},`, items) + `{"a":-1}]}`))
			must.OK(t, err)
			if err := s.Check(v); err == nil || strings.Contains(err.Error(), "send a shorter") != tooMany {
				t.Errorf("%s, %d items: %.200v", what, items, err)
			}
		}
	}
}

// TestFieldsOfManyPartsAreCounted: where fields that no part has named are looked for, each part costs a step for each
// field.
func TestFieldsOfManyPartsAreCounted(t *testing.T) {
	list := func(n int, each string) string {
		return strings.TrimSuffix(strings.Repeat(each+",", n), ",")
	}
	fields := func(n int, prefix string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%s%d":1`, prefix, i))
		}
		return strings.Join(all, ",")
	}
	nested := strings.Repeat(`{"allOf":[`, 20) + `{}` + strings.Repeat(`]}`, 20)
	for name, c := range map[string]struct {
		schema string
		many   string // an input that takes too long
		few    string
	}{
		"fields": {`{"type":"object","allOf":[` + list(1000, `{"properties":{"a":{}}}`) + `]}`,
			`{` + fields(1_000, "x") + `}`, `{` + fields(5, "x") + `}`},
		"parts of parts": {`{"type":"object","unevaluatedProperties":{"type":"integer"},"allOf":[` + list(100, nested) +
			`]}`, `{` + fields(1_000, "x") + `}`, `{` + fields(5, "x") + `,"y":""}`},
		"parts that fail": {`{"type":"object","anyOf":[` + list(1000, `{"type":"string"}`) + `]}`,
			`{` + fields(1_000, "x") + `}`, `{` + fields(5, "x") + `}`},
		"items": {`{"type":"object","properties":{"l":{"unevaluatedItems":false,"allOf":[` + list(1000, `{}`) + `]}}}`,
			`{"l":[` + list(1_000, "1") + `]}`, `{"l":[1]}`},
	} {
		s, err := CompileInput(json.RawMessage(c.schema))
		must.OK(t, err)
		for input, tooMany := range map[string]bool{c.many: true, c.few: false} {
			err := s.Validate(json.RawMessage(input))
			if err == nil || strings.Contains(err.Error(), "too many steps") != tooMany {
				t.Errorf("%s, %d bytes: %.200v", name, len(input), err)
			}
		}
	}
}

// TestManyWrongValuesDeepInAnInput: the validator keeps the path of each, which must not take a gigabyte.
func TestManyWrongValuesDeepInAnInput(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"v":{"$ref":"#/$defs/list"}},
		"$defs":{"list":{"type":["array","integer"],"items":{"$ref":"#/$defs/list"}}}}`))
	must.OK(t, err)
	const values = 190_000
	for depth, refused := range map[int]bool{15: false, 100: true} {
		input := json.RawMessage(`{"v":` + strings.Repeat("[", depth) + `"a"` + strings.Repeat(`,"a"`, values) +
			strings.Repeat("]", depth) + `}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.Validate(input)
		runtime.ReadMemStats(&after)
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || mb > 500 ||
			strings.Contains(err.Error(), "flatter") != refused {
			t.Errorf("%d deep: %d MB, %.100v", depth, mb, err)
		}
	}
}

// TestLargeInputsAreChecked: what is long but not deep has steps enough, also when others have used up the allowance.
func TestLargeInputsAreChecked(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"list":{"type":"array",
		"items":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}}`))
	must.OK(t, err)
	v, err := Parse(json.RawMessage(`{"list":[` + strings.Repeat(`"ab",`, 100_000) + `1]}`))
	must.OK(t, err)
	if err := s.CheckWithin(v, &Allowance{left: time.Second}); err != nil {
		t.Error(err)
	}
	var fields []string
	for i := range 50_000 {
		fields = append(fields, fmt.Sprintf(`"f%d":1`, i))
	}
	if s, err = CompileInput(json.RawMessage(`{"type":"object","unevaluatedProperties":{"type":"integer"},
		"anyOf":[{"required":["f1"]},{"required":["f2"]},{"properties":{"f3":{}}}]}`)); err != nil {
		t.Fatal(err)
	}
	if v, err = Parse(json.RawMessage(`{` + strings.Join(fields, ",") + `}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckWithin(v, &Allowance{left: time.Second}); err != nil {
		t.Error(err)
	}
}
