package snapshot

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestACommitByForceGivesDirectoriesToTheOwner: the commands of a worker that is root run as the workspace's owner, and
// can write only what is theirs.
func TestACommitByForceGivesDirectoriesToTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives directories away")
	}
	const user, group, other = 4711, 4712, 4713
	y := newYard(t)
	y.write(t, "d/e/f", "before")
	y.write(t, "shared/e/f", "before")
	for _, err := range []error{os.Chown(y.dir, user, group), os.Chown(y.at("shared"), user, other),
		os.Chmod(y.at("shared"), 0o775|os.ModeSetgid)} {
		must.OK(t, err)
	}
	w := Commit{Key: key("b", 0), Force: true}
	over := y.overlay(t, w.Key)
	for _, dir := range []string{"d", "shared"} {
		over.write(t, filepath.Join(dir, "e", "f"), "after")
	}
	for _, dir := range []string{y.at("d"), y.at("shared", "e")} {
		must.OK(t, os.RemoveAll(dir))
	}
	if _, err := y.commit(t, w); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{"d": {user, group}, "d/e": {user, group}, "shared/e": {user, other}} {
		info, err := os.Stat(y.at(name))
		must.OK(t, err)
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || [2]uint32{st.Uid, st.Gid} != want {
			t.Errorf("%s belongs to %d:%d, want %v", name, st.Uid, st.Gid, want)
		}
	}
}
