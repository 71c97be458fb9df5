package schema

import (
	"encoding/json"
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
