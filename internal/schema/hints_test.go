package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestHintsAreForWhatIsShown: a message lists few problems, and for the others nobody looks for the name that may have
// been meant. That takes far longer than the check itself: it compares each wrong name with each known one. Comparing
// allocates, so the allocations show it on any machine.
func TestHintsAreForWhatIsShown(t *testing.T) {
	list := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ",")
	}
	const (
		known = 300
		wrong = 2_000
		most  = 2 * known // allocations for each wrong name; to compare it with each known one takes five times as many
	)
	fields := `{"properties":{` + list(known, `"field_name_%d":{"type":"string"}`) + `}}`
	names := `{"enum":[` + list(known, `"field_name_%d"`) + `]}`
	for name, c := range map[string]struct{ schema, input, want string }{
		"unknown fields": {`{"type":"object",` + fields[1:], `{` + list(wrong, `"feld_name_%d":1`) + `}`,
			`feld_name_0: unknown field; did you mean "field_name_0"?`},
		"unknown fields of parts": {`{"type":"object","allOf":[` + fields + `]}`,
			`{` + list(wrong, `"feld_name_%d":1`) + `}`, `feld_name_0: unknown field; did you mean "field_name_0"?`},
		"values": {`{"type":"object","properties":{"a":{"items":` + names + `}}}`,
			`{"a":[` + list(wrong, `"feld_name_%d"`) + `]}`, `got string "feld_name_0"; did you mean "field_name_0"?`},
		"alternatives": {`{"type":"object","properties":{"a":{"items":{"anyOf":[{"type":"array"},{"type":"object",` +
			fields[1:] + `]}}}}`, `{"a":[` + list(wrong, `{"feld_name_%d":1}`) + `]}`,
			`a[0].feld_name_0: unknown field; did you mean "field_name_0"? (in the closest of 2 alternatives)`},
	} {
		s, err := CompileInput(json.RawMessage(c.schema))
		must.OK(t, err)
		v, err := Parse(json.RawMessage(c.input))
		must.OK(t, err)
		if err := s.Check(v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		allocations := testing.AllocsPerRun(1, func() {
			if s.Check(v) == nil {
				t.Error("it fits")
			}
		})
		if allocations > wrong*most {
			t.Errorf("%s: %.0f allocations for %d wrong names", name, allocations, wrong)
		}
	}
}

// TestExplainingTakesLinearWork: a problem deep inside alternatives is explained once, and not again for each of them
// that surrounds it: neither the text nor the work grows with their number. Allocations count the work.
func TestExplainingTakesLinearWork(t *testing.T) {
	const wrong = 1_000
	s, err := CompileInput(json.RawMessage(
		`{"type":"object","properties":{"c":{"type":"array","items":{"anyOf":[{"type":"string"},{"$ref":"#"}]}}}}`))
	must.OK(t, err)
	work := func(depth int) float64 {
		v, err := Parse(json.RawMessage(strings.Repeat(`{"c":[`, depth) + `{` + many(wrong, `"w@":1`) + `}` +
			strings.Repeat(`]}`, depth)))
		must.OK(t, err)
		invalid, ok := errors.AsType[*Error](s.Check(v))
		if !ok || len(invalid.Problems) != MaxProblems || invalid.More != wrong-MaxProblems {
			t.Fatalf("%d levels: %v", depth, invalid)
		}
		for _, p := range invalid.Problems {
			if strings.Count(p, "in the closest of 2 alternatives") != 1 {
				t.Errorf("%d levels: %s", depth, p)
			}
		}
		if !strings.Contains(invalid.Problems[1], ".w1: unknown field; the fields are c (in") && depth < 4 {
			t.Errorf("%d levels: %s", depth, invalid.Problems[1])
		}
		return testing.AllocsPerRun(1, func() {
			if s.Check(v) == nil {
				t.Error("it fits")
			}
		})
	}
	if few, more := work(3), work(48); more > 2*few {
		t.Errorf("%.0f allocations for 3 levels, %.0f for 48", few, more)
	}
}
