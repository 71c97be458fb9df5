package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// dir is where the tests keep the module, and data a directory in it that the module may read as /data.
var dir, data string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "wasm"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	data = filepath.Join(dir, "data")
	return m.Run()
}

// guestFile builds testdata/guest, once: fuzzing, whose processes are many, does without.
var guestFile = sync.OnceValues(func() (string, error) {
	file := filepath.Join(dir, "guest.wasm")
	build := exec.Command("go", "build", "-o", file, "main.go")
	build.Dir, build.Env = filepath.Join("testdata", "guest"), append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm",
		"GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, os.Mkdir(data, 0o755)
})

// madeGuest is the guest with all that a manifest may give it.
var madeGuest = sync.OnceValues(func() (tool.Tool, error) {
	return declared("", `"args":["{do}","{at}"],"stdin":"json","read":{"/data":"`+data+`"},`+
		`"env":{"OWN":"yes"},"limits":{"memory_mib":64,"files":16,"output_bytes":262144}`)
})

// guestOf is the tool that does what its input says.
func guestOf(t *testing.T) tool.Tool {
	t.Helper()
	x, err := madeGuest()
	must.OK(t, err)
	return x
}

// declared is the tool of a manifest: more are keys of the tool, keys those of its module.
func declared(more, keys string) (tool.Tool, error) {
	file, err := guestFile()
	if err != nil {
		return tool.Tool{}, err
	}
	f, err := manifest.Decode([]byte(`{"tools":[{"name":"guest","description":"d",` + more + `"input_schema":{"type":` +
		`"object","properties":{"do":{"type":"string"},"at":{"type":"string"}}},"wasm":{"file":"` + file + `",` +
		keys + `}}]}`))
	if err != nil {
		return tool.Tool{}, err
	}
	return New(f.Tools[0])
}

// env is what a call in a directory gets. hides are the paths that rules hide.
func env(t *testing.T, dir string, hides ...string) tool.Env {
	t.Helper()
	e := tool.Env{Agent: "ann", Batch: "b1", Index: 3, Workspace: "w", IdempotencyKey: "ty-1",
		Progress: func(tool.Progress) {}}
	if dir != "" {
		root, err := place.Hold(dir, nil)
		must.OK(t, err)
		t.Cleanup(func() { _ = root.Close() })
		e.Root, e.WorkspaceDir = root, dir
	}
	if len(hides) > 0 {
		e.Hidden = func(p string) bool {
			return slices.ContainsFunc(hides, func(h string) bool { return p == h || strings.HasPrefix(p, h+"/") })
		}
	}
	return e
}

func does(what, at string) json.RawMessage {
	in, err := json.Marshal(map[string]string{"do": what, "at": at})
	if err != nil {
		panic(err)
	}
	return in
}

// workspace makes a directory with files.
func workspace(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
		must.OK(t, err)
	}
	return dir
}

