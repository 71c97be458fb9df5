package registry

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

func TestViews(t *testing.T) {
	vs, err := ParseViews([]string{"reviewer=read_file, grep,mcp__github__*", "mute=", "team-*=Read", "*=bash"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		agent, tool string
		hidden      bool
	}{
		{"reviewer", "read_file", false}, {"reviewer", "mcp__github__x", false}, {"reviewer", "bash", true},
		{"reviewer", "mcp__gitlab__x", true},
		{"mute", "read_file", true}, {"team-1", "read_file", false}, {"team-1", "grep", true},
		{"reviewer2", "read_file", true}, {"reviewer2", "bash", false},
	} {
		aliases := map[string][]string{"read_file": {"Read"}}[tt.tool]
		if got := vs.Hide(toolyard.Agent(tt.agent), tt.tool, aliases); got != tt.hidden {
			t.Errorf("%s and %s: hidden %t", tt.agent, tt.tool, got)
		}
	}
	if (Views{}).Hide("a", "t", nil) || vs[:1].Hide("other", "t", nil) {
		t.Error("an agent without a view does not see everything")
	}
	for _, bad := range []string{"", "a", "=x", "a=*x", "a=b*c", "a*b=c", "a=" + strings.Repeat("x", 200), "a=x\x00"} {
		if _, err := ParseViews([]string{bad}); err == nil {
			t.Errorf("%q is a view", bad)
		}
	}
	if _, err := ParseViews(make([]string, MaxViews+1)); err == nil {
		t.Error("there is no limit on views")
	}
	if _, err := ParseView("a=" + strings.Repeat("x,", MaxViewTools+1)); err == nil {
		t.Error("there is no limit on the tools of a view")
	}
}
