package place

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestForms(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "ws")
	for _, d := range []string{"docs", "secret"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "secret", "key"), nil, 0o600))
	for link, to := range map[string]string{
		"ws/docs/to-file": "../secret/key", "ws/docs/to-dir": "../secret", "ws/docs/dangling": "../secret/new",
		"ws/docs/out": "../../elsewhere",
		"ws/docs/etc": "/etc", "ws/docs/loop": "loop", "ws/docs/chain": "dangling", "alias": "ws",
	} {
		must.OK(t, os.Symlink(to, filepath.Join(base, link)))
	}
	for _, c := range []struct {
		dir, path string
		want      []string
	}{
		{dir, "docs/new", []string{"docs/new"}},
		{dir, "docs/a/b/new", []string{"docs/a/b/new"}},
		{dir, ".", []string{"."}},
		{dir, filepath.Join(dir, "docs/../secret/key"), []string{"secret/key"}},
		{dir, "docs/to-file", []string{"docs/to-file", "secret/key"}},
		{dir, "docs/to-dir/new", []string{"docs/to-dir/new", "secret/new"}},
		{dir, "docs/dangling", nil}, // a write through it makes secret/new
		{dir, "docs/chain", nil},
		{dir, "docs/dangling/new", nil},
		{dir, "docs/out", nil},
		{dir, "docs/etc/passwd", nil},
		{dir, "docs/loop", nil},
		{dir, "secret/key/new", nil}, // below a file
		{dir, "../ws/docs/new", []string{"docs/new"}},
		{dir, "../elsewhere", nil},
		{dir, "/etc/passwd", nil},
		{dir, "", nil},
		{dir, "a\x00b", nil},
		{"", "docs", nil},
		{filepath.Join(base, "none"), "docs", nil},
		{filepath.Join(base, "alias"), "docs/new", []string{"docs/new"}},
		{filepath.Join(base, "alias"), filepath.Join(dir, "docs/new"), []string{"docs/new"}},
	} {
		if got := Forms(c.dir, c.path); !slices.Equal(got, c.want) {
			t.Errorf("Forms(%s, %s) = %q, want %q", c.dir, c.path, got, c.want)
		}
	}
}
