package hooks

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/tool"
)

// matcher selects tools. The zero matcher matches every tool.
type matcher struct {
	names   []string
	pattern *regexp.Regexp
}

var plainMatcher = regexp.MustCompile(`^[A-Za-z0-9_\-, |]*$`)

// parseMatcher reads a matcher as Claude Code does: empty or a star is every tool; letters, digits, _, - and spaces are
// names, with | or , between them; anything else is a regular expression that may match anywhere in the name.
func parseMatcher(text string) (matcher, error) {
	if text == "" || text == "*" {
		return matcher{}, nil
	}
	if !plainMatcher.MatchString(text) {
		re, err := regexp.Compile(text)
		if err != nil {
			return matcher{}, fmt.Errorf("the regular expression %.200q cannot be used here: %w", text, err)
		}
		return matcher{pattern: re}, nil
	}
	var m matcher
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '|' || r == ',' }) {
		if name = strings.TrimSpace(name); name == "" {
			return matcher{}, fmt.Errorf("%.200q has an empty name", text)
		}
		m.names = append(m.names, name)
	}
	if len(m.names) == 0 {
		return matcher{}, fmt.Errorf("%.200q names no tool; leave it out, or write \"*\", for every tool", text)
	}
	return m, nil
}

// check returns an error for names that no tool can have. Claude Code's other tools are accepted, since existing
// scripts list them beside those that we have. The name of a server is that of a rule, and of no tool: as in Claude
// Code it would match nothing.
func (m matcher) check(n policy.Names) error {
	var errs []error
	for _, name := range m.names {
		switch server, ok := strings.CutPrefix(name, "mcp__"); {
		case policy.Foreign(name):
		case ok && !strings.Contains(strings.TrimSuffix(server, "__"), "__"):
			errs = append(errs, fmt.Errorf("%q is a server and no tool, so nothing matches it; write %s__.* for all "+
				"tools of the server", name, strings.TrimSuffix(name, "__")))
		default:
			errs = append(errs, n.Check(name))
		}
	}
	return errors.Join(errs...)
}

func (m matcher) matches(own string) bool {
	theirs := known(own).theirs
	switch {
	case m.pattern != nil:
		return m.pattern.MatchString(own) || m.pattern.MatchString(theirs)
	case m.names != nil:
		return slices.Contains(m.names, own) || slices.Contains(m.names, theirs)
	}
	return true
}

// parseIf reads an if: one permission rule, which must fit the tools that it names.
func parseIf(text string, declared map[string]tool.Declaration) (policy.Rule, error) {
	r, err := policy.ParseRule(text)
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if err == nil {
			d := declared[name]
			err = r.Check(&d)
		}
	}
	return r, err
}

// conditionMatches reports whether an if matches or may match a call: if it may, the hook should check it.
func (s *Set) conditionMatches(r policy.Rule, in *pipeline.HookInput) bool {
	d, ok := s.declared[in.Tool]
	if !ok {
		d = tool.Declaration{Name: in.Tool}
	}
	if r.Specifier != "" && (!ok || partial(string(in.Input))) {
		r.Specifier = "" // what it would be matched against is not known
	}
	req := policy.Request{Declaration: &d, Input: in.Input, WorkspaceDir: in.WorkspaceDir, RulesDir: in.RulesDir()}
	if field := d.Specifier.Path; field != "" && r.Specifier != "" {
		if path, ok := policy.PathField(in.Input, field); ok {
			if forms := in.Root.Forms(path); len(forms) == 1 { // with two forms, a link leads the path elsewhere
				req.Paths = forms
			}
		}
	}
	return r.Touches(req)
}

// partial reports whether a text lacks something: secrets, or its end.
func partial(text string) bool { return redact.Marked(text) || display.Cut(text) }

// findPartialChange finds a text in an input that a hook has changed although it saw only a part of it, and returns its
// place. A text that is unchanged in its place is fine: the pipeline restores the original.
func findPartialChange(update, shown any, at string) (place string, found bool) {
	switch u := update.(type) {
	case string:
		return at, u != shown && partial(u)
	case []any:
		was, _ := shown.([]any)
		for i, e := range u {
			var old any
			if i < len(was) {
				old = was[i]
			}
			if place, found := findPartialChange(e, old, fmt.Sprintf("%s[%d]", at, i)); found {
				return place, true
			}
		}
	case map[string]any:
		was, _ := shown.(map[string]any)
		for k, e := range u {
			if partial(k) {
				return at + ", in a name", true
			}
			if place, found := findPartialChange(e, was[k], at+"."+k); found {
				return place, true
			}
		}
	}
	return "", false
}
