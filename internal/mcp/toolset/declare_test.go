package toolset

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestNumbersOfASchemaAreAsTheServerWroteThem: a list of ids, or a bound, has more digits than a float64 can keep
// apart. A number past its range is no reason to leave out the other tools.
func TestNumbersOfASchemaAreAsTheServerWroteThem(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("long numbers"))
	ids := find(t, set, "ids")
	for name, raw := range map[string]json.RawMessage{"input": ids.InputSchema, "output": ids.OutputSchema} {
		compiled, err := schema.CompileInput(raw)
		must.OK(t, err)
		for input, fits := range map[string]bool{`{"a":9007199254740993}`: true, `{"a":9007199254740992}`: false,
			`{"b":18446744073709551615}`: true, `{"b":18446744073709551616}`: false} {
			v, err := schema.ParseInput(json.RawMessage(input))
			must.OK(t, err)
			if err := compiled.Check(v); (err == nil) != fits {
				t.Errorf("%s schema: %s: %v, want fits=%t", name, input, err, fits)
			}
		}
		if !strings.Contains(string(raw), `"default":9007199254740993`) {
			t.Errorf("%s schema: %s", name, raw)
		}
	}
	find(t, set, "echo")
}
