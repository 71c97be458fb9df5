package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// Settings are the permissions of a settings.json of Claude Code, read as they are meant there.
type Settings struct {
	Rules Rules
	Mode  Mode // empty: none was given
	// NoBypass says that the mode bypass may not be used.
	NoBypass bool
	// Left says what does not apply here, each behind its place in the file.
	Left []string

	places map[string]string // of rules in the file, by the rules' text
}

// Add takes in one rule of a list: allow, ask or deny. A rule that allows and cannot be read is left out; one that denies or asks is
// an error, since somebody relies on it.
func (s *Settings) Add(list Behavior, at, text string) error {
	leave := func(format string, args ...any) error {
		s.Left = append(s.Left, fmt.Sprintf("%s %q: %s", at, text, fmt.Sprintf(format, args...)))
		return nil
	}
	name, rest, specified := strings.Cut(text, "(")
	if Foreign(name) {
		return leave("there is no such tool here")
	}
	if specified && slices.Contains([]string{"Read", "Write", "Edit", "Glob", "Grep"}, name) {
		switch {
		case strings.HasPrefix(rest, "//"): // the machine's root
			rest = rest[1:]
		case strings.HasPrefix(rest, "/"): // the project's
			rest = "." + rest
		case strings.HasPrefix(rest, "~"):
			return leave("it is about a home directory, and nothing outside of a workspace is reached; write a path in the workspace")
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
		s.places = map[string]string{}
	}
	s.places[r.String()] = at
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

// SetMode takes in the mode that sessions begin with.
func (s *Settings) SetMode(at, mode string) {
	ours := map[string]Mode{"": "", "default": Default, "acceptEdits": AcceptEdits, "plan": Plan, "dontAsk": DontAsk, "bypassPermissions": Bypass}
	if m, ok := ours[mode]; ok {
		s.Mode = m
		return
	}
	s.Left = append(s.Left, fmt.Sprintf("%s: there is no mode %q here", at, mode))
}

// For returns the settings for the tools, names and workspaces of a process: without the rules that cannot be about any of them,
// which it names. A rule that denies or asks and makes no sense for its tool, or whose name nobody knows, is an error.
func (s Settings) For(n Names, dirs []string, tools ...*tool.Declaration) (Settings, error) {
	var first error
	s.Left = slices.Clone(s.Left)
	keep := func(list Behavior, rules []Rule) (kept []Rule) {
		for _, r := range rules {
			one := Rules{Allow: []Rule{r}}
			err := n.Check(r.Tool)
			mcp := strings.HasPrefix(r.Tool, mcpPrefix)
			if err == nil {
				err = one.Check(tools...)
			}
			if err == nil && path.IsAbs(r.Specifier) {
				if err = one.CheckPlaces(dirs, tools...); err != nil {
					mcp = true // nothing outside of the workspaces is reached
				}
			}
			switch {
			case err == nil:
				kept = append(kept, r)
			case mcp || list == Allow:
				s.Left = append(s.Left, fmt.Sprintf("%s %q: %v", s.places[r.String()], r, err))
			case first == nil:
				first = fmt.Errorf("%s: %w", s.places[r.String()], err)
			}
		}
		return kept
	}
	s.Rules = Rules{Deny: keep(Deny, s.Rules.Deny), Ask: keep(Ask, s.Rules.Ask), Allow: keep(Allow, s.Rules.Allow)}
	return s, first
}
