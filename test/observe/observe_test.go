// Package observe holds the alerts and the dashboard of deploy/observe against the metrics that exist, and the runbook
// against the alerts.
package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/metrics"
)

// ofTarget are the labels that Prometheus gives to all that it scrapes.
var ofTarget = []string{"instance", "job"}

// series are the labels of each series that exists, by its name.
func series() map[string][]string {
	out := map[string][]string{}
	for _, m := range metrics.All() {
		with := append(slices.Clone(ofTarget), m.Labels...)
		if m.Kind == "histogram" {
			out[m.Name+"_sum"], out[m.Name+"_count"] = with, with
			out[m.Name+"_bucket"] = append(slices.Clone(with), "le")
			continue
		}
		out[m.Name] = with
	}
	return out
}

// values are those that a label can have, where the project knows them all.
var values = func() map[string][]string {
	v := map[string][]string{"code": {"ok"}, "mode": {"shared", "exclusive"}, "outcome": {"ran", "not_started"}}
	for _, c := range toolyard.Codes {
		v["code"] = append(v["code"], string(c))
	}
	for _, c := range toolyard.Classes {
		v["class"] = append(v["class"], string(c))
	}
	return v
}()

// check reports what an expression asks for that no process has: metrics, labels, and values of labels.
func check(expr string) error {
	root, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return err
	}
	have, found := series(), 0
	var problems []error
	known := map[string]bool{}
	parser.Inspect(root, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		found++
		with, ok := have[v.Name]
		if !ok {
			problems = append(problems, fmt.Errorf("there is no metric %q", v.Name))
			return nil
		}
		for _, l := range with {
			known[l] = true
		}
		for _, m := range v.LabelMatchers {
			switch possible := values[m.Name]; {
			case m.Name == model.MetricNameLabel:
			case !slices.Contains(with, m.Name):
				problems = append(problems, fmt.Errorf("%s has no label %q", v.Name, m.Name))
			case possible != nil && !slices.ContainsFunc(possible, m.Matches):
				problems = append(problems, fmt.Errorf("no %s of %s matches %s", m.Name, v.Name, m))
			}
		}
		return nil
	})
	parser.Inspect(root, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !known[l] {
					problems = append(problems, fmt.Errorf("no metric of %s has the label %q", a, l))
				}
			}
		}
		return nil
	})
	if found == 0 {
		problems = append(problems, errors.New("it asks for no metric"))
	}
	return errors.Join(problems...)
}

// TestCheck: what does not exist is found, or the tests below prove nothing.
func TestCheck(t *testing.T) {
	for expr, want := range map[string]string{
		`toolyard_workers > 1`: "",
		`sum by (le, mode) (rate(toolyard_ticket_wait_seconds_bucket[5m]))`: "",
		`toolyard_wrokers`:                        `no metric "toolyard_wrokers"`,
		`toolyard_ticket_wait_seconds`:            `no metric`,
		`toolyard_workers{class="READ_ONLY"}`:     `no label "class"`,
		`toolyard_calls_total{code="unknown"}`:    `no code of`,
		`toolyard_calls_total{class=~"READ.*"}`:   "",
		`sum by (pool) (toolyard_calls_total)`:    `the label "pool"`,
		`sum by (le) (toolyard_call_seconds_sum)`: `the label "le"`,
		`toolyard_workers >`:                      "parse error",
		`1 + 1`:                                   "no metric",
	} {
		err := check(expr)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}

// repository reads a file of the repository.
func repository(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAlerts: Prometheus takes the file, each alert asks for what exists, and says how urgent it is and what is wrong.
// The runbook has a section for each, in their order, and for nothing else.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.Parse(repository(t, "deploy/observe/alerts.yaml"), false,
		model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.Fatal("there are no rules")
	}
	var names []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			if err := check(r.Expr); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: its severity is %q; use warning or critical", r.Alert, s)
			}
			if r.Annotations["summary"] == "" || !strings.HasPrefix(r.Alert, "Toolyard") {
				t.Errorf("%s: it needs a name that begins with Toolyard, and a summary", r.Alert)
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("there are %d alerts", len(names))
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (\S+)\n\nIt means: [^\n]+(?:\n[^\n]+)*\n\nDo: `).
		FindAllSubmatch(repository(t, "docs/runbook.md"), -1) {
		sections = append(sections, string(m[1]))
	}
	if !slices.Equal(names, sections) {
		t.Errorf("the alerts are\n%q\nand the runbook has sections for\n%q", names, sections)
	}
	if n := strings.Count(string(repository(t, "docs/runbook.md")), "\n## "); n != len(sections) {
		t.Errorf("%d of %d sections of the runbook say what the alert means and what to do", len(sections), n)
	}
}

// dashboard is what we read of Grafana's file.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ RefID, Expr string }
	}
}

// TestDashboard: each panel asks for what exists, with variables that the dashboard has, and no two lie on each other.
func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal(repository(t, "deploy/observe/dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	variables := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if m, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			name, label, _ := strings.Cut(strings.TrimSuffix(m, ")"), ", ")
			if err := check("sum by (" + label + ") (" + name + ")"); err != nil {
				t.Errorf("the variable %s: %v", v.Name, err)
			}
		}
	}
	variable := regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)
	taken := map[[2]int]string{}
	ids, asked := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: it needs a title and an id of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("%q lies on %q, or outside", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%q shows nothing, or does not say what", p.Title)
		}
		for _, target := range p.Targets {
			expr := variable.ReplaceAllStringFunc(target.Expr, func(v string) string {
				name := strings.Trim(v, "${}")
				if !slices.Contains(variables, name) {
					t.Errorf("%q asks for the variable %s, which is not there", p.Title, v)
				}
				if name == "__rate_interval" {
					return "5m"
				}
				return ".*"
			})
			if err := check(expr); err != nil {
				t.Errorf("%q: %v", p.Title, err)
			}
			for name := range series() {
				if strings.Contains(target.Expr, name) {
					asked[name] = true
				}
			}
		}
	}
	if d.Title == "" || d.UID == "" || len(asked) < 15 {
		t.Errorf("the dashboard %q (%q) shows %d metrics", d.Title, d.UID, len(asked))
	}
}
