package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// many returns n times a text, in which @ is the number.
func many(n int, text string) string {
	var out []string
	for i := range n {
		out = append(out, strings.ReplaceAll(text, "@", fmt.Sprint(i)))
	}
	return strings.Join(out, ",")
}

// TestClosingTakesLinearWork: a schema of twice the size is closed in about twice the steps, also where many nodes
// refer to one large definition, or ask which fields the whole schema describes.
func TestClosingTakesLinearWork(t *testing.T) {
	for name, nodes := range map[string]string{
		"properties of a part": `"allOf":[{"properties":{%s}}],"title":"@"`,
		"references":           `"$ref":"#/$defs/T"`,
		"references beside keywords": `"default":1,"properties":{"q":{}},"required":["f1"],` +
			`"allOf":[{"$ref":"#/$defs/T"}]`,
		"references in conditions": `"not":{"properties":{"q":{"$ref":"#/$defs/T"}}}`,
	} {
		steps := func(n int) int {
			list := many(n, `"p@":{`+nodes+`}`)
			if strings.Contains(nodes, "%s") {
				list = `"p":{` + fmt.Sprintf(nodes, many(n, `"q@":{}`)) + `}`
			}
			v, err := Parse(json.RawMessage(`{"properties":{` + list + `},"$defs":{"T":{"anyOf":[` +
				many(n, `{"properties":{"f@":{}},"required":["f@"]}`) + `]}}}`))
			if err != nil {
				t.Fatal(err)
			}
			c := newCloser(v.doc.(map[string]any))
			if err := c.run(); err != nil {
				t.Fatalf("%s, %d: %v", name, n, err)
			}
			return MaxClosingSteps - c.steps
		}
		if once, twice := steps(1_000), steps(2_000); once < 1_000 || twice > 3*once {
			t.Errorf("%s: %d steps, and %d for twice the size", name, once, twice)
		}
	}
}

// TestClosingIsBounded: definitions that each contain the ones before have more fields than the schema has bytes.
func TestClosingIsBounded(t *testing.T) {
	const n = 3_000
	var chain []string
	for i := range n {
		chain = append(chain, fmt.Sprintf(`"T%d":{"properties":{"f%d":{}},"$ref":"#/$defs/T%d"}`, i+1, i, i))
	}
	_, err := CompileInput(json.RawMessage(`{"type":"object","properties":{` +
		many(n, `"p@":{"minLength":1,"$ref":"#/$defs/T@"}`) + `},"$defs":{"T0":{},` + strings.Join(chain, ",") + `}}`))
	if err == nil || !strings.Contains(err.Error(), "more than 2000000 steps") {
		t.Errorf("got %v", err)
	}
}
