package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoInstall: "go install …@latest" outside any module gives the commands, they say which release they are, and one
// of them runs a batch.
func TestGoInstall(t *testing.T) {
	env, err := published()
	if err != nil {
		t.Fatal(err)
	}
	must(t, t.TempDir(), env, "go", "install", ours+"/cmd/...@latest")
	for _, name := range []string{"dispatcher", "worker", "toolyard"} {
		if v := versionOf(t, filepath.Join(temp, "bin", name)); v.Release != release {
			t.Errorf("%s says that it is %q, not %q", name, v.Release, release)
		}
	}
	dir, file := batch(t)
	ran(t, must(t, dir, nil, filepath.Join(temp, "bin", "toolyard"), "run", "--json", file))
}

// TestACheckoutSaysItsCommit: what is built at a tag says the tag, and which commit that was.
func TestACheckoutSaysItsCommit(t *testing.T) {
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	want := said{Release: release, Commit: strings.TrimSpace(must(t, dir, nil, "git", "rev-parse", "HEAD"))}
	if got := versionOf(t, program); got != want {
		t.Errorf("it says %+v, and is %+v", got, want)
	}
	if line := must(t, temp, nil, program, "--version"); !strings.Contains(line, release+"+"+want.Commit[:12]) {
		t.Errorf("--version says %q", line)
	}
}

// TestCountWords: the tool of the README is a module that builds outside the checkout, against the release.
func TestCountWords(t *testing.T) {
	env, err := published()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, err := os.ReadFile(filepath.Join("..", "..", "examples", "count-words", "main.go"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o644)); err != nil {
		t.Fatal(err)
	}
	must(t, dir, env, "go", "mod", "init", "example.com/count-words")
	must(t, dir, env, "go", "mod", "tidy")
	must(t, dir, env, "go", "vet", ".")
	if out := must(t, dir, env, "go", "list", "-m", ours); strings.TrimSpace(out) != ours+" "+release {
		t.Errorf("it was built with %s", out)
	}
}
