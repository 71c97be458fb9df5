//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// isolates reports whether commands run on this machine.
func isolates(t *testing.T) bool {
	t.Helper()
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	_, err = box.Probe(t.Context())
	return err == nil
}

// TestTheToolsOfTheExamples runs the commands that the examples declare; where nothing isolates them, each call says
// so.
func TestTheToolsOfTheExamples(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	must.OK(t, err)
	p := newPlace(t, map[string]string{"README.md": "Toolyard has\nthree words\n", "other.md": "no such word\n"})
	stdout, stderr, status := p.run(nil, nil, "run", "--json", "--tools", filepath.Join(examples, "tools.yaml"),
		"--allow", "todo_list", filepath.Join(examples, "tools.json"))
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	results := viewOf(t, stdout).Results
	if len(results) != 3 {
		t.Fatalf("%d results", len(results))
	}
	if !isolates(t) {
		for _, r := range results {
			if r.Code != toolyard.SetupRequired {
				t.Errorf("%s without isolation: %q %s", r.Tool, r.Code, r.Error)
			}
		}
		return
	}
	if r := results[0]; !strings.HasPrefix(strings.TrimSpace(r.Output), "4 ") || r.Isolation == "none" {
		t.Errorf("count_words: %q %s%s, isolation %s", r.Code, r.Output, r.Error, r.Isolation)
	}
	var found struct {
		Count int      `json:"count"`
		Lines []string `json:"lines"`
	}
	r := results[1]
	if err := json.Unmarshal(r.Structured, &found); err != nil || found.Count != 1 ||
		!slices.Equal(found.Lines, []string{"README.md:1: Toolyard has"}) {
		t.Errorf("todo_list: %q %s %s (%v)", r.Code, r.Structured, r.Error, err)
	}
	if r := results[2]; r.Code != toolyard.ExecutionFailed || !strings.Contains(r.Error, "missing.md") {
		t.Errorf("count_words of a file that is not there: %q %s", r.Code, r.Error)
	}
}

// TestAPoolAsAToolsetOfAnother: one pool is the MCP server of another, over a pipe.
func TestAPoolAsAToolsetOfAnother(t *testing.T) {
	p := newPlace(t, map[string]string{"note.txt": "from the other pool\n"})
	manifest := filepath.Join(t.TempDir(), "tools.yaml")
	text := `{"servers": [{"name": "other", "trusted": true, "only": ["read_file"], "command": ["` +
		filepath.Join(bin, "dispatcher") + `", "mcp", "--workspace", "` + p.dir + `"], "env": {"TMPDIR": "` +
		t.TempDir() + `"}}]}`
	must.OK(t, os.WriteFile(manifest, []byte(text), 0o600))
	file := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{ID: "c1", Tool: "mcp__other__read_file", Input: input(map[string]any{"file_path": "note.txt"})},
		{ID: "c2", Tool: "mcp__other__write_file", Input: input(map[string]any{"file_path": "x", "content": "y"})},
	}})
	stdout, stderr, status := p.run(nil, nil, "run", "--json", "--tools", manifest, file)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	results := viewOf(t, stdout).Results
	if len(results) != 2 || !strings.Contains(results[0].Output, "from the other pool") ||
		results[0].Class != toolyard.ReadOnly || results[1].Code != toolyard.UnknownTool {
		t.Errorf("the results are %+v; %s", results, stderr)
	}
}

// TestBadManifests: one line says the file and the key, and nothing runs.
func TestBadManifests(t *testing.T) {
	p := newPlace(t, map[string]string{"bad.yaml": "tools:\n  - nam: x\n", "empty.yaml": ""})
	for file, want := range map[string][]string{"bad.yaml": {"bad.yaml", "tools[0]", `did you mean "name"`},
		"empty.yaml": {"empty.yaml", "empty"}, "nowhere.yaml": {"no such file"}} {
		stdout, stderr, status := p.run(nil, nil, "tools", "--tools", file)
		refused(t, stdout, stderr, status, append([]string{"--tools"}, want...)...)
	}
}

