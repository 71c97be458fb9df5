package policy

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard/tool"
)

// Examples are commands, paths in the workspace or URLs that a rule with a specifier must match, and others that it
// must not match. They state what the author of the rule expects, and are checked before the rule is used.
type Examples struct {
	Matches, Spares []string
}

// CheckExamples says which examples a rule of a list (allow, ask or deny) gets wrong for a tool, or returns nil. A rule
// with a specifier needs at least one example of each kind; one without matches every call, so it can have no Spares.
func (r Rule) CheckExamples(d *tool.Declaration, list Behavior, ex Examples) error {
	if r.Specifier == "" {
		if len(ex.Spares) > 0 {
			return fmt.Errorf("rule %q: it matches every call of the tool, so it spares none", r)
		}
		return nil
	}
	if len(ex.Matches) == 0 || len(ex.Spares) == 0 {
		return fmt.Errorf("rule %q: give at least one example that it matches and one that it spares", r)
	}
	if err := r.Check(d); err != nil {
		return err
	}
	var errs []error
	for _, c := range []struct {
		want     bool
		examples []string
	}{{true, ex.Matches}, {false, ex.Spares}} {
		for _, example := range c.examples {
			matches, err := r.matchesExample(d, list, example)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("rule %q: example %q: %w", r, example, err))
			case matches && !c.want:
				errs = append(errs, fmt.Errorf("rule %q matches %q, which is an example of what it spares", r, example))
			case !matches && c.want:
				errs = append(errs, fmt.Errorf("rule %q does not match %q, which is an example of what it matches", r,
					example))
			}
		}
	}
	return errors.Join(errs...)
}

func (r Rule) matchesExample(d *tool.Declaration, list Behavior, example string) (bool, error) {
	kind, field := specifierOf(d)
	input, err := json.Marshal(map[string]string{field: example})
	if err != nil {
		return false, err
	}
	req := Request{Declaration: d, Input: input}
	if kind == kindPath {
		req.Paths = []string{example}
	}
	s := newSubject(&req)
	if !s.known {
		return false, errors.New(s.why)
	}
	if list == Allow {
		_, ok := allowedByRules([]Rule{r}, d, s)
		return ok, nil
	}
	_, _, ok := firstMatch([]Rule{r}, false, d, s)
	return ok, nil
}
