//go:build linux

package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
)

// TestAWorkspaceThatWasReplacedMeanwhile: the directory of a workspace is the one that the worker has found at its
// start. When its path leads elsewhere later, every call ends as sandbox_violation, and nothing elsewhere is read or
// written. Hooks see nothing of it.
func TestAWorkspaceThatWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	tools, caps, _ := sandboxedTools(t)
	base := realDir(t)
	web, elsewhere := filepath.Join(base, "web"), filepath.Join(base, "elsewhere")
	for dir, text := range map[string]string{web: "mine\n", elsewhere: "a secret of others\n"} {
		must.OK(t, os.Mkdir(dir, 0o755))
		must.OK(t, os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644))
	}
	startWorker(t, s, worker.Config{Tools: tools, Isolation: caps.Isolation(), Mode: policy.Bypass,
		Workspaces: map[toolyard.Workspace]string{"default": web}})
	c := startClient(t, s)
	call := func(name, input string) toolyard.Call { return toolyard.Call{Tool: name, Input: []byte(input)} }
	all := func() []toolyard.Result {
		return results(t, c, toolyard.Batch{Calls: []toolyard.Call{
			call("read_file", `{"file_path": "file"}`),
			call("read_file", fmt.Sprintf(`{"file_path": %q}`, web+"/file")), call("grep", `{"pattern": "."}`),
			call("glob", `{"pattern": "*"}`),
			call("bash", `{"command": "cat file"}`), call("bash", `{"command": "cat file; echo x > made"}`),
			call("write_file", `{"file_path": "made", "content": "x"}`),
			call("edit_file", `{"file_path": "file", "old_string": "s", "new_string": "S"}`),
		}})
	}
	if got := results(t, c, toolyard.Batch{Calls: []toolyard.Call{call("read_file",
		`{"file_path": "file"}`)}}); codes(got) != "ok" || !strings.Contains(got[0].Output, "mine") {
		t.Fatalf("before: %s", codes(got))
	}
	must.OK(t, os.Rename(web, web+"2"))
	must.OK(t, os.Symlink(elsewhere, web))
	for _, r := range all() {
		if r.Code != toolyard.SandboxViolation || strings.Contains(r.Output+r.Error, "secret") {
			t.Errorf("%d %s: %q %s%s", r.Index, r.Tool, r.Code, r.Output, r.Error)
		}
	}
	left, err := os.ReadDir(elsewhere)
	if err != nil || len(left) != 1 {
		t.Errorf("elsewhere: %v %v", left, err)
	}
	// The control: with the old directory in its place it goes on.
	must.OK(t, os.Remove(web))
	must.OK(t, os.Rename(web+"2", web))
	if got := results(t, c, toolyard.Batch{Calls: []toolyard.Call{call("read_file",
		`{"file_path": "file"}`)}}); codes(got) != "ok" {
		t.Errorf("put back: %s %s", codes(got), got[0].Error)
	}
}

