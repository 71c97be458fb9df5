package dispatcher

import (
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
)

// Surface is what a batch of an agent sees of the registry: without what the operator's rules or the batch's own take out, and
// what the agent has no view of. A rule of the batch that cannot be read, or names no tool that there is, is a [*toolyard.InputError].
func (p *Planner) Surface(reg registry.Registry, a toolyard.Agent, o toolyard.Options) (registry.Surface, error) {
	rules, err := BatchRules(o)
	if err != nil {
		return registry.Surface{}, err
	}
	known := slices.Concat(reg.Names(), p.Known)
	names := policy.Names{Tools: known, Servers: policy.ServersOf(known)}
	for _, list := range []struct {
		field string
		rules []policy.Rule
	}{{"options.deny", rules.Deny}, {"options.ask", rules.Ask}} {
		for i, r := range list.rules {
			if err := names.Check(r.Tool); err != nil {
				return registry.Surface{}, &toolyard.InputError{Field: fmt.Sprintf("%s[%d]", list.field, i), Problem: fmt.Sprintf("%q: %v", r, err)}
			}
		}
	}
	s, err := registry.Assemble(reg, func(name string, aliases []string) bool {
		return p.Rules.Blocks(name, aliases) || rules.Blocks(name, aliases) || p.Views.Hide(a, name, aliases)
	})
	if err != nil {
		return s, fmt.Errorf("assemble the surface: %w", err)
	}
	if len(p.DeferAllBut) > 0 {
		return registry.DeferAllBut(s, p.DeferAllBut)
	}
	return s, nil
}

// Surface is the tools that a batch of an agent for a workspace would see if it came now, with these options. A rule that cannot
// be read is a [*toolyard.InputError].
func (d *Dispatcher) Surface(a toolyard.Agent, w toolyard.Workspace, o toolyard.Options) (registry.Surface, error) {
	reg, err := d.roster.registry(w)
	if err != nil {
		return registry.Surface{}, err
	}
	return d.cfg.Planner.Surface(reg, a, o)
}
