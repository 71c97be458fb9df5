package clients

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// patience bounds what a test waits for.
const patience = 3 * time.Minute

// readyLines is how many lines a program says when it is ready.
const readyLines = 3

var update = flag.Bool("update", false, "write the versions of the clients again")

// bin is where the programs are built, once for all tests.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = testenv.Binaries("", "cmd/..."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func clients(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "clients"}, parts...)...)
}

// system is a dispatcher.
type system struct{ http, nats, data string }

// serve starts a dispatcher.
func serve(t *testing.T, args ...string) system {
	t.Helper()
	s := system{data: testenv.StoreDir(t)}
	said, _ := start(t, "dispatcher", append([]string{"serve", "--listen", "127.0.0.1:0", "--nats-listen",
		"127.0.0.1:0", "--data", s.data}, args...)...)
	s.http, s.nats = said["http"], said["nats"]
	return s
}

// withWorker starts a dispatcher with a worker whose workspace has two files, and returns where it answers HTTP.
func withWorker(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"README.md": "# Read me\n", "NOTES.md": "# Notes\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return serve(t, "--with-worker", "--permission-mode", "bypass", "--workspace", "default="+dir).http
}

// start starts a program that serves, waits until it is ready, and returns what it says, and what kills it.
func start(t *testing.T, name string, args ...string) (said map[string]string, kill func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	ready, read := make(chan map[string]string), make(chan struct{})
	go func() {
		defer close(read)
		said := map[string]string{}
		s := bufio.NewScanner(out)
		for n := 0; n < readyLines && s.Scan(); n++ {
			if k, v, ok := strings.Cut(s.Text(), ": "); ok {
				said[k] = v
			}
		}
		ready <- said
		_, _ = io.Copy(io.Discard, out)
	}()
	kill = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-read
		_ = cmd.Wait() // it was killed
	})
	said = <-ready
	t.Cleanup(kill)
	return said, kill
}

// run runs a program to its end, and returns what it says.
func run(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// counted fails unless a report of tests says that so many ran at least, and none was skipped.
func counted(t *testing.T, report, ran, skipped string, least int) {
	t.Helper()
	m := regexp.MustCompile(ran).FindStringSubmatch(report)
	if m == nil || regexp.MustCompile(skipped).MatchString(report) {
		t.Fatalf("not all tests ran:\n%s", report)
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < least {
		t.Errorf("%s tests ran, want %d at least:\n%s", m[1], least, report)
	}
}

// javascript takes the types out of TypeScript, as newer Nodes do by themselves.
func javascript(t *testing.T, dir, extension string, sources ...string) {
	t.Helper()
	o := api.BuildOptions{EntryPoints: sources, Outdir: dir, Format: api.FormatESModule, Target: api.ES2022,
		Write: true}
	if extension != "" {
		o.OutExtension = map[string]string{".js": extension}
	}
	built := api.Build(o)
	for _, m := range append(built.Errors, built.Warnings...) {
		t.Errorf("%s %+v", m.Text, m.Location)
	}
}

// TestTypeScript: the client in TypeScript.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	url, dist := withWorker(t), t.TempDir()
	sources, err := filepath.Glob(clients("typescript", "src", "*.ts"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	javascript(t, dist, "", sources...)
	must.OK(t, os.WriteFile(filepath.Join(dist, "package.json"), []byte(`{"type": "module"}`), 0o600))
	report := run(t, []string{"TOOLYARD_URL=" + url, "TOOLYARD_CLIENT=" + dist}, "node", "--test",
		"--test-reporter=tap", clients("typescript", "test"))
	counted(t, report, `(?m)^# pass (\d+)$`, `(?m)^# (skipped|todo) [1-9]`, 24)
}

// packager is the first Python in the PATH that can build packages.
func packager(t *testing.T) string {
	t.Helper()
	var lacks []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		python := filepath.Join(dir, "python3")
		out, err := exec.CommandContext(t.Context(), python, "package.py", "--check").CombinedOutput()
		if err == nil {
			return python
		}
		lacks = append(lacks, fmt.Sprintf("%v: %s", err, out))
	}
	t.Fatalf("no Python can build packages; .ci/setup says what to install\n%s", strings.Join(lacks, "\n"))
	return ""
}

// TestPython: the client in Python, as an environment gets it that has nothing else: built as an sdist, and as a wheel
// of that. Its version is the server's, nothing of it is left out, and its types are those of the OpenAPI document.
func TestPython(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	python := strings.TrimSpace(run(t, nil, packager(t), "package.py", clients("python"), top))
	said := run(t, nil, python, "-I", "-c", "import importlib.metadata as m; print(*("+
		"f'{d.name} {d.version} {d.requires}' for d in m.distributions()), sep='\\n')")
	if want := fmt.Sprintf("toolyard 0.%d.0 None\n", version.Wire); said != want {
		t.Errorf("the environment has\n%swant\n%s", said, want)
	}
	for _, pattern := range []string{"*.py", "py.typed"} {
		sources, err := filepath.Glob(clients("python", "src", "toolyard", pattern))
		if err != nil || len(sources) == 0 {
			t.Fatalf("%d sources %s, %v", len(sources), pattern, err)
		}
		for _, source := range sources {
			name := filepath.Base(source)
			installed, err := filepath.Glob(filepath.Join(top, "env", "lib*", "python*", "site-packages", "toolyard",
				name))
			if err != nil || len(installed) == 0 {
				t.Errorf("%s is not installed (%v)", name, err)
			}
		}
	}
	env := []string{"PYTHONPATH=", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error"}
	run(t, env, python, clients("python", "generate.py"), "--check")
	report := run(t, append(env, "TOOLYARD_URL="+withWorker(t)), python, "-m", "unittest", "discover", "-s",
		clients("python", "tests"))
	counted(t, report, `(?m)^Ran (\d+) tests`, `skipped=`, 36)
}

// TestVersions: the clients have the version of what the servers of this tree write for others.
func TestVersions(t *testing.T) {
	want := fmt.Sprintf("0.%d.0", version.Wire)
	for file, line := range map[string]string{
		clients("typescript", "package.json"): `(?m)^(  "version": ")([^"]*)(",)$`,
		clients("python", "pyproject.toml"):   `(?m)^(version = ")([^"]*)(")$`,
	} {
		data := must.Read(t, file)
		pattern := regexp.MustCompile(line)
		if *update {
			data = pattern.ReplaceAll(data, []byte("${1}"+want+"${3}"))
			must.OK(t, os.WriteFile(file, data, 0o644))
		}
		if m := pattern.FindSubmatch(data); m == nil || string(m[2]) != want {
			t.Errorf("%s does not have the version %s; run go test -C test/clients -run TestVersions -update", file, want)
		}
	}
}
