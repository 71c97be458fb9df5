package registry

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/toolname"
)

// TestUnmangleDoesNotGuess: a name that means one tool for one provider and another tool for another is not resolved
// without the rule.
func TestUnmangleDoesNotGuess(t *testing.T) {
	s := assemble(t, register(t, entry(Builtin, "9a"), entry(Builtin, ".9a")), nil)
	// Anthropic accepts 9a, and gets .9a as _9a; Gemini gets 9a as _9a, and .9a as _.9a.
	for _, c := range []struct {
		rules []toolname.Rule
		want  string
	}{{[]toolname.Rule{toolname.Anthropic}, ".9a"}, {[]toolname.Rule{toolname.Gemini}, "9a"}, {nil, "_9a"}} {
		if got := s.Unmangle("_9a", c.rules...); got != c.want {
			t.Errorf("by the rules %+v _9a means %q, want %q", c.rules, got, c.want)
		}
	}
}

// TestUnmangle: every name that any provider gets leads back to its tool, and to no other.
func TestUnmangle(t *testing.T) {
	s := assemble(t, register(t,
		entry(Builtin, "math.add", aliases("plus", "sum_up")), entry(Builtin, "9lives"), entry(Builtin, "ns:do it"),
		entry(Builtin, "secret"),
		entry(Toolset, "sum.up"), entry(Toolset, "a.b"), entry(Toolset, "a:b"), entry(MCP, "sec.ret"),
		entry(MCP, "secret/", aliases("nobody")),
		entry(MCP, "later.on", deferred),
	), func(name string, _ []string) bool { return name == "secret" })
	for _, rule := range toolname.Rules {
		table := s.Names(rule)
		for _, e := range s.Tools {
			sent := table.Sent(e.Name)
			if got := s.Unmangle(sent, rule); got != e.Name {
				t.Errorf("%+v: %q is sent as %q, which means %q", rule, e.Name, sent, got)
			}
			if got := s.Unmangle(sent); got != e.Name && got != sent {
				t.Errorf("%q is sent as %q, which by any rule means %q", e.Name, sent, got)
			}
		}
	}
	for name, want := range map[string]string{
		"math_add": "math.add", "later_on": "later.on", "_9lives": "9lives", "ns_do_it": "ns:do it",
		"sec_ret": "sec.ret",
		"plus":    "plus", "sum_up": "sum_up", // aliases stay what they are
		"secret": "secret", // and so does what is blocked
		"a_b":    "a:b",    // MCP's: elsewhere two tools would be it
		"nobody": "nobody", "": "", "math add": "math add",
	} {
		if got := s.Unmangle(name); got != want {
			t.Errorf("%q means %q, want %q", name, got, want)
		}
	}
	if e, code := s.Resolve(s.Unmangle("sum_up"), nil); code != toolyard.OK || e.Name != "math.add" {
		t.Errorf("the alias resolves to %q, %s", e.Name, code)
	}
	if got := s.Names(toolname.OpenAI).Sent("sum.up"); got == "sum_up" {
		t.Error("a tool is sent under the alias of another")
	}
	if again := s.Unmangler(toolname.Gemini); again("a_b") != "a_b" || again("_9lives") != "9lives" ||
		again("math.add") != "math.add" {
		t.Errorf("Gemini's names: %q %q %q", again("a_b"), again("_9lives"), again("math.add"))
	}
	if got := s.Unmangle("a_b", toolname.OpenAI); got != "a_b" {
		t.Errorf("two tools would be sent to OpenAI as a_b, and it means %q", got)
	}
	if got := s.Unmangle("ns_do_it", toolname.Gemini); got != "ns_do_it" {
		t.Errorf("Gemini got %q as ns:do_it, and ns_do_it means %q", "ns:do it", got)
	}
}
