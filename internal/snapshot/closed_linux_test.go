package snapshot

import (
	"errors"
	"os"
	"testing"
)

// TestAClosedTopIsSetBack: a batch that takes the owner's right to write from the workspace's own directory can be
// undone, and the directory has its earlier mode then.
func TestAClosedTopIsSetBack(t *testing.T) {
	for _, earlier := range []os.FileMode{0o755, 0o555} {
		y := newYard(t)
		y.write(t, "f", "before")
		if err := os.Chmod(y.dir, earlier); err != nil {
			t.Fatal(err)
		}
		var want map[string]string
		err := y.asAnother(t, func() error {
			want = y.look(t)
			if _, err := y.store.Take(t.Context(), y.root, key("b", 0)); err != nil {
				return err
			}
			return errors.Join(os.Chmod(y.dir, 0o700), os.Remove(y.at("f")), os.Chmod(y.dir, 0o500))
		})
		if err == nil {
			err = y.asAnother(t, func() error {
				_, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
				return err
			})
		}
		if err != nil {
			t.Fatalf("a directory of mode %o: %v", earlier, err)
		}
		same(t, y.look(t), want)
		info, err := os.Stat(y.dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != earlier {
			t.Errorf("the mode is %o, and was %o", info.Mode().Perm(), earlier)
		}
		if err := os.Chmod(y.dir, 0o755); err != nil { // or the test's directory could not be removed
			t.Fatal(err)
		}
	}
}
