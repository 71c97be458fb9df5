package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/metrics"
)

// TestMetricsAreListed: docs/metrics.md has a row for each metric, made from its definition.
func TestMetricsAreListed(t *testing.T) {
	const name = "docs/metrics.md"
	var b strings.Builder
	b.WriteString("| metric | type | of | labels | is |\n| --- | --- | --- | --- | --- |\n")
	for _, m := range metrics.All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Kind, m.By, strings.Join(m.Labels, ", "), m.Help)
	}
	keep(t, name, replaceBetween(t, name, "<!-- metrics: from internal/metrics -->\n", "<!-- end of metrics -->",
		"\n"+b.String()+"\n"))
}
