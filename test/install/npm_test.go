//go:build unix

package install

import (
	"bufio"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// systems are those of .goreleaser.yaml, with npm's names.
var systems = []struct{ goos, goarch, npm string }{
	{"linux", "amd64", "linux-x64"}, {"linux", "arm64", "linux-arm64"}, {"darwin", "amd64", "darwin-x64"},
	{"darwin", "arm64", "darwin-arm64"}, {"windows", "amd64", "win32-x64"}, {"windows", "arm64", "win32-arm64"},
}

// packed are the tarballs that npm makes of the packages that npm/build.mjs makes of a release. Only the program for
// this system is one.
func packed(t *testing.T) (dir string) {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	type artifact struct {
		Type   string            `json:"type"`
		Path   string            `json:"path"`
		Goos   string            `json:"goos"`
		Goarch string            `json:"goarch"`
		Extra  map[string]string `json:"extra"`
	}
	top := t.TempDir()
	write := func(name string, v any) {
		b, err := json.Marshal(v)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755),
			os.WriteFile(filepath.Join(top, name), b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	all := []artifact{{Type: "Archive", Path: "dist/toolyard.tar.gz", Goos: "linux", Goarch: "amd64"}}
	for _, s := range systems {
		a := artifact{"Binary", "dist/" + s.npm + "/toolyard", s.goos, s.goarch,
			map[string]string{"Binary": "toolyard"}}
		write(a.Path, "for "+s.npm)
		if s.goos == runtime.GOOS && s.goarch == runtime.GOARCH {
			if err := errors.Join(os.Remove(filepath.Join(top, a.Path)),
				os.Link(program, filepath.Join(top, a.Path))); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, a)
	}
	write("dist/artifacts.json", all)
	write("dist/metadata.json", map[string]string{"version": strings.TrimPrefix(release, "v")})
	build, err := filepath.Abs(filepath.Join("..", "..", "npm", "build.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, top, nil, "node", build, "dist", "npm")
	dirs, err := filepath.Glob(filepath.Join(top, "npm", "*"))
	if err != nil || len(dirs) != len(systems)+1 {
		t.Fatalf("it made %v, %v", dirs, err)
	}
	must(t, top, npmEnv(t, "http://127.0.0.1:0"), "npm", append([]string{"pack", "--silent"}, dirs...)...)
	return top
}

// npmEnv is an npm that knows one registry and nothing of this machine.
func npmEnv(t *testing.T, registry string) []string {
	home := t.TempDir()
	return []string{"HOME=" + home, "npm_config_registry=" + registry,
		"npm_config_cache=" + filepath.Join(home, "cache"),
		"npm_config_userconfig=" + filepath.Join(home, ".npmrc"), "npm_config_update_notifier=false",
		"npm_config_audit=false", "npm_config_fund=false"}
}

// serveRegistry serves tarballs as a registry does, and says which of them were fetched.
func serveRegistry(t *testing.T, dir string) (url string, fetched func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	documents, files := map[string]map[string]any{}, http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if document := documents[name]; document != nil {
			if err := json.NewEncoder(w).Encode(document); err != nil {
				t.Error(err)
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, name)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(tarballs) != len(systems)+1 {
		t.Fatalf("npm packed %v, %v", tarballs, err)
	}
	for _, tarball := range tarballs {
		content, err := os.ReadFile(tarball)
		if err != nil {
			t.Fatal(err)
		}
		var manifest map[string]any
		text := must(t, dir, nil, "tar", "-xzOf", tarball, "package/package.json")
		if err := json.Unmarshal([]byte(text), &manifest); err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum512(content)
		manifest["dist"] = map[string]string{"tarball": server.URL + "/" + filepath.Base(tarball),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		name, version := manifest["name"].(string), manifest["version"].(string)
		documents[name] = map[string]any{"name": name, "dist-tags": map[string]string{"latest": version},
			"versions": map[string]any{version: manifest}}
	}
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(got))
	}
}

// TestNpx: "npx toolyard run" gets the program for this system and no other, and the program's status is npx's.
func TestNpx(t *testing.T) {
	tarballs := packed(t)
	registry, fetched := serveRegistry(t, tarballs)
	env := npmEnv(t, registry)
	dir, file := batch(t)
	ran(t, must(t, dir, env, "npx", "--yes", "toolyard", "run", "--json", file))
	version := strings.TrimPrefix(release, "v")
	want := []string{"toolyard-" + version + ".tgz", "toolyard-" + thisSystem(t) + "-" + version + ".tgz"}
	if got := fetched(); !slices.Equal(got, want) && !slices.Equal(got, []string{want[1], want[0]}) {
		t.Errorf("npm fetched %q, want %q", got, want)
	}
	_, err := output(dir, env, "npx", "--yes", "toolyard", "run", "no such file")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("a file that is not there: %v", err)
	}
}

func thisSystem(t *testing.T) string {
	t.Helper()
	for _, s := range systems {
		if s.goos == runtime.GOOS && s.goarch == runtime.GOARCH {
			return s.npm
		}
	}
	t.Fatalf("no package is for %s/%s", runtime.GOOS, runtime.GOARCH)
	return ""
}

// TestNpmPassesSignalsOn: a supervisor stops the program through the script that npm has put into its PATH. Without the
// package of this system the script says what to do.
func TestNpmPassesSignalsOn(t *testing.T) {
	tarballs := packed(t)
	dir := t.TempDir()
	env := npmEnv(t, "http://127.0.0.1:0")
	version := strings.TrimPrefix(release, "v")
	install := func(names ...string) {
		args := []string{"install", "--offline", "--omit=optional"}
		for _, n := range names {
			args = append(args, filepath.Join(tarballs, n+"-"+version+".tgz"))
		}
		must(t, dir, env, "npm", args...)
	}
	script := filepath.Join(dir, "node_modules", ".bin", "toolyard")
	install("toolyard")
	if _, err := output(dir, env, script, "version"); err == nil ||
		!strings.Contains(err.Error(), "@toolyard/"+thisSystem(t)+" is not installed") {
		t.Errorf("without the program: %v", err)
	}
	install("toolyard-" + thisSystem(t))
	serve := exec.Command(script, "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
		t.TempDir())
	serve.Dir, serve.Env, serve.Stderr = dir, append(os.Environ(), env...), t.Output()
	out, err := serve.StdoutPipe()
	if err := errors.Join(err, serve.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "toolyard dispatcher ready" {
		t.Errorf("it says %q, %v", lines.Text(), lines.Err())
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for lines.Scan() { // until the program has closed it
		t.Log(lines.Text())
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}

	// A terminal tells the script and the program. The program ends on the spot when it is told twice, so the script
	// does not pass that one on. What a supervisor tells the script alone, it passes on as before.
	program := filepath.Join(dir, "node_modules", "@toolyard", thisSystem(t), "bin", "toolyard")
	if err := os.WriteFile(program, []byte(counts), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := output(dir, env, "python3", "-c", inTerminal, script)
	if want := "ready INT TERM"; err != nil || strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("in a terminal the program is told %q, %v; want %q", got, err, want)
	}
}

// counts is a program that says which signals it gets, until it gets SIGTERM.
const counts = `#!/usr/bin/env python3
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
os.write(1, b"ready\n")
while (got := signal.sigwait([signal.SIGINT, signal.SIGTERM])) == signal.SIGINT:
    os.write(1, b"INT\n")
os.write(1, b"TERM\n")
`

// inTerminal runs a program in a terminal of its own, where it presses Ctrl-C, and then ends it as a supervisor does.
const inTerminal = `
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b""
def until(what):
    global said
    while what not in said:
        said += os.read(fd, 4096)
until(b"ready")
os.write(fd, b"\x03")
until(b"INT")
os.kill(pid, signal.SIGTERM)
until(b"TERM")
sys.stdout.write(said.decode().replace("^C", ""))
os.waitpid(pid, 0)
`
