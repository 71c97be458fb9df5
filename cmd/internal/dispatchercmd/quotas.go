package dispatchercmd

import (
	"fmt"
	"strings"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/admission"
)

// maxQuotaFileBytes bounds the file of --quota-file.
const maxQuotaFileBytes = 1 << 20

// quotas reads the quotas and rates: those of the flags, and behind them those of the file.
func (o *serveFlags) quotas() (g admission.Grants, err error) {
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]admission.Grant
	}{{"--agent-quota", o.agentQuotas, &g.Agents}, {"--team-quota", o.teamQuotas, &g.Teams}} {
		for _, text := range list.texts {
			if err := add(list.to, text, admission.ParseGrant); err != nil {
				return g, cli.Usagef("%s %w", list.flag, err)
			}
		}
	}
	if o.quotaFile == "" {
		return g, nil
	}
	err = quotasOf(o.quotaFile, &g)
	return g, err
}

// quotasOf reads the lines of a file of quotas, rates and budgets behind those that there are.
func quotasOf(file string, g *admission.Grants) error {
	text, err := cli.ReadFile("--quota-file", file, maxQuotaFileBytes)
	if err != nil {
		return err
	}
	for n, line := range strings.Split(string(text), "\n") {
		kind, one, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case kind == "" || strings.HasPrefix(kind, "#"):
		case kind == "agent":
			err = add(&g.Agents, strings.TrimSpace(one), admission.ParseGrant)
		case kind == "team":
			err = add(&g.Teams, strings.TrimSpace(one), admission.ParseGrant)
		case kind == "tool":
			err = add(&g.Tools, strings.TrimSpace(one), admission.ParseRate)
		case kind == "dependency":
			err = add(&g.Dependencies, strings.TrimSpace(one), admission.ParseRate)
		case kind == "budget":
			err = add((*[]admission.BudgetGrant)(&g.Budgets), strings.TrimSpace(one), admission.ParseBudget)
		default:
			err = fmt.Errorf("%q: a line begins with agent, team, tool, dependency or budget", kind)
		}
		if err != nil {
			return cli.Usagef("--quota-file %s, line %d: %w", file, n+1, err)
		}
	}
	return nil
}

// add reads one quota or rate into a list.
func add[T any](to *[]T, text string, parse func(string) (T, error)) error {
	if len(*to) == admission.MaxGrants {
		return fmt.Errorf("there are more than %d lines of one kind", admission.MaxGrants)
	}
	g, err := parse(text)
	if err == nil {
		*to = append(*to, g)
	}
	return err
}
