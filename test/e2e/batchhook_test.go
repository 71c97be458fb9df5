//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestAHookAfterTheBatch has a script see all calls of a batch, say something to the model and ask the agent to stop,
// and one that breaks.
func TestAHookAfterTheBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   toolyard.Notice
	}{
		"context": {`cat > "$TOOLYARD_HOOKS_DIR/seen.json"; echo '{"hookSpecificOutput":{"hookEventName":"PostToolBatch","additionalContext":"the build is red"}}'`, toolyard.Notice{Context: "the build is red"}},
		"objection": {`cat > "$TOOLYARD_HOOKS_DIR/seen.json"; echo "that is enough" >&2; exit 2`,
			toolyard.Notice{Stop: true, Reason: "that is enough"}},
	} {
		h := newHooked(t,
			`{"PostToolBatch": [{"hooks": [{"type": "command", "command": "\"$TOOLYARD_HOOKS_DIR/after.sh\""}]}]}`,
			map[string]string{"after.sh": "#!/bin/sh\n" + c.script + "\n"})
		h.write("in.json",
			`{"calls":[{"id":"c1","tool":"read_file","input":{"file_path":"a.txt"}},{"id":"c2","tool":"nope","input":{"token":"tok-4711-en"}}]}`)
		stdout, stderr, status := h.run(nil, []string{"API_TOKEN=tok-4711-en"}, "run", "--json", "--hooks", h.hooks,
			"in.json")
		if status != 0 {
			t.Fatalf("%s: status %d: %s", name, status, stderr)
		}
		v := viewOf(t, stdout)
		if v.Notice == nil || v.Notice.Context != c.want.Context || v.Notice.Stop != c.want.Stop ||
			v.Notice.Reason != c.want.Reason || len(v.Results) != 2 || v.Status != toolyard.StatusCompleted {
			t.Errorf("%s: notice %+v, status %s, want %+v", name, v.Notice, v.Status, c.want)
		}
		for _, format := range []string{"anthropic", "openai", "openai-chat", "gemini"} {
			stdout, stderr, status := h.run(nil, []string{"API_TOKEN=tok-4711-en"}, "run", "--format", format,
				"--hooks", h.hooks, "in.json")
			if said := c.want.Context + c.want.Reason; status != 0 || strings.Count(stdout, said) != 1 {
				t.Errorf("%s as %s: status %d: %s%s", name, format, status, stdout, stderr)
			}
		}
		seen, err := os.ReadFile(filepath.Join(filepath.Dir(h.hooks), "seen.json"))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr)
		}
		for _, want := range []string{`"hook_event_name":"PostToolBatch"`, `"tool_use_id":"c1"`, `"tool_use_id":"c2"`,
			"There is no tool"} {
			if !strings.Contains(string(seen), want) {
				t.Errorf("%s: the hook was not told %s: %s", name, want, seen)
			}
		}
		if strings.Contains(string(seen), "tok-4711-en") {
			t.Errorf("%s: the hook was told a secret: %s", name, seen)
		}
	}
}
