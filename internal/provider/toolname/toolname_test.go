package toolname

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		rule            Rule
		tools, reserved []string
		want            map[string]string
	}{
		{OpenAI, []string{"read_file", "math.add", "späte Ähren"}, nil,
			map[string]string{"read_file": "read_file", "math.add": "math_add", "späte Ähren": "sp_te__hren"}},
		{Gemini, []string{"math.add", "ns:do-it", "9lives", "a b"}, nil,
			map[string]string{"math.add": "math.add", "ns:do-it": "ns:do-it", "9lives": "_9lives", "a b": "a_b"}},
		{MCP, []string{"math.add", "ns:do", long}, nil,
			map[string]string{"math.add": "math.add", "ns:do": "ns_do", long: long}},
		// Whoever had the name keeps it; those who would share one all get a hash.
		{OpenAI, []string{"a.b", "a_b"}, nil, map[string]string{"a_b": "a_b", "a.b": "a_b_2e7336dc"}},
		{OpenAI, []string{"a.b", "a:b"}, nil, map[string]string{"a.b": "a_b_2e7336dc", "a:b": "a_b_6783a31e"}},
		{OpenAI, []string{"a.b"}, []string{"a_b"}, map[string]string{"a.b": "a_b_2e7336dc"}},
		{OpenAI, []string{long}, nil, map[string]string{long: strings.Repeat("x", 55) + "_09ecb6eb"}},
		{OpenAI, []string{"a.b", "a_b", "a_b_2e7336dc"}, nil, map[string]string{"a.b": "a_b_2e7336dc8eba87ef"}},
	} {
		table := NewTable(c.rule, c.tools, c.reserved)
		backwards := slices.Clone(c.tools)
		slices.Reverse(backwards)
		again := NewTable(c.rule, backwards, c.reserved)
		for tool, want := range c.want {
			if got := table.Sent(tool); got != want || again.Sent(tool) != got {
				t.Errorf("%q of %q is sent as %q, and as %q in another order; want %q", tool, c.tools, got,
					again.Sent(tool), want)
			}
		}
	}
}

// TestTablesAreReversible makes tables of names that differ in what is not allowed, and of names after others' hashes.
func TestTablesAreReversible(t *testing.T) {
	var tools []string
	for i := range 200 {
		tools = append(tools, fmt.Sprintf("t%c%d", ".: _/é"[i%6], i/6%5), strings.Repeat(fmt.Sprint(i%7), 50+i%79),
			fmt.Sprintf("%da", i%3))
	}
	for range 3 { // the hashed names join the tools
		for _, r := range Rules {
			table := NewTable(r, tools, []string{"t_1"})
			seen := map[string]string{}
			for _, tool := range slices.Clone(tools) {
				sent := table.Sent(tool)
				if !r.Takes(sent) {
					t.Fatalf("%+v: %q is sent as %q", r, tool, sent)
				}
				if other, ok := seen[sent]; ok && other != tool {
					t.Fatalf("%+v: %q and %q are both sent as %q", r, tool, other, sent)
				}
				seen[sent] = tool
				back, changed := table.Original(sent)
				if changed != (sent != tool) || changed &&
					(back != tool || slices.Contains(tools, sent) || sent == "t_1") {
					t.Fatalf("%+v: %q is sent as %q, which is taken for %q, %t", r, tool, sent, back, changed)
				}
			}
			for sent := range seen {
				if strings.Contains(sent, "_") && len(sent) > 10 && len(tools) < 2_000 {
					tools = append(tools, sent)
				}
			}
			slices.Sort(tools)
			tools = slices.Compact(tools)
		}
	}
}

func TestTakes(t *testing.T) {
	for name, want := range map[string][3]bool{ // of Anthropic, Gemini, MCP
		"a": {true, true, true}, "a-b_c9": {true, true, true}, "a.b": {false, true, true}, "a:b": {false, true, false},
		"9a": {true, false, true}, "-a": {true, false, true},
		"": {}, "a b": {}, "é": {}, strings.Repeat("x", 64): {true, true, true},
		strings.Repeat("x", 65): {false, true, true}, strings.Repeat("x", 129): {},
	} {
		for i, r := range Rules {
			if got := r.Takes(name); got != want[i] {
				t.Errorf("%+v takes %q: %t", r, name, got)
			}
		}
	}
}