// TestCheckSaysWhatServersAnswer: a worker's check starts servers as the worker would.
func TestCheckSaysWhatServersAnswer(t *testing.T) {
	dir := t.TempDir()
	check := func(manifest string) (string, int) {
		t.Helper()
		file := filepath.Join(dir, "tools.yaml")
		must.OK(t, os.WriteFile(file, []byte(manifest), 0o600))
		cmd := exec.Command(filepath.Join(bin, "worker"), "check", "--tools", file)
		out, err := cmd.CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	server := `{name: s, trusted: true, only: [glob, write_file], command: ["` + filepath.Join(bin, "dispatcher") +
		`", mcp, --workspace, "` + dir + `"]}`
	for _, c := range []struct {
		manifest string
		status   int
		want     []string
	}{
		{"servers: [" + server + "]", 0, []string{"server s: 2 tools", "mcp__s__glob: READ_ONLY",
			"mcp__s__write_file: WRITE_EXCLUSIVE"}},
		{"servers: [" + server + `, {name: bad, command: ["false"]}]`, 1,
			[]string{"server s: 2 tools", "server bad: no tools", "exit status 1"}},
		{"servers: [{name: s}]", 2, []string{"tools.yaml",
			"servers[0] (s).command: give the server either command or url"}},
	} {
		out, status := check(c.manifest)
		for _, words := range c.want {
			if !strings.Contains(out, words) {
				t.Errorf("%s: it does not say %q:\n%s", c.manifest, words, out)
			}
		}
		if status != c.status {
			t.Errorf("%s: exit status %d, want %d", c.manifest, status, c.status)
		}
	}
}

// module builds the module of the example, and returns the file that declares it.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "word_frequency.wasm"), ".")
	build.Dir = filepath.Join("..", "..", "examples", "wasm")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the module: %v: %s", err, out)
	}
	text := must.Read(t, filepath.Join(build.Dir, "tools.yaml"))
	file := filepath.Join(dir, "tools.yaml")
	must.OK(t, os.WriteFile(file, text, 0o600))
	return file
}

// TestAModuleRunsWithoutASandbox: the example's calls are UNSAFE, and run where no command can.
func TestAModuleRunsWithoutASandbox(t *testing.T) {
	examples, err := filepath.Abs("../../examples/wasm")
	must.OK(t, err)
	file, nothing := module(t), t.TempDir()
	dir := workspace(t, map[string]string{"README.md": "one two two three three three"})
	env := []string{"PATH=" + nothing}
	stdout, stderr, status := runIn(t, nil, env, "toolyard", "run", "--json", "--workspace", dir, "--sandbox", "bwrap",
		"--tools", file, "--allow", "word_frequency", filepath.Join(examples, "batch.json"))
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	results := viewOf(t, stdout).Results
	if len(results) != 3 {
		t.Fatalf("%d results: %s", len(results), stdout)
	}
	want := `{"words":[{"times":3,"word":"three"},{"times":2,"word":"two"},{"times":1,"word":"one"}]}`
	var found any
	if err := json.Unmarshal(results[0].Structured, &found); err != nil {
		t.Fatalf("%s: %v", stdout, err)
	}
	if got, err := json.Marshal(found); err != nil || string(got) != want || results[0].Class != toolyard.Unsafe ||
		results[0].Isolation != "wasm" {
		t.Errorf("the words are %s of class %s in %s, %v", got, results[0].Class, results[0].Isolation, err)
	}
	for _, r := range results[1:] {
		if !r.IsError || strings.Contains(r.Output+r.Error, "root:") {
			t.Errorf("%s: %q %q %q", r.CallID, r.Code, r.Output, r.Error)
		}
	}
	bash := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{{ID: "c1", Tool: "bash",
		Input: input(map[string]any{"command": "true"})}}})
	stdout, _, _ = runIn(t, nil, env, "toolyard", "run", "--json", "--workspace", dir, "--sandbox", "bwrap", "--allow",
		"bash", bash)
	if r := viewOf(t, stdout).Results; len(r) != 1 || r[0].Code != toolyard.SetupRequired {
		t.Errorf("a command ran where nothing isolates: %s", stdout)
	}
	// The dispatcher links no virtual machine, and says so.
	stdout, stderr, _ = run(t, nil, "dispatcher", "run", "--json", "--workspace", dir, "--tools", file, "--allow",
		"word_frequency", filepath.Join(examples, "batch.json"))
	if r := viewOf(t, stdout).Results; len(r) != 3 || r[0].Code != toolyard.SetupRequired ||
		!strings.Contains(r[0].Error, "this program runs none") {
		t.Errorf("the dispatcher's own run: %s %s", stdout, stderr)
	}
	said, _, status := run(t, nil, "worker", "check", "--tools", file)
	if !strings.Contains(said, "tool word_frequency: module") {
		t.Errorf("worker check says, with status %d: %s", status, said)
	}
}
