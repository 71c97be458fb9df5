package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// Reader is the tool whose denied paths are hidden: from every tool that names a path, from searches and from commands.
const Reader = "read_file"

// hides reports whether a deny rule also hides places, and does not only deny calls of its own tool.
func (r Rule) hides() bool { return r.names(Reader) && r.Specifier != "" }

// Hidden returns a function that reports whether a path is hidden from calls of a tool: by a deny rule with a path for
// [Reader] or, if the tool itself names paths, for this tool. Paths are relative to the workspace, clean and without
// symbolic links. Nil: nothing is hidden. A rule that makes no sense hides everything.
func (rs Rules) Hidden(d *tool.Declaration, workspaceDir string) func(path string) bool {
	var globs []string
	for _, r := range rs.Deny {
		if !r.aboutPlaces(d) {
			continue
		}
		glob, err := relativeGlob(r.Specifier, workspaceDir)
		if err != nil {
			return func(string) bool { return true }
		}
		globs = append(globs, glob)
	}
	if len(globs) == 0 {
		return nil
	}
	return func(p string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool { return matchGlob(glob, p) })
	}
}

// aboutPlaces reports whether a rule's specifier names places that calls of a tool must not access.
func (r Rule) aboutPlaces(d *tool.Declaration) bool {
	kind, _ := specifierOf(d)
	return r.hides() || kind == kindPath && r.Specifier != "" && r.namesAny(d.Name, d.Aliases)
}

// CheckPlaces returns an error for rules with an absolute path that is inside none of a worker's workspaces, or that
// covers a whole one. As a deny such a rule would deny every call of its tool.
func (rs Rules) CheckPlaces(dirs []string, tools ...*tool.Declaration) error {
	var errs []error
	for _, r := range slices.Concat(rs.Deny, rs.Ask, rs.Allow) {
		if !path.IsAbs(r.Specifier) || !slices.ContainsFunc(tools, r.aboutPlaces) {
			continue
		}
		i := slices.IndexFunc(dirs, func(dir string) bool { return r.insideDir(dir) })
		if len(dirs) == 0 {
			errs = append(errs,
				fmt.Errorf("rule %q: the directories of workspaces are not known here; write the path relative to "+
					"the workspace", r))
			continue
		}
		if i < 0 {
			errs = append(errs, fmt.Errorf("rule %q: no workspace of this worker holds that path; write it relative "+
				"to the workspace, or inside %s",
				r, strings.Join(dirs, ", ")))
			continue
		}
		if _, err := relativeGlob(r.Specifier, dirs[i]); err != nil {
			errs = append(errs, fmt.Errorf("rule %q: %w", r, err))
		}
	}
	return errors.Join(errs...)
}

// Portable returns the deny and ask rules that apply on any machine: those without an absolute path, which names a
// directory of one machine.
func (rs Rules) Portable(tools ...*tool.Declaration) Rules {
	keep := func(rules []Rule) []Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool {
			return path.IsAbs(r.Specifier) && slices.ContainsFunc(tools, r.aboutPlaces)
		})
	}
	return Rules{Deny: keep(rs.Deny), Ask: keep(rs.Ask)}
}

// In returns the rules for calls of a tool in one workspace of a worker, without those whose absolute path is inside
// another workspace.
func (rs Rules) In(d *tool.Declaration, dir string, dirs []string) Rules {
	elsewhere := func(r Rule) bool {
		return path.IsAbs(r.Specifier) && r.aboutPlaces(d) && !r.insideDir(dir) &&
			slices.ContainsFunc(dirs, r.insideDir)
	}
	keep := func(rules []Rule) []Rule {
		if !slices.ContainsFunc(rules, elsewhere) {
			return rules
		}
		return slices.DeleteFunc(slices.Clone(rules), elsewhere)
	}
	return Rules{Deny: keep(rs.Deny), Ask: keep(rs.Ask), Allow: keep(rs.Allow), Confirm: rs.Confirm}
}

// insideDir reports whether the rule's absolute path is inside a directory.
func (r Rule) insideDir(dir string) bool {
	_, err := relativeGlob(r.Specifier, dir)
	return dir != "" && !errors.Is(err, errElsewhere)
}
