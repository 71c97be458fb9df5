package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// Settings are the permissions of a settings.json of Claude Code, with the meaning that they have there.
type Settings struct {
	Rules Rules
	// Home is the directory that ~ stands for; empty: unknown.
	Home string
	Mode Mode // empty: none was given
	// NoBypass says that the mode bypass may not be used.
	NoBypass bool
	// Left lists what does not apply here, each with its place in the file.
	Left []string

	places map[string]written // rules by their text
}

// Add adds one rule of a list: allow, ask or deny. An allow rule that cannot be read is left out. A deny or ask rule
// that cannot be read is an error, since its author relies on it.
func (s *Settings) Add(list Behavior, at, text string) error {
	leave := func(format string, args ...any) error {
		s.Left = append(s.Left, fmt.Sprintf("%s %q: %s", at, text, fmt.Sprintf(format, args...)))
		return nil
	}
	asWritten := text
	name, rest, specified := strings.Cut(text, "(")
	if Foreign(name) {
		return leave("there is no such tool here")
	}
	if specified && slices.Contains([]string{"Read", "Write", "Edit", "Glob", "Grep"}, name) {
		switch {
		case strings.HasPrefix(rest, "//**/"): // at any depth of the machine: of what is reached, the workspaces
			rest = rest[len("//"):]
		case strings.HasPrefix(rest, "//"): // the machine's root
			rest = rest[1:]
		case strings.HasPrefix(rest, "/"): // the project's
			rest = "." + rest
		case strings.HasPrefix(rest, "~") && list == Allow:
			return leave("it is about a home directory, and nothing outside of a workspace is reached; write a path " +
				"in the workspace")
		case strings.HasPrefix(rest, "~"): // a workspace may be in there
			if s.Home == "" || !strings.HasPrefix(rest, "~/") {
				return fmt.Errorf("%q: whose home directory it is cannot be told; write a path in the workspace", text)
			}
			rest = strings.TrimSuffix(s.Home, "/") + rest[1:]
		}
		text = name + "(" + rest
	}
	r, err := ParseRule(text)
	if err != nil {
		if list == Allow {
			return leave("%v", err)
		}
		return err
	}
	if s.places == nil {
		s.places = map[string]written{}
	}
	s.places[r.String()] = written{at, asWritten}
	switch list {
	case Deny:
		s.Rules.Deny = append(s.Rules.Deny, r)
	case Ask:
		s.Rules.Ask = append(s.Rules.Ask, r)
	default:
		s.Rules.Allow = append(s.Rules.Allow, r)
	}
	return nil
}

// SetMode sets the mode that sessions begin with.
func (s *Settings) SetMode(at, mode string) {
	ours := map[string]Mode{"": "", "default": Default, "acceptEdits": AcceptEdits, "plan": Plan, "dontAsk": DontAsk,
		"bypassPermissions": Bypass}
	if m, ok := ours[mode]; ok {
		s.Mode = m
		return
	}
	s.Left = append(s.Left, fmt.Sprintf("%s: there is no mode %q here", at, mode))
}

// written is a rule's place in the file, and its text there.
type written struct{ at, text string }

// For returns the settings for the tools, names and workspaces of a process. It removes the rules that cannot match any
// of them, and lists them in Left. A deny or ask rule that makes no sense for its tool, or that names an unknown tool,
// is an error.
func (s Settings) For(n Names, dirs []string, tools ...*tool.Declaration) (Settings, error) {
	var first error
	s.Left = slices.Clone(s.Left)
	keep := func(list Behavior, rules []Rule) (kept []Rule) {
		for _, r := range rules {
			one := Rules{Allow: []Rule{r}}
			err := n.Check(r.Tool)
			absent := err != nil && strings.HasPrefix(r.Tool, mcpPrefix) // its server is not connected
			if err == nil {
				err = one.Check(tools...)
			}
			outside := false
			if err == nil && path.IsAbs(r.Specifier) {
				err = one.CheckPlaces(dirs, tools...)
				outside = !slices.ContainsFunc(dirs, func(dir string) bool { return mayReach(r.Specifier, dir) })
			}
			switch {
			case err == nil:
				kept = append(kept, r)
			case absent || outside || list == Allow: // nothing outside of the workspaces is reached
				s.Left = append(s.Left, fmt.Sprintf("%s %q: %v", s.places[r.String()].at, s.places[r.String()].text,
					err))
			case first == nil:
				first = fmt.Errorf("%s: %w", s.places[r.String()].at, err)
			}
		}
		return kept
	}
	s.Rules = Rules{Deny: keep(Deny, s.Rules.Deny), Ask: keep(Ask, s.Rules.Ask), Allow: keep(Allow, s.Rules.Allow)}
	return s, first
}

// mayReach reports whether an absolute pattern may match something in a directory, judged by its fixed prefix.
func mayReach(pattern, dir string) bool {
	dir = strings.TrimSuffix(path.Clean(dir), "/") + "/"
	begins := pattern
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		begins = pattern[:i]
	} else {
		begins = strings.TrimSuffix(begins, "/") + "/" // with what is below it
	}
	return strings.HasPrefix(dir, begins) || strings.HasPrefix(begins, dir)
}
