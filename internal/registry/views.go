package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pattern"
)

// MaxViews bounds the views, and MaxViewTools the tools of one view.
const (
	MaxViews     = 1_000
	MaxViewTools = 1_000
)

// View is the part of the registry that agents see. A name that ends in "*" matches all names with that prefix.
type View struct {
	Agent string   // an agent's name
	Tools []string // names, or aliases
}

// Views are the operator's views; of those that name an agent the first applies. An agent without a view sees
// everything.
type Views []View

// ParseView reads AGENT=TOOL,TOOL. An empty list of tools shows nothing.
func ParseView(text string) (View, error) {
	agent, tools, ok := strings.Cut(text, "=")
	if !ok {
		return View{}, fmt.Errorf("%q is no view; write AGENT=TOOL,TOOL, where a name may end in *", text)
	}
	v := View{Agent: strings.TrimSpace(agent)}
	for name := range strings.SplitSeq(tools, ",") {
		if name = strings.TrimSpace(name); name != "" {
			v.Tools = append(v.Tools, name)
		}
	}
	for _, list := range [][]string{{v.Agent}, v.Tools} {
		if err := CheckPatterns(list); err != nil {
			return View{}, fmt.Errorf("the view %q: %w", text, err)
		}
	}
	return v, nil
}

// ParseViews reads a list of views, as [ParseView] does.
func ParseViews(texts []string) (Views, error) {
	if len(texts) > MaxViews {
		return nil, fmt.Errorf("there are %d views; at most %d are allowed", len(texts), MaxViews)
	}
	var out Views
	for _, text := range texts {
		v, err := ParseView(text)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// Of returns the number of an agent's view, -1 if it has none. Agents with one view see the same.
func (vs Views) Of(agent toolyard.Agent) int {
	return slices.IndexFunc(vs, func(v View) bool { return pattern.Matches(v.Agent, string(agent)) })
}

// Hide reports whether a tool is hidden from an agent.
func (vs Views) Hide(agent toolyard.Agent, name string, aliases []string) bool {
	n := vs.Of(agent)
	if n < 0 {
		return false
	}
	shows := func(name string) bool { return pattern.MatchesAny(vs[n].Tools, name) }
	return !shows(name) && !slices.ContainsFunc(aliases, shows)
}
