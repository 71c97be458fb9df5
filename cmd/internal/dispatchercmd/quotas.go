package dispatchercmd

import (
	"fmt"
	"strings"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/admission"
)

// maxQuotaFileBytes bounds the file of --quota-file.
const maxQuotaFileBytes = 1 << 20

// quotas reads the quotas of agents and teams: those of the flags, and behind them those of the file.
func (o *serveFlags) quotas() (g admission.Grants, err error) {
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]admission.Grant
	}{{"--agent-quota", o.agentQuotas, &g.Agents}, {"--team-quota", o.teamQuotas, &g.Teams}} {
		for _, text := range list.texts {
			if err := grant(list.to, text); err != nil {
				return g, cli.Usagef("%s %w", list.flag, err)
			}
		}
	}
	if o.quotaFile == "" {
		return g, nil
	}
	text, err := cli.ReadFile("--quota-file", o.quotaFile, maxQuotaFileBytes)
	if err != nil {
		return g, err
	}
	for n, line := range strings.Split(string(text), "\n") {
		kind, one, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case kind == "" || strings.HasPrefix(kind, "#"):
		case kind == "agent":
			err = grant(&g.Agents, strings.TrimSpace(one))
		case kind == "team":
			err = grant(&g.Teams, strings.TrimSpace(one))
		default:
			err = fmt.Errorf("%q: a line begins with agent or team", kind)
		}
		if err != nil {
			return g, cli.Usagef("--quota-file %s, line %d: %w", o.quotaFile, n+1, err)
		}
	}
	return g, nil
}

// grant reads one quota into a list.
func grant(to *[]admission.Grant, text string) error {
	if len(*to) == admission.MaxGrants {
		return fmt.Errorf("there are more than %d quotas of one kind", admission.MaxGrants)
	}
	g, err := admission.ParseGrant(text)
	if err == nil {
		*to = append(*to, g)
	}
	return err
}
