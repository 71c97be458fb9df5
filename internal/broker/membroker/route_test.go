package membroker

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSubjectMatches holds the matching of subjects to its definition by tokens.
func TestSubjectMatches(t *testing.T) {
	matches := func(subject, filter []string) bool {
		for i, f := range filter {
			switch {
			case f == ">":
				return len(subject) > i
			case i >= len(subject) || f != "*" && f != subject[i]:
				return false
			}
		}
		return len(subject) == len(filter)
	}
	rng := rand.New(rand.NewPCG(1, 0))
	draw := func(tokens ...string) string {
		out := make([]string, 1+rng.IntN(4))
		for i := range out {
			out[i] = tokens[rng.IntN(len(tokens))]
		}
		return strings.Join(out, ".")
	}
	found := map[bool]int{}
	for range 100_000 {
		subject, filter := draw("a", "b", "ab", "ba"), draw("a", "b", "ab", "ba", "*")
		if rng.IntN(4) == 0 {
			filter += ".>"
		}
		want := matches(strings.Split(subject, "."), strings.Split(filter, "."))
		found[want]++
		if got := subjectMatches(subject, filter); got != want {
			t.Fatalf("%s matches %s: %v, and should be %v", subject, filter, got, want)
		}
	}
	if found[true] < 1000 || found[false] < 1000 {
		t.Errorf("%d matched and %d did not", found[true], found[false])
	}
	if !subjectMatches("a.b", "") || !subjectMatches("a.b", ">") || subjectMatches("ab", "a*") {
		t.Error("no filter and > match all, and a star inside of a token is a star")
	}
}
