//go:build unix

package builtin

import (
	"os"
	"testing"

	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// TestRulesJudgeTheFileThatIsWritten: ".." behind a link leads up from where the link leads, for rules as for tools.
func TestRulesJudgeTheFileThatIsWritten(t *testing.T) {
	b := newBench(t)
	b.put("prod/sub/a", "")
	b.put("prod/deploy.yaml", "old")
	b.link("prod/sub", "link")
	root, ok := b.env.Root.(*place.Root)
	if !ok {
		t.Fatal("no root")
	}
	const written = "link/../deploy.yaml"
	ask, err := policy.ParseRule("write_file(prod/**)")
	b.must(err)
	d := &tool.Declaration{Name: "write_file", Specifier: tool.Specifier{Path: "file_path"}, EditsWorkspace: true}
	input := encode(in{"file_path": written, "content": "new"})
	got := policy.Decide(policy.Rules{Ask: []policy.Rule{ask}}, policy.Request{Declaration: d, Input: input,
		Mode: policy.AcceptEdits, WorkspaceDir: root.Dir(), Paths: root.Forms(written)})
	if got.Behavior != policy.Allow {
		return
	}
	b.ok("write_file", in{"file_path": written, "content": "new"})
	now, err := os.ReadFile(b.at("prod/deploy.yaml"))
	b.must(err)
	t.Errorf("forms %q: %s (%s), and prod/deploy.yaml is %q", root.Forms(written), got.Behavior, got.Source, now)
}