// TestAModuleGetsWhatTheManifestSays, and nothing else.
func TestAModuleGetsWhatTheManifestSays(t *testing.T) {
	guest := guestOf(t)
	if guest.Execution != tool.InWasm || guest.NeedsIsolation(toolyard.Unsafe) {
		t.Errorf("it runs in %q", guest.Execution)
	}
	if j, ok := guest.StaticJudgement(); !ok || j.Class != toolyard.Unsafe {
		t.Errorf("it is judged %+v", j)
	}
	t.Setenv("WORKERS_OWN", "secret")
	dir := workspace(t, map[string]string{"note.txt": "hello"})
	ctx, stamp := sandbox.WithStamp(t.Context())
	out, err := guest.Run(ctx, env(t, dir), does("env", "x"))
	var got struct{ Args, Env []string }
	if err != nil || json.Unmarshal([]byte(out.Text), &got) != nil {
		t.Fatalf("%v: %q", err, out.Text)
	}
	if !slices.Equal(got.Args, []string{"guest", "env", "x"}) || !slices.Contains(got.Env, "OWN=yes") ||
		!slices.Contains(got.Env, "TOOLYARD_IDEMPOTENCY_KEY=ty-1") || strings.Contains(out.Text, "WORKERS_OWN") {
		t.Errorf("it has %+v", got)
	}
	if stamp.Isolation() != Isolation {
		t.Errorf("the result says isolation %q", stamp.Isolation())
	}
	if out, err := guest.Run(t.Context(), env(t, dir), does("echo", "")); err != nil ||
		out.Text != `{"at":"","do":"echo"}` {
		t.Errorf("stdin: %q, %v", out.Text, err)
	}
	var told []string
	e := env(t, dir)
	e.Progress = func(p tool.Progress) { told = append(told, p.Status) }
	if _, err := guest.Run(t.Context(), e, does("progress", "")); err != nil || !slices.Contains(told, "half done") {
		t.Errorf("progress %q, %v", told, err)
	}
	if err := guest.Check(t.Context(), env(t, ""), does("echo", "")); tool.AsError(err).Code != toolyard.SetupRequired {
		t.Errorf("without a workspace: %v", err)
	}
	structured, err := declared(`"uses_workspace":false,`, `"output":"json"`)
	must.OK(t, err)
	_, err = structured.Run(t.Context(), env(t, ""), does("x", ""))
	if tool.AsError(err).Code != toolyard.ExecutionFailed {
		t.Errorf("without its argument: %v", err) // it panics, as os.Args is short
	}
}

// TestAModuleReadsItsMountsOnly: whatever it writes as a path, it reads what is mounted, and of that nothing that leads
// out, is hidden, or is no file.
func TestAModuleReadsItsMountsOnly(t *testing.T) {
	guest := guestOf(t)
	outside := workspace(t, map[string]string{"secret": "TOP"})
	dir := workspace(t, map[string]string{"note.txt": "hello", "sub/deep.txt": "deep", "private/key": "TOP",
		"open/x": "y"})
	must.OK(t, errors.Join(
		os.WriteFile(filepath.Join(data, "table"), []byte("rows"), 0o644),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "out")),
		os.Symlink("../../../../../../../../etc", filepath.Join(dir, "etc")),
		os.Symlink("sub/deep.txt", filepath.Join(dir, "within")),
		os.Symlink("private", filepath.Join(dir, "renamed")),
		os.Link(filepath.Join(dir, "private/key"), filepath.Join(dir, "open/same")),
	))
	if runtime.GOOS == "linux" {
		must.OK(t, exec.Command("mkfifo", filepath.Join(dir, "fifo")).Run())
	}
	e := env(t, dir, "private")
	for path, want := range map[string]string{
		"note.txt": "hello", "/note.txt": "hello", "sub/../note.txt": "hello", "within": "deep", "/data/table": "rows",
		"/data/../note.txt": "hello", "../note.txt": "hello", // above / is /
		"out": "", "etc/passwd": "", "/etc/passwd": "", "../../../../etc/passwd": "", "fifo": "",
		"/data/../../etc/passwd": "", "/proc/self/environ": "", "private/key": "", "renamed/key": "", "open/same": "",
		"/data/../private/key": "", "sub/\x01": "", filepath.Join(outside, "secret"): "",
	} {
		out, err := guest.Run(t.Context(), e, does("read", path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		got, ok := strings.CutPrefix(strings.TrimSuffix(out.Text, "\n"), path+" content: ")
		if ok != (want != "") || ok && got != want || strings.Contains(out.Text, "TOP") ||
			strings.Contains(out.Text, "root:") {
			t.Errorf("reads of %s: %q, want %q", path, out.Text, want)
		}
	}
	out, err := guest.Run(t.Context(), e, does("list", "/"))
	if err != nil || strings.Contains(out.Text, "private") || !strings.Contains(out.Text, "sub/deep.txt <nil>") {
		t.Errorf("it lists %q, %v", out.Text, err)
	}
}

// TestAModuleChangesNothing: what it may read it can't write, and it has no network and no processes.
func TestAModuleChangesNothing(t *testing.T) {
	guest := guestOf(t)
	dir := workspace(t, map[string]string{"note.txt": "hello"})
	must.OK(t, os.WriteFile(filepath.Join(data, "note.txt"), []byte("hello"), 0o644))
	for _, c := range []struct{ at, dir string }{{"/", dir}, {"/data", data}} {
		before := tree(t, c.dir)
		out, err := guest.Run(t.Context(), env(t, dir), does("change", c.at))
		if err != nil || strings.ReplaceAll(out.Text, "did listen\n", "") != "" {
			t.Errorf("in %s: %q, %v", c.at, out.Text, err)
		}
		if after := tree(t, c.dir); !maps.Equal(after, before) {
			t.Errorf("%s was %v, and is %v", c.at, before, after)
		}
	}
}

// tree is what is in a directory, and when it was last changed.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := os.ReadDir(dir)
	must.OK(t, err)
	for _, e := range list {
		info, err := e.Info()
		must.OK(t, err)
		all[e.Name()] = fmt.Sprint(info.Mode(), info.Size(), info.ModTime())
	}
	return all
}

// TestEveryLimitEndsAModule: what a module does without measure ends in an error that says why, and the next call of
// the same tool runs.
func TestEveryLimitEndsAModule(t *testing.T) {
	guest := guestOf(t)
	dir := workspace(t, map[string]string{"note.txt": "hello"})
	for _, c := range []struct {
		do    string
		words string
	}{
		{"memory", "exit status 2; it asked for more than the 64 MiB of memory"},
		{"output", "it wrote more than 262144 bytes"},
		{"files", "exit status 3; it opened more than the 16 files"},
		{"recurse", "exit status 2"}, // Go's own limit of a stack
		{"crash", "exit status 2"},
		{"nothing", "exit status 3"},
	} {
		out, err := guest.Run(t.Context(), env(t, dir), does(c.do, "note.txt"))
		if e := tool.AsError(err); err == nil || e.Code != toolyard.ExecutionFailed ||
			!strings.Contains(e.Message, c.words) {
			t.Errorf("%s: %v, want %q", c.do, err, c.words)
		}
		if len(out.Text) > 262144 {
			t.Errorf("%s: %d bytes are kept", c.do, len(out.Text))
		}
	}
	over := errors.New("the call's time is over")
	for _, do := range []string{"loop", "sleep"} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, over)
		if _, err := guest.Run(ctx, env(t, dir), does(do, "")); !errors.Is(err, over) {
			t.Errorf("%s: %v", do, err)
		}
		cancel()
	}
	if runtime.GOOS == "linux" {
		open, err := os.ReadDir("/proc/self/fd")
		must.OK(t, err)
		for _, fd := range open {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasSuffix(to, "note.txt") {
				t.Errorf("%s is open still", to)
			}
		}
	}
	if out, err := guest.Run(t.Context(), env(t, dir), does("read", "note.txt")); err != nil ||
		!strings.Contains(out.Text, "hello") {
		t.Errorf("the next call: %q, %v", out.Text, err)
	}
}

// section is one of a module.
func section(id byte, content ...byte) []byte {
	return append(binary.AppendUvarint([]byte{id}, uint64(len(content))), content...)
}

// assembled is a module that imports one function of two numbers of WASI, and whose _start has a body.
func assembled(imported string, body []byte, more ...[]byte) []byte {
	return assembledWith(2, imported, body, more...)
}

// assembledWith is assembled for a function of so many numbers.
func assembledWith(numbers int, imported string, body []byte, more ...[]byte) []byte {
	const i32, function = 0x7f, 0x60
	from := "wasi_snapshot_preview1"
	imports := append([]byte{1, byte(len(from))}, from...)
	imports = append(append(imports, byte(len(imported))), imported...)
	code := append([]byte{0}, body...) // no locals
	module := slices.Concat([]byte(magic),
		section(1, slices.Concat([]byte{2, function, byte(numbers)}, bytes.Repeat([]byte{i32}, numbers),
			[]byte{1, i32, function, 0, 0})...),
		section(2, append(imports, 0, 0)...),
		section(3, 1, 1))
	for _, s := range more {
		module = append(module, s...)
	}
	return slices.Concat(module,
		section(7, append([]byte{1, byte(len(start))}, start+"\x00\x01"...)...),
		section(10, append(binary.AppendUvarint([]byte{1}, uint64(len(code))), code...)...))
}

