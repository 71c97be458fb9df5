package dispatchercmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/admission"
)

func TestQuotaFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quotas")
	read := func(text string) (admission.Grants, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := serveFlags{quotaFile: file, agentQuotas: []string{"ci-1=calls:1"}}
		return o.quotas()
	}
	g, err := read("# agents\n\n  agent ci-*=batches:2 \nteam   web-*=calls:3,waiting-bytes:4\n" +
		"tool web_*=calls-per-second:5\ndependency api.example.com:443=calls:2,wait-ms:100\n" +
		"budget team web-*=calls:5,per-hours:24")
	if err != nil || len(g.Agents) != 2 || g.Agents[0].Agents != "ci-1" || g.Agents[1].Batches != 2 ||
		len(g.Teams) != 1 || g.Teams[0].Calls != 3 || g.Teams[0].WaitingBytes != 4 ||
		len(g.Tools) != 1 || g.Tools[0].PerSecond != 5 || len(g.Dependencies) != 1 || g.Dependencies[0].Calls != 2 ||
		len(g.Budgets) != 1 || g.Budgets[0].Calls != 5 {
		t.Errorf("they are %+v, %v", g, err)
	}
	for text, want := range map[string]string{
		"agent ci-*=batches:2\nteem web=calls:1": "line 2: \"teem\": a line begins with agent, team, tool, dependency or budget",
		"tool web_*=batches:1":                   "none of the keys calls,",
		"budget day=calls:1":                     "a budget is of one of",
		"agent":                                  "line 1: \"\": write AGENTS=KEY:N",
		"\nteam web-*=calls:none":                "line 2: \"web-*=calls:none\": calls is \"none\"",
		strings.Repeat("team a=calls:1\n", admission.MaxGrants+1): "line 1001: there are more than 1000",
		strings.Repeat("#\n", maxQuotaFileBytes/2) + "#":          "longer than",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if _, err := (&serveFlags{quotaFile: file + "-no"}).quotas(); err == nil {
		t.Error("a file that is not there is read")
	}
}
