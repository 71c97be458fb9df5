package dispatchercmd

import (
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/admission"
)

// quotas reads the quotas of agents and teams.
func (o *serveFlags) quotas() (g admission.Grants, err error) {
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]admission.Grant
	}{{"--agent-quota", o.agentQuotas, &g.Agents}, {"--team-quota", o.teamQuotas, &g.Teams}} {
		if len(list.texts) > admission.MaxGrants {
			return g, cli.Usagef("%s is there %d times; at most %d are allowed", list.flag, len(list.texts),
				admission.MaxGrants)
		}
		for _, text := range list.texts {
			grant, err := admission.ParseGrant(text)
			if err != nil {
				return g, cli.Usagef("%s %w", list.flag, err)
			}
			*list.to = append(*list.to, grant)
		}
	}
	return g, nil
}