// TestWorkspacesThatAreRefused: no worker starts with workspaces that overlap, or that hold what is not theirs.
func TestWorkspacesThatAreRefused(t *testing.T) {
	s := testenv.Server(t)
	base := realDir(t)
	home := filepath.Join(base, "people", "me")
	for _, dir := range []string{"w/web", "docs", "people/me/project"} {
		must.OK(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	for link, to := range map[string]string{"alias": "w/web", "up": "w"} {
		must.OK(t, os.Symlink(to, filepath.Join(base, link)))
	}
	t.Setenv("HOME", home)
	for _, tt := range []struct {
		name string
		dirs map[toolyard.Workspace]string
		want []string // nil: it is taken
	}{
		{"beside each other", map[toolyard.Workspace]string{"web": "w/web", "docs": "docs"}, nil},
		{"one inside another", map[toolyard.Workspace]string{"mono": "w", "web": "w/web"}, []string{`"mono"`, `"web"`}},
		{"the same", map[toolyard.Workspace]string{"a": "docs", "b": "docs"}, []string{`"a"`, `"b"`}},
		{"the same by a link", map[toolyard.Workspace]string{"a": "alias", "b": "w/web"}, []string{`"a"`, `"b"`}},
		{"inside by a link", map[toolyard.Workspace]string{"a": "alias", "b": "w"}, []string{`"a"`, `"b"`}},
		{"inside by a link upward", map[toolyard.Workspace]string{"a": "up", "b": "w/web"}, []string{`"a"`, `"b"`}},
		{"the whole machine", map[toolyard.Workspace]string{"a": "/"}, []string{`"a"`, "/"}},
		{"a home directory", map[toolyard.Workspace]string{"a": "people/me"}, []string{`"a"`, "home directory"}},
		{"what holds a home directory", map[toolyard.Workspace]string{"a": "people"},
			[]string{`"a"`, "home directory"}},
		{"a directory in a home directory", map[toolyard.Workspace]string{"a": "people/me/project"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dirs := map[toolyard.Workspace]string{}
			for name, dir := range tt.dirs {
				if dirs[name] = dir; dir != "/" {
					dirs[name] = filepath.Join(base, dir)
				}
			}
			_, err := worker.New(testenv.Broker(t, s, "/worker/test"), worker.Config{Workspaces: dirs})
			if tt.want == nil && err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v: no %s in it", err, want)
				}
			}
		})
	}
}

// TestBroadPermissionsEditNoProtectedPlace: neither accept_edits nor bypass nor a rule for everything lets an edit at
// what runs by itself.
func TestBroadPermissionsEditNoProtectedPlace(t *testing.T) {
	t.Parallel()
	tools, err := builtin.All(builtin.Options{})
	must.OK(t, err)
	all, err := policy.ParseRules([]string{"write_file"})
	must.OK(t, err)
	named, err := policy.ParseRules([]string{"write_file(**/.vscode/**)"})
	must.OK(t, err)
	for name, cfg := range map[string]worker.Config{
		"accept_edits": {Mode: policy.AcceptEdits}, "bypass": {Mode: policy.Bypass},
		"a rule for the tool":   {Mode: policy.Default, Rules: policy.Rules{Allow: all}},
		"a rule that names one": {Mode: policy.AcceptEdits, Rules: policy.Rules{Allow: named}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.Server(t)
			dir := t.TempDir()
			for file, text := range map[string]string{".git/HEAD": "ref: refs/heads/main\n",
				".git/config": "[core]\n\thooksPath = tools/hooks\n", "bare/HEAD": "ref: refs/heads/main\n",
				"bare/objects/x": "", "bare/refs/x": ""} {
				must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
				must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
			cfg.Tools, cfg.Workspaces = tools, map[toolyard.Workspace]string{"default": dir}
			startWorker(t, s, cfg)
			startDispatcher(t, s, dispatcher.Config{})
			c := startClient(t, s)
			paths := []string{".vscode/tasks.json", "sub/.vscode/tasks.json", "HEAD", "sub/HEAD", "bare/config",
				"tools/hooks/pre-commit", ".husky/pre-commit", ".github/workflows/ci.yml", ".git/hooks/x", ".envrc",
				".npmrc", ".toolyard/run"}
			b := toolyard.Batch{}
			for _, p := range append(paths, "src/a.go") {
				b.Calls = append(b.Calls, toolyard.Call{Tool: "write_file",
					Input: fmt.Appendf(nil, `{"file_path": %q, "content": "owned"}`, p)})
			}
			for i, r := range results(t, c, b) {
				want := toolyard.PermissionDenied
				if i == len(paths) || name == "a rule that names one" && strings.Contains(paths[i], ".vscode") {
					want = ""
				}
				if r.Code != want {
					t.Errorf("%s: %q, want %q: %s%s", append(paths, "src/a.go")[i], r.Code, want, r.Output, r.Error)
				}
			}
		})
	}
}
