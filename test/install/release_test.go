package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	ours = "github.com/toolyard/toolyard"
	// release is the version under which the tests install what is in this checkout.
	release = "v1.2.3"
)

// temp is what all tests share; TestMain removes it.
var temp string

func TestMain(m *testing.M) {
	var err error
	if temp, err = os.MkdirTemp("", "toolyard-install-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(temp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// output runs a program in a directory, with more environment, and returns its standard output.
func output(dir string, env []string, name string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out, errs.String())
	}
	return string(out), nil
}

func must(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := output(dir, env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkout is a repository of its own with the files of this one, committed and tagged as the release.
var checkout = sync.OnceValues(func() (string, error) {
	top := filepath.Join("..", "..")
	names, err := output(top, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(temp, "checkout")
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(top, name))
		if errors.Is(err, os.ErrNotExist) { // removed, and not committed yet
			continue
		}
		to := filepath.Join(dir, name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message", "all"},
		{"tag", release}} {
		if _, err := output(dir, nil, "git", args...); err != nil {
			return "", err
		}
	}
	return dir, nil
})

// published is the environment of somebody who can get the release: a module proxy in files has it. All else comes
// from the module cache. Paths do not get into what is built, so that Go's build cache serves the next run.
var published = sync.OnceValues(func() ([]string, error) {
	dir, err := checkout()
	if err != nil {
		return nil, err
	}
	at := filepath.Join(temp, "proxy", ours, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(at, release+".zip"))
	if err != nil {
		return nil, err
	}
	err = zip.CreateFromDir(f, module.Version{Path: ours, Version: release}, dir)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	for name, content := range map[string]string{"list": release + "\n", release + ".mod": string(mod),
		release + ".info": fmt.Sprintf("{%q: %q}", "Version", release)} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	text, err := output(temp, nil, "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var usual struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(text), &usual); err != nil {
		return nil, err
	}
	url := func(parts ...string) string { return "file://" + filepath.ToSlash(filepath.Join(parts...)) }
	return []string{"GOWORK=off", "GOFLAGS=-trimpath -modcacherw", "GOSUMDB=off",
		"GOMODCACHE=" + filepath.Join(temp, "mod"), "GOBIN=" + filepath.Join(temp, "bin"),
		"GOPROXY=" + url(temp, "proxy") + "," + url(usual.GOMODCACHE, "cache", "download") + "," + usual.GOPROXY}, nil
})

// built is the program of the release, made in its checkout as .goreleaser.yaml says.
var built = sync.OnceValues(func() (string, error) {
	dir, err := checkout()
	if err != nil {
		return "", err
	}
	to := filepath.Join(temp, "release", "toolyard")
	_, err = output(dir, []string{"GOWORK=off", "GOFLAGS="}, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags",
		"-s -w", "-o", to, "./cmd/toolyard")
	return to, err
})

// said is what "version --json" prints.
type said struct {
	Release  string
	Commit   string
	Modified bool
}

func versionOf(t *testing.T, program string) (v said) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, temp, nil, program, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// batch is a file with two calls that read it, in a directory of its own.
func batch(t *testing.T) (dir, name string) {
	t.Helper()
	dir, name = t.TempDir(), "batch.json"
	const calls = `{"calls": [{"tool": "read_file", "input": {"file_path": "batch.json"}},
		{"tool": "glob", "input": {"pattern": "*.json"}}]}`
	if err := os.WriteFile(filepath.Join(dir, name), []byte(calls), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, name
}

// ran holds what "run --json" printed of the batch against what it has to be.
func ran(t *testing.T, out string) {
	t.Helper()
	var b struct {
		Status  string
		Results []struct {
			Code, Output string
		}
	}
	if err := json.Unmarshal([]byte(out), &b); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if b.Status != "completed" || len(b.Results) != 2 || b.Results[0].Code+b.Results[1].Code != "" ||
		!strings.Contains(b.Results[1].Output, "batch.json") {
		t.Errorf("the batch ended as %+v", b)
	}
}
