package place

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func hold(t *testing.T, dir string) *Root {
	t.Helper()
	r, err := Hold(dir, nil)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func violates(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*tool.Error](err); !ok || e.Code != toolyard.SandboxViolation {
		t.Errorf("%v is no sandbox_violation", err)
	}
}

// TestAHeldRootThatIsReplaced: whatever the path leads to later, another directory, a link to one, nothing, it is not
// used.
func TestAHeldRootThatIsReplaced(t *testing.T) {
	base := t.TempDir()
	ws := filepath.Join(base, "ws")
	for _, dir := range []string{ws, filepath.Join(base, "other")} {
		must.OK(t, os.Mkdir(dir, 0o755))
	}
	must.OK(t, os.Symlink("ws", filepath.Join(base, "alias")))
	r := hold(t, filepath.Join(base, "alias"))
	must.OK(t, r.Check())
	must.OK(t, os.Rename(ws, ws+"2"))
	violates(t, r.Check())
	for _, put := range []func() error{
		func() error { return os.Mkdir(ws, 0o755) },
		func() error { return os.Symlink("other", ws) },
		func() error { return os.WriteFile(ws, nil, 0o644) },
	} {
		must.OK(t, put())
		violates(t, r.Check())
		must.OK(t, os.Remove(ws))
	}
	must.OK(t, os.Rename(ws+"2", ws))
	// The link by which it was given is not looked at again.
	must.OK(t, errors.Join(os.Remove(filepath.Join(base, "alias")), os.Symlink("other", filepath.Join(base, "alias"))))
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if got := r.Forms(filepath.Join(base, "alias", "x")); len(got) != 0 {
		t.Errorf("a path by the link that leads elsewhere by now: %q", got)
	}
}

func TestWhatIsAvoided(t *testing.T) {
	base := t.TempDir()
	t.Setenv("HOME", filepath.Join(base, "home"))
	for _, dir := range []string{"home", "state/toolyard/streams", "ws"} {
		must.OK(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	for dir, want := range map[string]string{
		"state": "holds the streams", "state/toolyard": "holds the streams",
		"state/toolyard/streams": "lies in the streams", "ws": "", "home": "is a home directory",
		".": "holds the home directory",
	} {
		_, err := HoldAll(map[toolyard.Workspace]string{"w": filepath.Join(base, dir)}, nil,
			[]Avoided{{filepath.Join(base, "state/toolyard"), "the streams"},
				{filepath.Join(base, "not/there"), "nothing"}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

func TestProtectedPlacesOfARoot(t *testing.T) {
	dir := t.TempDir()
	list, err := protect.New("deploy")
	must.OK(t, err)
	r, err := Hold(dir, list)
	must.OK(t, err)
	defer func() { _ = r.Close() }()
	must.OK(t, os.Symlink(".vscode", filepath.Join(dir, "docs")))
	must.OK(t, os.Mkdir(filepath.Join(dir, ".vscode"), 0o755))
	for p, want := range map[string]string{"a": "", "docs/tasks.json": ".vscode", ".vscode/x": ".vscode",
		"deploy/x": "deploy", "HEAD": "HEAD"} {
		got, ok := r.Protected(r.Forms(p))
		if got.Path != want || ok != (want != "") {
			t.Errorf("%s: %+v, want %q", p, got, want)
		}
	}
	// In a copy, what names a path of the directory itself means the same.
	config := "[core]\n\thooksPath = " + filepath.Join(r.Dir(), "scripts") + "\n"
	copied := t.TempDir()
	for _, in := range []string{dir, copied} {
		must.OK(t, os.MkdirAll(filepath.Join(in, ".git"), 0o755))
		must.OK(t, os.WriteFile(filepath.Join(in, ".git/config"), []byte(config), 0o644))
		must.OK(t, os.WriteFile(filepath.Join(in, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	}
	c, err := r.Beside(copied)
	must.OK(t, err)
	defer func() { _ = c.Close() }()
	for _, in := range []*Root{r, c} {
		if got, ok := in.Protected(in.Forms("scripts/pre-commit")); !ok || got.Path != "scripts" {
			t.Errorf("%s: %+v", in.Dir(), got)
		}
	}
	if got := c.Forms(filepath.Join(r.Dir(), "scripts")); len(got) != 0 {
		t.Errorf("the path of the directory leads to its copy: %q", got)
	}
	if got, ok := (*Root)(nil).Protected([]string{".git"}); ok {
		t.Errorf("%+v", got)
	}
}
