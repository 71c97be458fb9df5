// Package suggest finds what was probably meant by a name that is not known.
package suggest

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Names returns up to limit of the known names that name may be a slip of, the nearest first, ties in byte order. It is
// empty when none is near: a wild guess misleads more than it helps.
func Names(name string, known []string, limit int) []string {
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
		short, long := min(len(folded), len(other)), max(len(folded), len(other))
		far, most := long-short, max(1, short/3) // no distance is less than the difference in length
		switch {
		case short >= 3 && (strings.Contains(string(other), string(folded)) ||
			strings.Contains(string(folded), string(other))):
		case far <= most && short > 1:
			if far = distance(folded, other); far > most {
				continue
			}
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
