package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
)

// Conflict is a name that several pools or origins offer. A batch sees one of the tools; [Assemble] says which.
type Conflict struct {
	Name    string
	Sources []Source // two at least, by origin and pool
}

// Source is one offer of a name. If a pool has several declarations while its workers are being replaced, that is one
// source.
type Source struct {
	Origin Origin
	Pool   toolyard.Pool
	Hash   string // of the declaration
}

// maxShownSources is how many of a conflict's sources are named.
const maxShownSources = 5

// String returns one line for an operator.
func (c Conflict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q is offered by", c.Name)
	same := true
	for i, s := range c.Sources {
		same = same && s.Hash == c.Sources[0].Hash
		if i >= maxShownSources {
			continue
		}
		if i > 0 {
			b.WriteString(" and")
		}
		fmt.Fprintf(&b, " pool %q (%s)", s.Pool, s.Origin)
	}
	if more := len(c.Sources) - maxShownSources; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if same {
		b.WriteString(", with one declaration")
	} else {
		b.WriteString(", with different declarations")
	}
	b.WriteString("; a batch sees one of them")
	return b.String()
}

// Conflicts returns the names that several pools or origins offer, sorted by name. It does not say which tool wins,
// because that can depend on the workspace.
func Conflicts(entries []Entry) []Conflict {
	byName := map[string][]Source{}
	for _, e := range entries {
		pool := cmp.Or(e.Pool, toolyard.DefaultPool)
		known := slices.ContainsFunc(byName[e.Name], func(s Source) bool {
			return s.Origin == e.Origin &&
				s.Pool == pool
		})
		if !known {
			byName[e.Name] = append(byName[e.Name], Source{e.Origin, pool, e.Hash})
		}
	}
	var out []Conflict
	for name, sources := range byName {
		if len(sources) < 2 {
			continue
		}
		slices.SortFunc(sources, func(a, b Source) int {
			return cmp.Or(a.Origin.rank()-b.Origin.rank(), cmp.Compare(a.Pool, b.Pool))
		})
		out = append(out, Conflict{name, sources})
	}
	slices.SortFunc(out, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
