package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNestedSchemasCompile: the work to compile a schema does not double with each level of nesting. Allocations count
// the work, so that a busy machine shows no other result.
func TestNestedSchemasCompile(t *testing.T) {
	const fifth = `"$schema":"https://json-schema.org/draft/`
	for _, draft := range []string{``, fifth + `2020-12/schema",`, fifth + `2019-09/schema",`,
		`"$schema":"http://json-schema.org/draft-07/schema#",`} {
		for open, end := range map[string]string{`{"properties":{"a":`: `}}`, `{"type":"array","items":`: `}`,
			`{"anyOf":[`: `]}`, `{"not":`: `}`, `{"dependencies":{"a":`: `}}`, `{"definitions":{"a":`: `}}`} {
			work := func(depth int) float64 {
				raw := json.RawMessage(`{` + draft + `"type":"object","properties":{"v":` + strings.Repeat(open, depth) +
					`{"type":"string"}` + strings.Repeat(end, depth) + `}}`)
				return testing.AllocsPerRun(1, func() {
					if _, err := CompileInput(raw); err != nil {
						t.Errorf("%s: %v", raw, err)
					}
				})
			}
			if few, more := work(3), work(9); more > 6*few {
				t.Errorf("%s%s: %.0f allocations for 3 levels, %.0f for 9", draft, open, few, more)
			}
		}
	}
}

// TestSchemasAreCheckedWhole: every keyword of a draft must have a value that it may have, at each level.
func TestSchemasAreCheckedWhole(t *testing.T) {
	for _, draft := range []string{``, `"$schema":"https://json-schema.org/draft/2020-12/schema",`,
		`"$schema":"https://json-schema.org/draft/2019-09/schema",`} {
		for _, bad := range []string{`"title":1`, `"description":1`, `"deprecated":"yes"`, `"examples":1`,
			`"contentEncoding":1`, `"contentSchema":1`, `"minLength":"1"`, `"properties":[]`, `"items":1`,
			`"unevaluatedItems":1`, `"$comment":1`, `"definitions":{"a":1}`, `"dependencies":{"a":1}`} {
			for _, at := range []string{`%`, `"items":{%}`, `"not":{"anyOf":[{%}]}`, `"$defs":{"a":{"properties":{"a":{%}}}}`,
				`"definitions":{"a":{%}}`, `"dependencies":{"a":{%}}`} {
				raw := `{` + draft + `"type":"object","properties":{"v":{` + strings.Replace(at, `%`, bad, 1) + `}}}`
				if _, err := CompileInput(json.RawMessage(raw)); err == nil {
					t.Errorf("compiled: %s", raw)
				}
			}
		}
	}
}
