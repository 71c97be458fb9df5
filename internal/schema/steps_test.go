package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
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
		if err != nil {
			t.Fatal(err)
		}
		const depth = 40
		v, err := Parse(json.RawMessage(`{"e":` + strings.Repeat(`{"op":"minus","arg":`, depth) + `{"op":"other"}` +
			strings.Repeat(`}`, depth+1)))
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		for items, tooMany := range map[int]bool{100: false, 3_000: true} {
			v, err := Parse(json.RawMessage(`{"list":[` + strings.Repeat(`{"a":-1},`, items) + `{"a":-1}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(v); err == nil || strings.Contains(err.Error(), "send a shorter") != tooMany {
				t.Errorf("%s, %d items: %.200v", what, items, err)
			}
		}
	}
}

// TestLargeInputsAreChecked: what is long but not deep has steps enough, also when others have used up the allowance.
func TestLargeInputsAreChecked(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"list":{"type":"array",
		"items":{"anyOf":[{"type":"string"},{"type":"integer"}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Parse(json.RawMessage(`{"list":[` + strings.Repeat(`"ab",`, 100_000) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckWithin(v, &Allowance{left: time.Second}); err != nil {
		t.Error(err)
	}
}
