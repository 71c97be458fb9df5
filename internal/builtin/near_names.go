package builtin

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/suggest"
	"github.com/toolyard/toolyard/tool"
)

// notThere is the error of a path that does not exist. It suggests similar names from the deepest existing directory on
// the way; all of that is inside the workspace.
func (w *workspace) notThere(t target) error {
	wanted := strings.TrimPrefix(t.name, t.have+"/")
	wanted, deeper, _ := strings.Cut(wanted, "/")
	what := t.field + " " + show(t.written) + " is not there"
	if deeper != "" {
		what += ": " + show(path.Join(t.have, wanted)) + " does not exist"
	}
	near := w.nearNames(t.have, wanted)
	if len(near) == 0 {
		return tool.Invalid("%s; use glob to see what is", what)
	}
	return tool.Invalid("%s; did you mean %s?", what, strings.Join(near, " or "))
}

// nearNames returns the entries of dir whose names are most similar to wanted, best first, and those that differ only
// in their extension. It ignores the call's context, because the number of entries is bounded.
func (w *workspace) nearNames(dir, wanted string) []string {
	entries, _, err := w.readDir(context.Background(), dir, MaxNearEntries)
	if err != nil {
		return nil // suggestions are optional
	}
	var all, otherEndings []string
	for _, e := range entries {
		if all = append(all, e.Name()); stem(wanted) != "" && strings.EqualFold(stem(wanted), stem(e.Name())) {
			otherEndings = append(otherEndings, e.Name())
		}
	}
	var names []string
	for _, name := range append(suggest.Names(wanted, all, MaxNearNames), otherEndings...) {
		if name = show(path.Join(dir, name)); len(names) < MaxNearNames && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// stem is a name without its extension.
func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }
