//go:build unix

package builtin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestPathsThatLeave tries each way out, on each tool that takes a path.
func TestPathsThatLeave(t *testing.T) {
	b := newBench(t)
	b.put("docs/a.txt", "inside\n")
	b.link(filepath.Join(b.outside, "secret"), "out")       // absolute
	b.link("../outside/secret", "out-relative")             // relative
	b.link("out", "out-twice")                              // a link to a link out
	b.link(b.outside, "out-dir")                            // a directory
	b.link("../ws/docs", "out-and-in")                      // leaves, and comes back
	b.link(filepath.Join(b.outside, "nothing"), "out-gone") // to where nothing is: the same answer
	b.link("/dev/zero", "zero")
	for _, path := range []string{
		"out", "out-relative", "out-twice", "out-dir/secret", "out-dir/nothing", "out-and-in/a.txt", "out-gone", "zero",
		"docs/../out",
		"..", "../outside/secret", "docs/../../outside/secret", "nothing/../../outside/secret",
		"docs/../../ws/docs/a.txt",
		"/etc/passwd", "/", "//etc/passwd", filepath.Join(b.outside, "secret"), filepath.Join(b.outside, "nothing"),
		b.env.WorkspaceDir + "/../outside/secret", b.env.WorkspaceDir + "x/secret", "/." + b.env.WorkspaceDir +
			"/../../etc/passwd",
	} {
		for name, input := range map[string]in{
			"read_file":  {"file_path": path},
			"write_file": {"file_path": path, "content": "x"},
			"edit_file":  {"file_path": path, "old_string": "TOP", "new_string": "x"},
			"grep":       {"pattern": "SECRET", "path": path},
			"glob":       {"pattern": "*", "path": path},
		} {
			message := b.refused(toolyard.SandboxViolation, name, input)
			if want := show(path) + " leads out of the workspace"; !strings.Contains(message, want) {
				t.Errorf("%s %s: %q does not contain %q", name, path, message, want)
			}
		}
	}
	for _, pattern := range []string{"../*", "/etc/*", "docs/../../*", "out-dir/*", "*/../../outside/*", "{docs,..}/*",
		"{../outside,docs}/*"} {
		b.refused(toolyard.SandboxViolation, "glob", in{"pattern": pattern})
	}
	if data, err := os.ReadFile(filepath.Join(b.outside, "secret")); err != nil || string(data) != "TOP SECRET\n" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
}

// TestPathsThatStay is the positive control of the ways out.
func TestPathsThatStay(t *testing.T) {
	b := newBench(t)
	b.put("docs/a.txt", "inside\n")
	b.link("docs", "rel")
	b.link(b.at("docs/a.txt"), "abs")
	b.link("rel/a.txt", "twice")
	b.link("..", "docs/up")
	for _, path := range []string{
		"docs/a.txt", "./docs//a.txt", "rel/a.txt", "abs", "twice", "docs/../docs/a.txt", "rel/../abs",
		"docs/up/docs/a.txt",
		b.at("docs/a.txt"), "/" + b.at("docs/a.txt"), b.env.WorkspaceDir + "/docs/../abs",
	} {
		if out := b.ok("read_file", in{"file_path": path}); out != "1\tinside\n" {
			t.Errorf("%s: %q", path, out)
		}
	}
	// The workspace's directory is reached through a link: both of its names are inside.
	real := b.env.WorkspaceDir
	b.env.WorkspaceDir = filepath.Join(filepath.Dir(real), "link-to-ws")
	b.must(os.Symlink(real, b.env.WorkspaceDir))
	b.hold(b.env.WorkspaceDir)
	for _, path := range []string{"docs/a.txt", real + "/docs/a.txt", b.env.WorkspaceDir + "/docs/a.txt", "abs"} {
		b.ok("read_file", in{"file_path": path})
	}
}

func TestPathsThatAreNone(t *testing.T) {
	b := newBench(t)
	b.put("file.txt", "x\n")
	b.put("dir/inner", "x\n")
	b.link("round", "round")
	b.must(syscall.Mkfifo(b.at("fifo"), 0o644))
	socket, err := net.Listen("unix", b.at("socket"))
	b.must(err)
	defer socket.Close()
	for path, want := range map[string]string{
		"":                                   "is empty",
		"a\x00b":                             "NUL",
		strings.Repeat("a", 4097):            "at most 4096",
		strings.Repeat("a", 300):             "too long for the file system",
		strings.Repeat("dir/../", 400) + "x": "more than 512 names",
		"dir":                                "a directory",
		".":                                  "a directory",
		b.env.WorkspaceDir:                   "a directory",
		"fifo":                               "a named pipe (FIFO)",
		"socket":                             "a socket",
		"round":                              "symbolic links",
		"file.txt/x":                         "not a directory",
		"nothing/../file.txt":                "is not there",
		"file.txt/":                          "directory",
		"file.txt/../file.txt":               "not a directory",
		strings.Repeat("round/", 2) + "x":    "symbolic links",
	} {
		for name, input := range map[string]in{
			"read_file":  {"file_path": path},
			"write_file": {"file_path": path, "content": "x"},
			"edit_file":  {"file_path": path, "old_string": "x", "new_string": "y"},
		} {
			b.contains(b.refused(toolyard.InvalidArguments, name, input), want)
		}
	}
	for _, name := range []string{"read_file", "edit_file"} {
		b.contains(b.refused(toolyard.InvalidArguments, name,
			in{"file_path": "fil.txt", "old_string": "x", "new_string": "y"}),
			"is not there", "did you mean file.txt?")
		b.contains(b.refused(toolyard.InvalidArguments, name,
			in{"file_path": "dirr/inner", "old_string": "x", "new_string": "y"}),
			"dirr does not exist", "did you mean dir?")
	}
	b.contains(b.refused(toolyard.InvalidArguments, "read_file", in{"file_path": "quite-other"}), "use glob")
	b.contains(b.refused(toolyard.InvalidArguments, "read_file", in{"file_path": "a\nFAKE\x1b[31m"}),
		`"a\nFAKE\x1b[31m"`)
	w, err := openWorkspace(b.env)
	b.must(err)
	defer w.close()
	if _, err := w.resolve("file_path", "a\xff"); tool.AsError(err).Code != toolyard.InvalidArguments {
		t.Errorf("invalid UTF-8: %v", err)
	}
}

func TestNoWorkspace(t *testing.T) {
	b := newBench(t)
	gone := b.at("gone")
	b.must(os.Mkdir(gone, 0o755))
	b.hold(gone)
	b.must(os.Remove(gone))
	for root, want := range map[tool.Root]toolyard.Code{nil: toolyard.SetupRequired,
		b.env.Root: toolyard.SandboxViolation} {
		b.env.Root = root
		for name, input := range map[string]in{
			"read_file":  {"file_path": "x"},
			"write_file": {"file_path": "x", "content": "x"},
			"edit_file":  {"file_path": "x", "old_string": "x", "new_string": "y"},
			"grep":       {"pattern": "x"},
			"glob":       {"pattern": "x"},
		} {
			if message := b.refused(want, name, input); strings.Contains(message, gone) {
				t.Errorf("%s shows a path of the machine: %q", name, message)
			}
		}
	}
}

// TestNamesSwappedAfterTheCheck plays the one who swaps a name between resolving and opening.
func TestNamesSwappedAfterTheCheck(t *testing.T) {
	b := newBench(t)
	b.put("victim", "x\n")
	b.put("dir/victim", "x\n")
	w, err := openWorkspace(b.env)
	b.must(err)
	defer w.close()
	swap := func(path string, put func(name string)) error {
		tg, err := w.resolve("file_path", path)
		b.must(err)
		name, _, _ := strings.Cut(path, "/")
		b.must(os.RemoveAll(b.at(name)))
		put(name)
		done := make(chan error, 1)
		go func() {
			f, _, err := w.openFile(tg)
			if err == nil {
				_ = f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("the open waits for the other end of a FIFO")
			return nil
		}
	}
	fifo := swap("victim", func(name string) { b.must(syscall.Mkfifo(b.at(name), 0o644)) })
	if tool.AsError(fifo).Code != toolyard.InvalidArguments || !strings.Contains(fifo.Error(), "FIFO") {
		t.Errorf("a FIFO: %v", fifo)
	}
	b.must(os.Remove(b.at("victim")))
	b.put("victim", "x\n")
	if err := swap("victim", func(name string) {
		b.link(filepath.Join(b.outside, "secret"),
			name)
	}); tool.AsError(err).Code != toolyard.SandboxViolation {
		t.Errorf("a link out: %v", err)
	}
	if err := swap("dir/victim", func(name string) {
		b.link(b.outside,
			name)
	}); tool.AsError(err).Code != toolyard.SandboxViolation {
		t.Errorf("a directory that became a link out: %v", err)
	}
}

func TestKind(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0: "a regular file", fs.ModeDir: "a directory", fs.ModeSymlink: "a symbolic link",
		fs.ModeNamedPipe: "a named pipe (FIFO)",
		fs.ModeSocket:    "a socket", fs.ModeDevice: "a device", fs.ModeDevice | fs.ModeCharDevice: "a device",
		fs.ModeIrregular: "a special file",
	} {
		if got := kind(mode); got != want {
			t.Errorf("%v: %q, want %q", mode, got, want)
		}
	}
}

// FuzzResolve makes paths and links, and holds what the resolver finds against the kernel: it is inside the workspace,
// it has no link in it, and a read through it never shows the secret.
func FuzzResolve(f *testing.F) {
	for _, seed := range [][2]string{
		{"a/../b", "x"}, {"link/secret", "../outside"}, {"link", "/etc/passwd"}, {"link/../../outside/secret", "a/b"},
		{"/etc/passwd", "."},
		{"link/link/link", "."}, {"a//./b/../link", ".."}, {"a\x00b", "a"}, {"link/ws/a/b", ".."}, {"link/x", "link"},
		{"WS/link/secret", "WS/../outside"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, path, to string) {
		b := newBench(t)
		b.put("a/b/c", "c\n")
		path = strings.ReplaceAll(path, "WS", b.env.WorkspaceDir)
		if to = strings.ReplaceAll(to, "WS", b.env.WorkspaceDir); os.Symlink(to, b.at("link")) != nil {
			t.Skip("no name of a link")
		}
		w, err := openWorkspace(b.env)
		b.must(err)
		defer w.close()
		tg, err := w.resolve("file_path", path)
		if err != nil {
			if code := tool.AsError(err).Code; code != toolyard.InvalidArguments && code != toolyard.SandboxViolation {
				t.Fatalf("%q with a link to %q: %v", path, to, err)
			}
			return
		}
		if tg.name != "." && !filepath.IsLocal(tg.name) {
			t.Fatalf("%q with a link to %q: resolved to %q", path, to, tg.name)
		}
		real, err := filepath.EvalSymlinks(b.at(tg.name))
		switch {
		case tg.info == nil && errors.Is(err, fs.ErrNotExist):
		case tg.info == nil:
			t.Fatalf("%q with a link to %q: %q is said to be missing and is %q, %v", path, to, tg.name, real, err)
		case err != nil || real != filepath.Clean(b.at(tg.name)):
			t.Fatalf("%q with a link to %q: %q leads to %q, %v", path, to, tg.name, real, err)
		}
		if out, err := b.tools["read_file"].Run(t.Context(), b.env,
			encode(in{"file_path": path})); strings.Contains(out.Text, "SECRET") {
			t.Fatalf("%q with a link to %q: read the file outside (%v)", path, to, err)
		}
	})
}
