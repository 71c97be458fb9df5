//go:build unix

package builtin

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// bench is a workspace with the tools on it.
type bench struct {
	*testing.T
	env   tool.Env
	tools map[string]tool.Tool
	// outside is a directory beside the workspace, with the file "secret" in it.
	outside string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	b := &bench{T: t, outside: filepath.Join(top, "outside"), tools: map[string]tool.Tool{}}
	b.env = tool.Env{
		Workspace: "w", WorkspaceDir: filepath.Join(top, "ws"), Attempt: 1,
		Progress: func(tool.Progress) {}, CommitPoint: func() error { return nil },
	}
	b.must(os.MkdirAll(b.env.WorkspaceDir, 0o755))
	b.hold(b.env.WorkspaceDir)
	b.must(os.MkdirAll(b.outside, 0o755))
	b.must(os.WriteFile(filepath.Join(b.outside, "secret"), []byte("TOP SECRET\n"), 0o644))
	tools, err := All(Options{})
	b.must(err)
	for _, t := range tools {
		b.tools[t.Name] = t
	}
	return b
}

// hold makes a directory the workspace's.
func (b *bench) hold(dir string) {
	b.Helper()
	root, err := place.Hold(dir, nil)
	b.must(err)
	b.Cleanup(func() { _ = root.Close() })
	b.env.WorkspaceDir, b.env.Root = dir, root
}

func (b *bench) must(err error) {
	b.Helper()
	must.OK(b, err)
}

// at is a path in the workspace.
func (b *bench) at(name string) string { return filepath.Join(b.env.WorkspaceDir, name) }

// put writes a file, with its directories.
func (b *bench) put(name, content string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.at(name)), 0o755))
	b.must(os.WriteFile(b.at(name), []byte(content), 0o644))
}

// link makes a symbolic link.
func (b *bench) link(to, name string) {
	b.Helper()
	b.must(os.Symlink(to, b.at(name)))
}

func (b *bench) content(name string) string {
	b.Helper()
	data, err := os.ReadFile(b.at(name))
	b.must(err)
	return string(data)
}

func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

type in map[string]any

// ok runs a call that must pass its check and succeed.
func (b *bench) ok(name string, input in) string {
	b.Helper()
	if err := b.tools[name].Check(b.Context(), b.env, encode(input)); err != nil {
		b.Fatalf("%s %v: check: %v", name, input, err)
	}
	out, err := b.tools[name].Run(b.Context(), b.env, encode(input))
	if err != nil {
		b.Fatalf("%s %v: run: %v", name, input, err)
	}
	return out.Text
}

// refused makes a call that both its check and its run must refuse with a code, and returns the message. Nothing of
// what lies outside the workspace may be in it.
func (b *bench) refused(code toolyard.Code, name string, input in) string {
	b.Helper()
	return b.refusedRaw(code, name, encode(input))
}

func (b *bench) refusedRaw(code toolyard.Code, name string, input json.RawMessage) string {
	b.Helper()
	var message string
	check := b.tools[name].Check(b.Context(), b.env, input)
	_, run := b.tools[name].Run(b.Context(), b.env, input)
	for phase, err := range map[string]error{"check": check, "run": run} {
		if err == nil {
			b.Errorf("%s %.200q: %s did not refuse it, want %s", name, input, phase, code)
			continue
		}
		e := tool.AsError(err)
		if e.Code != code {
			b.Errorf("%s %.200q: %s: %v, want %s", name, input, phase, err, code)
		}
		message = e.Message
		if strings.Contains(message, "TOP SECRET") || strings.Contains(message, b.outside) &&
			!bytes.Contains(input, []byte(b.outside)) {
			b.Errorf("%s %.200q: %s shows what lies outside: %q", name, input, phase, message)
		}
	}
	return message
}

func (b *bench) contains(text string, parts ...string) {
	b.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.Errorf("%q does not contain %q", text, p)
		}
	}
}

