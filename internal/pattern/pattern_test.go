package pattern

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for pattern, want := range map[string]string{
		"read_file": "", "read_*": "", "*": "", "mcp__a__*": "",
		"": "empty", "*_file": "only at the end", "a*b*": "only at the end", "a b\n": "control",
	} {
		switch err := Check(pattern); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", pattern, err)
		case want != "" && err == nil:
			t.Errorf("%q is valid", pattern)
		case want != "" && !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v; want %q in it", pattern, err, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"read_file", "read_file", true}, {"read_file", "read_file2", false}, {"read_*", "read_file", true},
		{"read_*", "read_", true}, {"read_*", "read", false}, {"*", "x", true}, {"*", "", true}, {"", "x", false},
	} {
		if got := Matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %t", c.pattern, c.name, got)
		}
		if got := MatchesAny([]string{"none", c.pattern}, c.name); got != c.want {
			t.Errorf("%q or another matches %q: %t", c.pattern, c.name, got)
		}
	}
}
