//go:build unix

package place

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func hides(names ...string) func(string) bool {
	return func(p string) bool { return slices.Contains(names, p) }
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a/key", "a/deep/key2", "b/c", "d", "e"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
	}
	for from, to := range map[string]string{"a/deep/key2": "b/other", "d": "b/d2", "e": "e2"} {
		must.OK(t, os.Link(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	for name, to := range map[string]string{
		"link": "a/key", "absolute": filepath.Join(dir, "a/key"), "over": "absolute", "out": "/",
		"back": filepath.Join("..", filepath.Base(dir), "b"), "nowhere": filepath.Join(dir, "none"),
	} {
		must.OK(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	root, err := os.OpenRoot(dir)
	must.OK(t, err)
	defer func() { _ = root.Close() }()
	for _, c := range []struct {
		hidden, want string
	}{
		{"", ""}, {"nothing", ""}, {"a", "a/ b/other"}, {"d", "b/d2 d"}, {"b/c", "b/c"}, {"e", "e e2"},
		{"link", "a/key"}, {"absolute", "a/key"}, {"over", "a/key"}, {"back", "b/"}, {"out nowhere", ""},
		{"a/key b", "a/deep/key2 a/key b/ d"},
	} {
		found, err := Find(root, hides(strings.Fields(c.hidden)...))
		must.OK(t, err)
		var names []string
		for _, h := range found {
			if h.Dir {
				h.Path += "/"
			}
			names = append(names, h.Path)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q hidden: %q, want %q", c.hidden, got, c.want)
		}
	}
}

// TestPins: a directory whose name is part of why something is hidden must keep it.
func TestPins(t *testing.T) {
	for _, c := range []struct {
		glob, path, want string
	}{
		{"**/.env", "a/b/.env", ""}, {"a/secret", "a/secret", "a"}, {"**/conf/secret", "a/b/conf/secret", "a/b/conf"},
		{"a/*/secret", "a/b/secret", "a a/b"},
		{"a/**/secret", "a/b/secret", "a a/b"}, {"secret", "secret", ""}, {"a/b/secret", "a/b/secret", "a a/b"},
	} {
		hides := func(p string) bool { return doublestar.MatchUnvalidated(c.glob, p) }
		if got := strings.Join(pins(c.path, hides), " "); got != c.want {
			t.Errorf("%s at %s: %q, want %q", c.glob, c.path, got, c.want)
		}
	}
}

func TestFindIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxHidden + 1 {
		must.OK(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644))
	}
	root, err := os.OpenRoot(dir)
	must.OK(t, err)
	defer func() { _ = root.Close() }()
	if _, err := Find(root, func(string) bool { return true }); err == nil ||
		!strings.Contains(err.Error(), "more than 4096 places") {
		t.Errorf("%v", err)
	}
	if os.Geteuid() == 0 {
		return // root reads every directory
	}
	closed := filepath.Join(dir, "closed")
	must.OK(t, os.Mkdir(closed, 0))
	if _, err := Find(root, hides("closed/key")); err == nil {
		t.Error("a directory that a command could open for itself was left out")
	}
}
