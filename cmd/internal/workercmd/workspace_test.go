package workercmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestClearingAQuarantine: an operator sees what it is about, and ends it when that is gone.
func TestClearingAQuarantine(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := Command(&out, &out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"workspace"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	root, err := place.Hold(dir, nil)
	must.OK(t, err)
	defer func() { _ = root.Close() }()
	if out, err := run("status", dir); err != nil || out != dir+": in use as usual\n" {
		t.Errorf("%q %v", out, err)
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, ".vscode"), 0o755))
	must.OK(t, root.Quarantine(place.Quarantine{Why: "a mount\x1b[2J", Since: time.Now(), Places: []string{".vscode"}}))
	if out, err := run("status", dir); err != nil || !strings.Contains(out, "in quarantine since") ||
		!strings.Contains(out, "look at .vscode") || strings.Contains(out, "\x1b") {
		t.Errorf("%q %v", out, err)
	}
	var state []workspaceState
	if out, err := run("status", "--json", dir); err != nil || json.Unmarshal([]byte(out), &state) != nil ||
		len(state) != 1 || state[0].Dir != dir || state[0].Since == nil || state[0].Places[0] != ".vscode" {
		t.Errorf("%q %v", out, err)
	}
	if out, err := run("clear", dir); err == nil || !strings.Contains(err.Error(), ".vscode is still there") ||
		root.Check() == nil {
		t.Errorf("%q %v", out, err)
	}
	must.OK(t, os.Remove(filepath.Join(dir, ".vscode")))
	if out, err := run("clear", dir); err != nil || out != dir+": in use as usual\n" || root.Check() != nil {
		t.Errorf("%q %v %v", out, err, root.Check())
	}
	for _, args := range [][]string{{"clear"}, {"status"}, {"clear", filepath.Join(dir, "missing")}} {
		if _, err := run(args...); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// TestClearingUndoesTheRest: what stands in for a missing .git while a command runs does not stay for ever. git would
// take the workspace for a broken repository.
func TestClearingUndoesTheRest(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{".git": "", ".toolyard/.gitignore": "*\n",
		".toolyard/run":        `{"made":[{"Path":".git","Make":"file"}],"absent":[".vscode"],"mode":493}`,
		".toolyard/quarantine": `{"why":"after a command","since":"2026-11-27T00:00:00Z","places":[".vscode"]}`,
	} {
		path := filepath.Join(dir, name)
		must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
	}
	var out bytes.Buffer
	cmd := Command(&out, &out)
	cmd.SetArgs([]string{"workspace", "clear", dir})
	must.OK(t, cmd.ExecuteContext(t.Context()))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
