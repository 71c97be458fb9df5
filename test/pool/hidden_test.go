//go:build linux

package pool

import (
	"encoding/json"
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

// TestDeniedPathsAreHidden: what read_file may not read, no other tool shows, under no other name.
func TestDeniedPathsAreHidden(t *testing.T) {
	t.Parallel()
	const secret = "the-hidden-content"
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	tools, caps, noBox := sandboxedTools(t)
	dir := realDir(t)
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	must(os.Chmod(dir, 0o755))
	must(os.MkdirAll(filepath.Join(dir, "secret/deep"), 0o755))
	must(os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for _, f := range []string{"secret/key.txt", "secret/deep/key2.txt", ".env", "sub/.env", "mine.txt"} {
		must(os.WriteFile(filepath.Join(dir, f), []byte(secret+" "+f+"\n"), 0o644))
	}
	must(os.WriteFile(filepath.Join(dir, "open.txt"), []byte("open content\n"), 0o644))
	must(os.Link(filepath.Join(dir, "secret/deep/key2.txt"), filepath.Join(dir, "sub/other.txt")))
	must(os.Symlink("secret/key.txt", filepath.Join(dir, "link.txt")))
	must(os.Symlink("secret", filepath.Join(dir, "linked")))
	where := policy.Rules{Deny: rules(t, "read_file(secret/**)", "read_file(.env)"),
		Allow: rules(t, "bash", "edit_file", "write_file")}
	startWorker(t, s, worker.Config{Tools: tools, Isolation: caps.Isolation(), Rules: where,
		Workspaces: map[toolyard.Workspace]string{"default": dir}})
	c := startClient(t, s)
	call := func(name string, input map[string]any) toolyard.Call {
		raw, err := json.Marshal(input)
		must(err)
		return toolyard.Call{Tool: name, Input: raw}
	}
	type in = map[string]any
	attempts := []toolyard.Call{
		call("read_file", in{"file_path": "secret/key.txt"}), call("read_file", in{"file_path": "link.txt"}),
		call("read_file", in{"file_path": "sub/.env"}),
		call("read_file", in{"file_path": "sub/other.txt"}), call("read_file", in{"file_path": "secret/key.tx"}),
		call("read_file", in{"file_path": "linked/key2.txt"}),
		call("grep", in{"pattern": "hidden-content"}), call("grep", in{"pattern": "hidden", "path": "secret"}),
		call("grep", in{"pattern": "hidden", "path": "sub/other.txt"}),
		call("grep", in{"pattern": "hidden", "path": "linked"}),
		call("grep", in{"pattern": "hidden", "path": "link.txt"}),
		call("glob", in{"pattern": "**"}), call("glob", in{"pattern": "secret/*"}),
		call("glob", in{"pattern": "*/key.txt"}), call("glob", in{"pattern": "*", "path": "secret"}),
		call("glob", in{"pattern": "s*/deep/key2.txt"}),
		call("edit_file", in{"file_path": "secret/key.txt", "old_string": "the", "new_string": "x"}),
		call("edit_file", in{"file_path": "sub/other.txt", "old_string": "nothing like it", "new_string": "x"}),
		call("write_file", in{"file_path": "secret/new.txt", "content": "x"}),
		call("write_file", in{"file_path": ".env", "content": "x"}),
	}
	if noBox == nil {
		for _, command := range []string{
			"cat secret/key.txt", "cat secret/deep/key2.txt .env sub/.env", "cat link.txt sub/other.txt linked/key.txt",
			"grep -r hidden . --exclude=mine.txt", "ls -R secret",
			"mv secret secret2; cat secret2/*; cat secret2/deep/*", "chmod -R 777 secret .env; cat .env secret/key.txt",
			"rm -rf secret; cat secret/key.txt",
			"ln sub/other.txt a; cat a; ln .env b; cat b", "mv sub sub2; cat sub2/.env sub2/other.txt; mv sub2 sub",
			"umount secret .env; cat .env secret/key.txt",
			"cp --reflink=auto .env c; cat c", "exec 3<.env; cat <&3", "echo x >.env; cat .env",
			"tar c . --exclude=mine.txt | tr -d '\\000' | grep -a hidden-content",
		} {
			attempts = append(attempts, call("bash", in{"command": command}))
		}
	}
	for _, a := range attempts {
		got := results(t, c, toolyard.Batch{Calls: []toolyard.Call{a}})[0]
		shown := strings.ReplaceAll(got.Output+"\n"+got.Error, secret+" mine.txt", "")
		for _, what := range []string{secret, "key2.txt:", "deep/"} {
			if a.Tool == "bash" && what != secret { // the names stand in the command
				continue
			}
			if strings.Contains(shown, what) && !strings.Contains(string(a.Input), what) {
				t.Errorf("%s %s shows %q: %s", a.Tool, a.Input, what, shown)
			}
		}
	}
	// The positive control: what no rule is about is there for all of them.
	control := []toolyard.Call{call("read_file", in{"file_path": "mine.txt"}),
		call("grep", in{"pattern": "hidden-content"}), call("glob", in{"pattern": "**/mine.txt"})}
	if noBox == nil {
		control = append(control, call("bash", in{"command": "cat mine.txt; echo new >made.txt; cat made.txt"}))
	}
	for _, a := range control {
		if got := results(t, c, toolyard.Batch{Calls: []toolyard.Call{a}})[0]; got.IsError ||
			!strings.Contains(got.Output, "mine.txt") {
			t.Errorf("%s %s: %s %s %s", a.Tool, a.Input, got.Code, got.Output, got.Error)
		}
	}
	for _, f := range []string{"secret/key.txt", "secret/deep/key2.txt", ".env", "sub/.env"} {
		if data, err := os.ReadFile(filepath.Join(dir, f)); err != nil ||
			string(data) != fmt.Sprintf("%s %s\n", secret, f) {
			t.Errorf("%s afterwards: %q, %v", f, data, err)
		}
	}
}

// TestAPathRuleThatNoWorkspaceHolds is refused when the worker starts: as a deny it would deny every call. One about
// another workspace of the worker says nothing in this one.
func TestAPathRuleThatNoWorkspaceHolds(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	tools, err := builtin.All(builtin.Options{})
	must.OK(t, err)
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "key.txt"), []byte("content of the key"), 0o600))
	}
	deny := func(texts ...string) worker.Config {
		return worker.Config{Tools: tools, Rules: policy.Rules{Deny: rules(t, texts...)},
			Workspaces: map[toolyard.Workspace]string{"one": one, "two": two}}
	}
	startDispatcher(t, s, dispatcher.Config{})
	if _, err := worker.New(testenv.Broker(t, s, "/worker/test"), deny("read_file(/etc/**)")); err == nil ||
		!strings.Contains(err.Error(), "no workspace of this worker holds that path") {
		t.Errorf("%v", err)
	}
	startWorker(t, s, deny("read_file("+one+"/key.txt)"))
	c := startClient(t, s)
	for ws, want := range map[toolyard.Workspace]string{"one": "permission_denied", "two": "ok"} {
		got := results(t, c, toolyard.Batch{Workspace: ws,
			Calls: []toolyard.Call{{Tool: "read_file", Input: []byte(`{"file_path":"key.txt"}`)}}})
		if codes(got) != want {
			t.Errorf("in %s: %s, %s", ws, codes(got), got[0].Error)
		}
	}
}
