package schema

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Near returns up to limit of the known names that name may be a slip of, the nearest first, ties in byte order. It is empty when
// none is near: a wild guess misleads more than it helps.
func Near(name string, known []string, limit int) []string {
	const longest = 128 // runes; what is longer is not a slip
	if name == "" || utf8.RuneCountInString(name) > longest {
		return nil
	}
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	folded := fold(name)
	for _, k := range known {
		if utf8.RuneCountInString(k) > longest {
			continue
		}
		other := fold(k)
		far := distance(folded, other)
		short := min(len(folded), len(other))
		switch {
		case far <= max(1, short/3) && short > 1:
		case short >= 3 && (strings.Contains(string(other), string(folded)) || strings.Contains(string(folded), string(other))):
		default:
			continue
		}
		found = append(found, candidate{k, far})
	}
	slices.SortFunc(found, func(a, b candidate) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, c := range found[:min(limit, len(found))] {
		out = append(out, c.name)
	}
	return out
}

// fold takes out what people vary without meaning it: case and separators.
func fold(s string) []rune {
	return []rune(strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s)))
}

// distance counts insertions, deletions, substitutions and swaps of neighbours between a and b.
func distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