// TestDeclarations shows each change of what goes into every prompt, and of what others enforce.
func TestDeclarations(t *testing.T) {
	tools, err := All(Options{})
	must.OK(t, err)
	var got bytes.Buffer
	var names []string
	for _, tl := range tools {
		data, err := json.MarshalIndent(tl.Declaration, "", "  ")
		must.OK(t, err)
		got.Write(data)
		got.WriteByte('\n')
		names = append(names, tl.Name)
	}
	want := []string{"bash", "edit_file", "glob", "grep", "read_file", "read_result", "tool_search", "web_fetch",
		"write_file"}
	if !slices.Equal(names, want) {
		t.Errorf("the tools are %q, want %q", names, want)
	}
	golden := filepath.Join("testdata", "declarations.json")
	if *update {
		must.OK(t, os.MkdirAll("testdata", 0o755))
		must.OK(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	old := must.Read(t, golden)
	if !bytes.Equal(old, got.Bytes()) {
		t.Errorf("the declarations changed, and with them every prompt cache; if that is meant, run go test -update. "+
			"Now:\n%s", got.Bytes())
	}
}

// TestLintHasNothingToSay: the built-in tools are what --lint asks others to be.
func TestLintHasNothingToSay(t *testing.T) {
	tools, err := All(Options{})
	must.OK(t, err)
	for _, tl := range tools {
		for _, remark := range registry.Lint(tl.Declaration) {
			t.Errorf("%s: %s", tl.Name, remark)
		}
	}
}

// TestFieldsAreTheContract holds the names of API.md, which other languages rely on.
func TestFieldsAreTheContract(t *testing.T) {
	want := map[string]struct{ fields, required []string }{
		"read_file":  {[]string{"file_path", "offset", "limit"}, []string{"file_path"}},
		"glob":       {[]string{"pattern", "path"}, []string{"pattern"}},
		"grep":       {[]string{"pattern", "path", "glob", "ignore_case", "context"}, []string{"pattern"}},
		"write_file": {[]string{"file_path", "content"}, []string{"file_path", "content"}},
		"edit_file": {[]string{"file_path", "old_string", "new_string", "replace_all"},
			[]string{"file_path", "old_string", "new_string"}},
		"bash":        {[]string{"command", "timeout_ms", "description"}, []string{"command"}},
		"web_fetch":   {[]string{"url", "max_chars"}, []string{"url"}},
		"read_result": {[]string{"ref", "offset", "limit"}, []string{"ref"}},
		"tool_search": {[]string{"query", "limit"}, []string{"query"}},
	}
	for name, tl := range newBench(t).tools {
		var schema struct {
			Properties           map[string]struct{ Type, Description string }
			Required             []string
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(tl.InputSchema, &schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("%s: the schema is open", name)
		}
		if len(schema.Properties) != len(want[name].fields) || !slices.Equal(schema.Required, want[name].required) {
			t.Errorf("%s: %d fields, required %q; want %q, required %q", name, len(schema.Properties), schema.Required,
				want[name].fields, want[name].required)
		}
		for _, f := range want[name].fields {
			if p := schema.Properties[f]; p.Type == "" || len(p.Description) < 20 {
				t.Errorf("%s: field %s: %+v", name, f, p)
			}
		}
		if reader := tl.Class.Static == toolyard.ReadOnly; reader != tl.ReadOnly ||
			(reader || tl.Class.Shell != "") == tl.FailureAbortsSiblings() {
			t.Errorf("%s: class %q, read-only %v, aborts siblings %v", name, tl.Class.Static, tl.ReadOnly,
				tl.FailureAbortsSiblings())
		}
	}
}

func TestLimitsFitTogether(t *testing.T) {
	for name, ok := range map[string]bool{
		"a line fits an answer":             MaxLineChars*4+noteBytes < MaxOutputBytes,
		"a row of grep fits an answer":      MaxPathBytes*4+MaxGrepLineChars*4+noteBytes < MaxOutputBytes,
		"the default page of a result fits": DefaultResultChars*4+noteBytes < MaxOutputBytes,
		"the defaults are within the bounds": DefaultReadLines <= MaxReadLines &&
			DefaultFetchChars <= MaxFetchChars && DefaultResultChars <= MaxResultChars &&
			DefaultBashTimeout <= MaxBashTimeout,
		"a page is shown before it is offloaded":  DefaultFetchChars < tool.DefaultMaxResultSizeChars,
		"connecting is a part of fetching":        DialTimeout < FetchTimeout,
		"the probe fits what a reader can peek":   BinaryProbeBytes <= 64<<10,
		"what can be written can be searched too": MaxWriteBytes <= MaxGrepFileBytes,
	} {
		if !ok {
			t.Errorf("%s: it does not", name)
		}
	}
}

func TestInputThatIsNoText(t *testing.T) {
	b := newBench(t)
	b.put("a\ufffdb", "the wrong file\n")
	for _, raw := range []string{
		"{\"file_path\":\"a\xffb\"}", // encoding/json would read U+FFFD, and the wrong file
		`{"file_path":"a\ud800b"}`,
		`{"file_path":"a\udc00b"}`,
		`{"file_path":"a\ud800\u0041b"}`,
	} {
		b.refusedRaw(toolyard.InvalidArguments, "read_file", json.RawMessage(raw))
	}
	// The positive controls: what is well-formed is read.
	b.put("a\U0001F600", "smile\n")
	for _, raw := range []string{`{"file_path":"a\ud83d\ude00"}`, `{"file_path":"a😀","offset":1.0,"limit":1e1}`} {
		out, err := b.tools["read_file"].Run(t.Context(), b.env, json.RawMessage(raw))
		b.must(err)
		b.contains(out.Text, "1\tsmile")
	}
	b.ok("read_file", in{"file_path": "a\ufffdb"})
	if strictjson.HalfSurrogate([]byte(`"\\ud800"`)) {
		t.Error("an escaped backslash before u is taken for an escape")
	}
	b.refusedRaw(toolyard.InvalidArguments, "read_file", json.RawMessage(`{"file_path":"x","offset":1.5}`))
	b.refusedRaw(toolyard.InvalidArguments, "read_file", json.RawMessage(`{"file_path":"x","offset":0}`))
	b.refusedRaw(toolyard.InvalidArguments, "read_file", json.RawMessage(`{"file_path":"x","limit":1e300}`))
}
