package workercmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/place"
)

// TestClearingAQuarantine: an operator sees what it is about, and ends it when that is gone.
func TestClearingAQuarantine(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := Command(&out, &out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"workspace"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	root, err := place.Hold(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if out, err := run("status", dir); err != nil || out != dir+": in use as usual\n" {
		t.Errorf("%q %v", out, err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".vscode"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := root.Quarantine(place.Quarantine{Why: "a mount\x1b[2J", Since: time.Now(),
		Places: []string{".vscode"}}); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Remove(filepath.Join(dir, ".vscode")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("clear", dir); err != nil || out != dir+": in use as usual\n" || root.Check() != nil {
		t.Errorf("%q %v %v", out, err, root.Check())
	}
	for _, args := range [][]string{{"clear"}, {"status"}, {"clear", filepath.Join(dir, "missing")}} {
		if _, err := run(args...); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
