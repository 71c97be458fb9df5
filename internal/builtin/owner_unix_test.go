//go:build unix

package builtin

import (
	"io/fs"
	"os"
	"testing"
)

// TestAWorkerThatIsRootKeepsNothingForItself: commands run as the workspace's owner, and can write only what is theirs.
func TestAWorkerThatIsRootKeepsNothingForItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	b := newBench(t)
	const user, group, other = 4711, 4712, 4713
	b.put("main.go", "old text")
	b.put("theirs", "old text")
	b.must(os.Mkdir(b.at("shared"), 0o777))
	b.must(os.Chown(b.env.WorkspaceDir, user, group))
	b.must(os.Chown(b.at("main.go"), user, group))
	b.must(os.Chown(b.at("theirs"), other, other))
	b.must(os.Chown(b.at("shared"), user, other))
	b.must(os.Chmod(b.at("shared"), 0o777|fs.ModeSetgid))
	b.ok("edit_file", in{"file_path": "main.go", "old_string": "old", "new_string": "new"})
	b.ok("write_file", in{"file_path": "theirs", "content": "new text"})
	b.ok("write_file", in{"file_path": "a/b/new.go", "content": "x"})
	b.ok("write_file", in{"file_path": "shared/c/new.go", "content": "x"})
	for name, want := range map[string]owner{
		"main.go": {user, group}, "theirs": {other, other}, "a": {user, group}, "a/b": {user, group},
		"a/b/new.go": {user, group}, "shared/c": {user, other}, "shared/c/new.go": {user, other},
	} {
		info, err := os.Stat(b.at(name))
		b.must(err)
		if got := ownerOf(info); got != want {
			t.Errorf("%s belongs to %v, want %v", name, got, want)
		}
	}
}