// made is the tool of a module's bytes.
func made(t *testing.T, code []byte) (tool.Tool, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.wasm")
	must.OK(t, os.WriteFile(file, code, 0o600))
	f, err := manifest.Decode([]byte(`{"tools":[{"name":"x","description":"d","uses_workspace":false,` +
		`"input_schema":{"type":"object","additionalProperties":false},"wasm":{"file":"` + file + `",` +
		`"limits":{"memory_mib":1}}}]}`))
	must.OK(t, err)
	return New(f.Tools[0])
}

// TestWhatGoCannotWrite: modules that no compiler makes are refused before they run, or end.
func TestWhatGoCannotWrite(t *testing.T) {
	number := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	i32 := func(n uint64) []byte { return append([]byte{0x41}, binary.AppendUvarint(nil, n)...) }
	const call, drop, end, unreachable, grow = 0x10, 0x1a, 0x0b, 0x00, 0x40
	noBody := []byte{end}
	for name, c := range map[string]struct {
		code  []byte
		words string // "": it loads
		run   string // of the error of a run; "": it succeeds
	}{
		"an empty file":   {nil, "no WebAssembly module", ""},
		"a text":          {[]byte("#!/bin/sh\n"), "no WebAssembly module", ""},
		"a cut module":    {assembled("fd_renumber", noBody)[:40], "in the middle", ""},
		"without a start": {[]byte(magic), "no function _start", ""},
		"a foreign import": {bytes.Replace(assembled("fd_renumber", noBody), []byte("wasi_snapshot"),
			[]byte("wasi_unstable"), 1), "there is WASI preview 1 only", ""},
		"a huge table": {assembled("fd_renumber", noBody, section(4, slices.Concat([]byte{1, 0x70, 0},
			number(1<<27))...)), "a table of 134217728 entries", ""},
		"more imports than bytes": {append([]byte(magic), section(2, 0xe6, 0xe6, 0xe6, 0xe6, 1)...),
			"more entries than fit into it", ""},
		"many tables": {assembled("fd_renumber", noBody, section(4, 2, 0x70, 0, 1, 0x70, 0, 1)), "at most one table",
			""},
		"a table that grows": {assembled("fd_renumber", []byte{0xd0, 0x70, 0x41, 1, 0xfc, 15, 0, drop, end},
			section(4, 1, 0x70, 0, 1)), `feature "reference-types" is disabled`, ""},
		"a huge memory": {assembled("fd_renumber", noBody, section(5, 1, 0, 17)), "1 MiB of memory from the beginning",
			""},
		"memory that grows": {assembled("fd_renumber", slices.Concat(i32(30), []byte{0x40, 0, 0x41, 0x7f, 0x47, 0x04,
			grow, unreachable, end, unreachable, end}), section(5, 1, 0, 1)), "", "asked for more than the 1 MiB"},
		"endless recursion": {assembled("fd_renumber", []byte{call, 1, end}), "", "stack overflow"},
		"a trap":            {assembled("fd_renumber", []byte{unreachable, end}), "", "unreachable"},
		"a descriptor far away": {assembled("fd_renumber", slices.Concat(i32(1), i32(1<<30), []byte{call, 0},
			i32(notSupported), []byte{0x47, 0x04, grow, unreachable, end, end}), section(5, 1, 0, 1)), "", ""},
	} {
		x, err := made(t, c.code)
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
			continue
		}
		if err != nil {
			continue
		}
		_, err = x.Run(t.Context(), env(t, ""), json.RawMessage(`{}`))
		if (err == nil) != (c.run == "") || err != nil && !strings.Contains(tool.AsError(err).Message, c.run) {
			t.Errorf("%s: %v, want %q", name, err, c.run)
		}
	}
	if _, err := declared("", `"sha256":"`+hex.EncodeToString(make([]byte, 32))+`"`); err == nil ||
		!strings.Contains(err.Error(), "the manifest says 0000") {
		t.Errorf("another digest: %v", err)
	}
}

