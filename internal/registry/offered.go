package registry

import (
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/tool"
)

// Declarations returns those of the surface's tools, in its order and with its deferrals.
func (s *Surface) Declarations() []tool.Declaration {
	out := make([]tool.Declaration, len(s.Tools))
	for i := range s.Tools {
		out[i] = s.Tools[i].Declaration
		out[i].ShouldDefer = out[i].ShouldDefer || s.Tools[i].Defer
	}
	return out
}

// Names returns the names under which a provider gets the surface's tools. They depend on the surface alone. A changed
// name never equals one that resolves to something else: a tool, an alias or a blocked tool.
func (s *Surface) Names(rule toolname.Rule) toolname.Table {
	tools := make([]string, len(s.Tools))
	reserved := slices.Clone(s.Blocked)
	for i := range s.Tools {
		tools[i] = s.Tools[i].Name
		if s.Tools[i].Origin.Base() {
			reserved = append(reserved, s.Tools[i].Aliases...)
		}
	}
	return toolname.NewTable(rule, tools, reserved)
}

// Unmangle finds the tool that a call means whose model was given names by one of the rules; without rules, by any. A
// name that resolves unchanged is returned unchanged. So is an unknown name, and one that two rules map to different
// tools.
func (s *Surface) Unmangle(name string, rules ...toolname.Rule) string {
	return s.Unmangler(rules...)(name)
}

// Unmangler is [Surface.Unmangle] for many names. It makes the tables once, and only if some name does not resolve. It
// is not safe for concurrent use.
func (s *Surface) Unmangler(rules ...toolname.Rule) func(name string) string {
	if len(rules) == 0 {
		rules = toolname.Rules
	}
	var tables []toolname.Table
	return func(name string) string {
		if _, code := s.Find(name, nil); code != toolyard.UnknownTool {
			return name
		}
		if tables == nil {
			for _, rule := range rules {
				tables = append(tables, s.Names(rule))
			}
		}
		found := ""
		for _, t := range tables {
			if tool, ok := t.Original(name); ok {
				if found != "" && found != tool {
					return name
				}
				found = tool
			}
		}
		if found == "" {
			return name
		}
		return found
	}
}

// ForModels reports whether models are offered a tool of a name: all but those of [toolyard.ForPeople], which only a
// batch with the option undo sees.
func ForModels(name string) bool { return !toolyard.ForPeople(name) }
