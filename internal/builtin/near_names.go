package builtin

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/editdistance"
	"github.com/toolyard/toolyard/tool"
)

// notThere is the error of a path where nothing is. It offers names like the missing one, from the deepest directory on
// the way that exists; all of that is inside the workspace.
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

// nearNames are the entries of dir whose names are most like wanted, best first. The context of the call has no part in
// it: the number of entries is bounded.
func (w *workspace) nearNames(dir, wanted string) []string {
	entries, _, err := w.readDir(context.Background(), dir, MaxNearEntries)
	if err != nil {
		return nil // the advice is a courtesy
	}
	type candidate struct {
		name string
		far  int
	}
	var found []candidate
	for _, e := range entries {
		if far := distance(wanted, e.Name()); far <= max(1, len(wanted)/3) {
			found = append(found, candidate{e.Name(), far})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.far - b.far })
	var names []string
	for _, c := range found[:min(len(found), MaxNearNames)] {
		names = append(names, show(path.Join(dir, c.name)))
	}
	return names
}

// distance counts the bytes to insert, delete or replace to make a of b, whatever their case, with the same name and
// another ending as near. It gives up, with a large number, where lengths alone are too different.
func distance(a, b string) int {
	const far = 1 << 20
	a, b = strings.ToLower(a), strings.ToLower(b)
	if a == b {
		return 0
	}
	if stem := strings.TrimSuffix(a, path.Ext(a)); stem != "" && stem == strings.TrimSuffix(b, path.Ext(b)) {
		return 1
	}
	if diff := len(a) - len(b); diff > len(a)/3+1 || -diff > len(a)/3+1 || len(a) > 255 {
		return far
	}
	return editdistance.Between([]byte(a), []byte(b))
}