// TestImportsThatNobodyHas: what no call could be given is said when the worker starts.
func TestImportsThatNobodyHas(t *testing.T) {
	noBody := []byte{0x0b}
	imports := func(kind byte, more ...byte) []byte {
		return slices.Concat([]byte(magic), section(2, append([]byte{1, 3, 'e', 'n', 'v', 1, 'x', kind}, more...)...))
	}
	for words, code := range map[string][]byte{
		"imports a memory, env.x;":                                   imports(2, 0, 1),
		"imports a table, env.x;":                                    imports(1, 0x70, 0, 1),
		"imports a global, env.x;":                                   imports(3, 0x7f, 0),
		"imports something else than a function, env.x;":             imports(4, 0, 0),
		"a section of imports that cannot be read":                   imports(0),
		"preview1.proc_spawn, which WASI preview 1 does not have":    assembled("proc_spawn", noBody),
		"preview1.fd_write with other types than WASI preview 1 has": assembled("fd_write", noBody),
	} {
		if _, err := made(t, code); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got the error %v, want one about %q", err, words)
		}
	}
}

// TestAModuleThatEndsWithTooMuchOutput: what was cut off is a failure, also if the module does not look and ends well.
func TestAModuleThatEndsWithTooMuchOutput(t *testing.T) {
	i32 := func(n uint64) []byte { return binary.AppendUvarint([]byte{0x41}, n) }
	store := func(at, n uint64) []byte { return slices.Concat(i32(at), i32(n), []byte{0x36, 2, 0}) }
	const piece, call, drop, end = 600_000, 0x10, 0x1a, 0x0b // bytes; two pieces are too much
	x, err := made(t, assembledWith(4, "fd_write", slices.Concat(store(4, piece), store(12, piece),
		i32(1), i32(0), i32(2), i32(16), []byte{call, 0, drop, end}), section(5, 1, 0, 10)))
	must.OK(t, err)
	for range 50 {
		out, err := x.Run(t.Context(), env(t, ""), json.RawMessage(`{}`))
		if err == nil || !strings.Contains(tool.AsError(err).Message, "wrote more than 1048576 bytes") {
			t.Fatalf("%d bytes, %v", len(out.Text), err)
		}
	}
}

// FuzzSizes: whatever a file holds, it is looked at without a panic. What passes has no part that says it is larger
// than it can be, also with another section behind it.
func FuzzSizes(f *testing.F) {
	f.Add(assembled("fd_renumber", []byte{0x0b}, section(4, 1, 0x70, 0, 1), section(5, 1, 1, 1, 2)), byte(5), uint32(2))
	f.Add([]byte(magic), byte(4), uint32(1<<27))
	f.Fuzz(func(t *testing.T, code []byte, id byte, least uint32) {
		if checkSizes(code, 1<<20) != nil {
			return
		}
		if err := checkSizes(append(slices.Clip(code), section(id%2+sectionTable, binary.AppendUvarint(
			slices.Clone([][]byte{{1, 0x70, 0}, {1, 0}}[id%2]), uint64(least))...)...), 1<<20); (err != nil) !=
			(uint64(least) > []uint64{MaxTableEntries, 16}[id%2]) {
			t.Errorf("with a section %d of %d: %v", id%2+sectionTable, least, err)
		}
		if checkSizes(append(slices.Clip(code), section(2, 0xe6, 0xe6, 0xe6, 0xe6, 1)...), 1<<20) == nil {
			t.Error("a section with more entries than bytes passes")
		}
	})
}

// BenchmarkCall is a call of a module that was compiled before.
func BenchmarkCall(b *testing.B) {
	e := tool.Env{Progress: func(tool.Progress) {}}
	x, err := declared(`"uses_workspace":false,`, `"args":["{do}"],"stdin":"json"`)
	must.OK(b, err)
	for b.Loop() {
		if _, err := x.Run(b.Context(), e, does("echo", "")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile is what a worker's start takes for a module of 4.5 MB.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := declared("", `"stdin":"json"`); err != nil {
			b.Fatal(err)
		}
	}
}
