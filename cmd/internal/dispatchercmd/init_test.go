package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// under runs a command of the tree without doing it, and returns its flags as its settings make them.
func under(t *testing.T, name string, args ...string) *pflag.FlagSet {
	t.Helper()
	var out bytes.Buffer
	root := Command(nil, &out, &out)
	cmd, _, err := root.Find([]string{name})
	must.OK(t, err)
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	if status := cli.Main(root, append([]string{name}, args...), &out); status != 0 {
		t.Fatalf("%q: %d %s", args, status, out.String())
	}
	return cmd.Flags()
}

// TestInitKeepsAPassword: only this user reads a file that has one, as a URL of NATS may.
func TestInitKeepsAPassword(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes there")
	}
	for _, c := range []struct {
		nats   string
		others bool // may read it, where the umask lets them
	}{
		{"nats://n1:4222", true},
		{"nats://ann:secret@n1:4222,nats://n2:4222", false},
		{"nats://n1:4222,nats://token@n2:4222", false},
	} {
		file := filepath.Join(t.TempDir(), "serve.yaml")
		var out bytes.Buffer
		if status := cli.Main(Command(nil, &out, &out), []string{"init", "--nats", c.nats, file}, &out); status != 0 {
			t.Fatalf("%s: %d %s", c.nats, status, out.String())
		}
		plain := filepath.Join(filepath.Dir(file), "plain")
		must.OK(t, os.WriteFile(plain, nil, 0o644))
		mode, usual := modeOf(t, file), modeOf(t, plain)
		if c.others && mode != usual || !c.others && mode != 0o600 {
			t.Errorf("%s: the file has the mode %o", c.nats, mode)
		}
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	must.OK(t, err)
	return info.Mode().Perm()
}

// TestInit: the file that init writes is one that serve takes, with what was set; what is commented out is the default;
// and no setting is missing.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "serve.yaml")
	flags := []string{"--listen", "127.0.0.1:1234", "--max-batches", "7", "--with-worker", "--worker-wait", "5s",
		"--workspace", "default=/srv/a b", "--workspace", "web=/srv/web", "--allow", "bash(git status:*)"}
	var out bytes.Buffer
	if status := cli.Main(Command(nil, &out, &out), append(append([]string{"init"}, flags...), file),
		&out); status != 0 {
		t.Fatalf("%d %s", status, out.String())
	}
	want, got := under(t, "serve", flags...), under(t, "serve", "--config", file)
	want.VisitAll(func(f *pflag.Flag) {
		if have := got.Lookup(f.Name); f.Name != "config" && (have.Value.String() != f.Value.String() ||
			have.Changed != f.Changed) {
			t.Errorf("--%s is %s (%t) by the file, and %s (%t) by flags", f.Name, have.Value, have.Changed, f.Value,
				f.Changed)
		}
	})
	text := must.Read(t, file)
	all := filepath.Join(dir, "all.yaml")
	plain := regexp.MustCompile(`(?m)^#([a-z][a-z0-9-]*:|- )`).ReplaceAllString(string(text), "$1")
	must.OK(t, os.WriteFile(all, []byte(plain), 0o600))
	got = under(t, "serve", "--config", all)
	want.VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "help" {
			return
		}
		if have := got.Lookup(f.Name); !have.Changed || have.Value.String() != f.Value.String() {
			t.Errorf("--%s is %s (in the file: %t), want %s", f.Name, have.Value, have.Changed, f.Value)
		}
	})
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "# ") && len(line) > configColumns+3 {
			t.Errorf("a long line: %s", line)
		}
	}
	out.Reset()
	if status := cli.Main(Command(nil, &out, &out), []string{"init", file}, &out); status != 2 ||
		!strings.Contains(out.String(), "is there already, and nothing in it is overwritten") {
		t.Errorf("a second time: %d %s", status, out.String())
	}
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the file has changed: %v", err)
	}
	out.Reset()
	if status := cli.Main(Command(nil, &out, &out), []string{"init", "--max-batches", "0", "-"}, &out); status != 2 ||
		!strings.Contains(out.String(), "--max-batches 0") {
		t.Errorf("a wrong value: %d %s", status, out.String())
	}
}

// TestInitAsJSON: with --json init prints one document: which file it has written, or what would be in it.
func TestInitAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serve.yaml")
	ask := func(args ...string) (got initialized) {
		t.Helper()
		var out, errs bytes.Buffer
		if status := cli.Main(Command(nil, &out, &errs), append([]string{"init", "--json", "--max-batches", "7"},
			args...), &errs); status != 0 {
			t.Fatalf("%q: %d %s", args, status, errs.String())
		}
		d := json.NewDecoder(&out)
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || d.More() {
			t.Fatalf("%q: it is not one document: %v", args, err)
		}
		return got
	}
	if got := ask(file); got != (initialized{File: file}) {
		t.Errorf("it says %+v", got)
	}
	text := must.Read(t, file)
	if got := ask("-"); got != (initialized{File: "-", Text: string(text)}) {
		t.Errorf("on standard output: %+v", got)
	}
	if bytes.Contains(text, []byte("json:")) {
		t.Error("the file has --json, which serve does not take")
	}
}
