package report

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// TestRulesWouldHaveSparedQuestionsInEachWorkspace: what a session remembers of an approval names the workspace, and an
// operator's rule does not.
func TestRulesWouldHaveSparedQuestionsInEachWorkspace(t *testing.T) {
	t.Parallel()
	write := tool.Declaration{Name: "write", Specifier: tool.Specifier{Path: "file_path"}, EditsWorkspace: true}
	once := tool.Declaration{Name: "drop", EditsWorkspace: true}
	b := New()
	for _, w := range []toolyard.Workspace{"", toolyard.DefaultWorkspace, "web", `a "b" in the workspace "c"`} {
		for _, d := range []*tool.Declaration{&write, &once} {
			text := policy.Remember(policy.Request{Declaration: d, Input: json.RawMessage(`{"file_path":"a"}`),
				Workspace: w, Paths: []string{`a in the workspace "d"`}}, "hash")
			s := begin("batch", d.Name)
			s.planned([]string{d.Name}, events.Group{Calls: []int{0}})
			s.add(batch.ChainBatch, 0, events.Started{})
			s.add(batch.ChainItem, 0, events.Waiting{Worker: "w", Remember: text, InputSHA256: "x"})
			s.add(batch.ChainItem, 0, events.Decided{Decision: events.Approve, InputSHA256: "x"})
			b.Add(s.log)
		}
	}
	q := b.Report().Questions
	if want := []Count{{`write(./a in the workspace "d")`, 4}}; q.Allowed != 8 || !cmp.Equal(q.Rules, want) {
		t.Errorf("%d questions were answered with yes, and these rules would have spared them: %v, want %v", q.Allowed,
			q.Rules, want)
	}
}
