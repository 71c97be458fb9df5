package registry

import (
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/suggest"
)

// Resolve finds the tool that a call names: by exact name, else by alias. Only tools of the base registry that are in
// the surface have aliases, so that no connected server can take over a name. loaded are the deferred tools that the
// session has loaded, by name; nil means none.
//
// The code is [toolyard.OK], or why there is no tool to run: unknown_tool, blocked_tool, or schema_not_loaded. With
// schema_not_loaded the entry is set too.
func (s *Surface) Resolve(name string, loaded map[string]bool) (Entry, toolyard.Code) {
	e, code := s.Find(name, loaded)
	return *e, code
}

// Find is [Surface.Resolve] without a copy of the entry, which is large: the caller must not change it. It is never
// nil.
func (s *Surface) Find(name string, loaded map[string]bool) (*Entry, toolyard.Code) {
	if i := s.index(func(e *Entry) bool { return e.Name == name }); i >= 0 {
		return s.ready(i, loaded)
	}
	if slices.Contains(s.Blocked, name) {
		return &Entry{}, toolyard.BlockedTool
	}
	if i := s.index(func(e *Entry) bool { return e.Origin.Base() && slices.Contains(e.Aliases, name) }); i >= 0 {
		return s.ready(i, loaded)
	}
	return &Entry{}, toolyard.UnknownTool
}

// index is that of the first tool for which a condition holds, or -1. Entries are large: it copies none.
func (s *Surface) index(holds func(*Entry) bool) int {
	for i := range s.Tools {
		if holds(&s.Tools[i]) {
			return i
		}
	}
	return -1
}

func (s *Surface) ready(i int, loaded map[string]bool) (*Entry, toolyard.Code) {
	e := &s.Tools[i]
	if e.Deferred() && !loaded[e.Name] {
		return e, toolyard.SchemaNotLoaded
	}
	return e, toolyard.OK
}

// Deferred reports whether the tool's schema stays out of the prompt until it is loaded. AlwaysLoad wins.
func (e *Entry) Deferred() bool { return (e.ShouldDefer || e.Defer) && !e.AlwaysLoad }

// Offered returns the tools whose schemas belong in the prompt of a session that has loaded the given deferred tools,
// in the surface's order.
func (s *Surface) Offered(loaded map[string]bool) []Entry {
	var out []Entry
	for _, e := range s.Tools {
		if !e.Deferred() || loaded[e.Name] {
			out = append(out, e)
		}
	}
	return out
}

// Near returns up to three names of the surface that a wrong name may mean, nearest first.
func (s *Surface) Near(name string) []string {
	const suggestions = 3
	names := make([]string, 0, len(s.Tools))
	for _, e := range s.Tools {
		names = append(names, e.Name)
	}
	return suggest.Names(name, names, suggestions)
}
