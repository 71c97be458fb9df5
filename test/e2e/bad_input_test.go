//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// place is where commands run: a workspace as the working directory, and a directory of their own for temporary files.
type place struct {
	t        *testing.T
	dir, tmp string
}

func newPlace(t *testing.T, files map[string]string) place {
	t.Helper()
	return place{t: t, dir: workspace(t, files), tmp: t.TempDir()}
}

// command makes a command of the dispatcher, with none of the settings that this test's own environment may have.
func (p place) command(ctx context.Context, stdin io.Reader, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "dispatcher"), args...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = p.dir, stdin, 5*time.Second
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "TOOLYARD_") })
	cmd.Env = append(append(append(cmd.Env, "TMPDIR="+p.tmp), reach(args)...), env...)
	return cmd
}

// run runs a command of the dispatcher to its end, and checks what holds whatever the command: no panic, and no
// temporary file left behind.
func (p place) run(stdin io.Reader, env []string, args ...string) (stdout, stderr string, status int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 60*time.Second)
	defer cancel()
	cmd := p.command(ctx, stdin, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		p.t.Fatalf("%q hangs", args)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		p.t.Fatalf("%q: %v", args, err)
	}
	p.checkTidy(errs.String())
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (p place) checkTidy(stderr string) {
	p.t.Helper()
	if strings.Contains(stderr, "panic") || strings.Contains(stderr, "goroutine ") {
		p.t.Errorf("a panic:\n%s", stderr)
	}
	left, err := os.ReadDir(p.tmp)
	must.OK(p.t, err)
	for _, e := range left {
		p.t.Errorf("%s is left behind in the directory for temporary files", e.Name())
	}
}

// ok runs a command that must succeed.
func (p place) ok(env []string, args ...string) (stdout string) {
	p.t.Helper()
	stdout, stderr, status := p.run(nil, env, args...)
	if status != 0 || stderr != "" {
		p.t.Fatalf("%q: exit status %d, %s", args, status, stderr)
	}
	return stdout
}

// view runs a batch with --json.
func (p place) view(args ...string) toolyard.BatchView {
	p.t.Helper()
	return viewOf(p.t, p.ok(nil, append([]string{"run", "--json"}, args...)...))
}

func (p place) write(name, content string) {
	p.t.Helper()
	must.OK(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644))
}

// refused checks that a command ended as one whose input is wrong does: status 2, nothing on stdout, and one line that
// says all of want.
func refused(t *testing.T, stdout, stderr string, status int, want ...string) {
	t.Helper()
	if status != 2 {
		t.Errorf("exit status %d, want 2", status)
	}
	if stdout != "" {
		t.Errorf("it printed on stdout: %.200q", stdout)
	}
	line, ok := strings.CutSuffix(stderr, "\n")
	if !ok || strings.Contains(line, "\n") || !strings.HasPrefix(line, "dispatcher: ") || len(line) > 2000 ||
		!utf8.ValidString(line) {
		t.Errorf("stderr is not one line: %.2100q", stderr)
	}
	if i := strings.IndexFunc(line, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }); i >= 0 {
		t.Errorf("stderr has a control character at byte %d: %q", i, line)
	}
	for _, w := range want {
		if !strings.Contains(line, w) {
			t.Errorf("stderr does not say %q:\n%s", w, stderr)
		}
	}
}

// fine is a batch with nothing wrong.
const fine = `{"calls":[{"tool":"read_file","input":{"file_path":"a.txt"}}]}`

func manyCalls(n int) string {
	return `{"calls":[` + strings.Repeat(`{"tool":"grep"},`, n-1) + `{"tool":"grep"}]}`
}

// badFiles are inputs that no batch can be made of. They are refused alike by every command that reads one, and before
// anything is started or asked.
var badFiles = []struct {
	name, content string
	want          []string
}{
	{"not JSON", "{\n  \"calls\": [}\n", []string{"not JSON", "line 2, column 13"}},
	{"cut", `{"calls":[{"tool":"grep"`, []string{"not JSON", "ends too early"}},
	{"not JSON at all", "hello, there\n", []string{"not JSON at line 1, column 1"}},
	{"binary", "\x7fELF\x02\x01\x01\x00\x00", []string{"not JSON"}},
	{"empty", "", []string{"is empty; hand in one JSON document"}},
	{"white space", " \n\t\n", []string{"is empty; hand in one JSON document"}},
	{"a byte order mark", "\ufeff" + fine, []string{"byte order mark"}},
	{"two values", fine + "\n" + fine, []string{"goes on after its JSON value at line 2, column 1",
		"hand in one JSON document"}},
	{"unknown shape", `{"tool":"grep"}`, []string{"no form known here", "--input-format"}},
	{"a number", `7`, []string{"is a number, which is no form known here"}},
	{"no calls", `{"calls":[]}`, []string{"calls: has no calls"}},
	{"calls is null", `{"calls":null}`, []string{"calls"}},
	{"calls is an object", `{"calls":{}}`, []string{"calls: want array, got object"}},
	{"no tool calls in a message", `{"role":"assistant","content":[{"type":"text","text":"hi"}]}`,
		[]string{"no tool_use block"}},
	{"no tool", `{"calls":[{"id":"a"}]}`, []string{"calls[0].tool: want string, got nothing"}},
	{"duplicate call ids", `{"calls":[{"id":"a","tool":"grep"},{"id":"b","tool":"grep"},{"id":"a","tool":"glob"}]}`,
		[]string{`calls[2].id: "a" is also the id of calls[0]`}},
	{"duplicate key", `{"calls":[{"tool":"grep","tool":"glob"}]}`, []string{"calls[0].tool: appears twice"}},
	{"unknown field", `{"calls":[{"tool":"grep"}],"optoins":{}}`,
		[]string{"optoins: is not a field", `did you mean "options"?`}},
	{"an agent that grants itself", `{"calls":[{"tool":"grep"}],"options":{"allow":["bash"]}}`,
		[]string{"options.allow: is not a field"}},
	{"10,001 calls", manyCalls(10_001), []string{"calls: has 10001 calls; at most 10000"}},
	{"20 MB", `{"calls":[{"tool":"grep","input":{"pattern":"` + strings.Repeat("x", 20_000_000) +
		`"}}]}`, []string{"16 MiB", "split it"}},
	{"10,000 levels", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), []string{"deeper than 512 levels"}},
	{"not UTF-8", "{\"agent\":\"a\xff\",\"calls\":[{\"tool\":\"grep\"}]}", []string{"not valid UTF-8 at byte 11"}},
	{"a long name", `{"agent":"` + strings.Repeat("a", 129) +
		`","calls":[{"tool":"grep"}]}`, []string{"agent: is 129 bytes long; at most 128"}},
	{"unknown strategy", `{"calls":[{"tool":"grep"}],"options":{"partition":"nope"}}`,
		[]string{"options.partition", `"nope"`, "ordered_halt"}},
	{"unknown error policy", `{"calls":[{"tool":"grep"}],"options":{"on_error":"nope"}}`,
		[]string{"options.on_error", `"nope"`, "cancel_group"}},
	{"concurrency below 0", `{"calls":[{"tool":"grep"}],"options":{"max_concurrency":-1}}`,
		[]string{"options.max_concurrency", "1 to 1000"}},
	{"fractional concurrency", `{"calls":[{"tool":"grep"}],"options":{"max_concurrency":1.5}}`,
		[]string{"options.max_concurrency"}},
	{"time limit below 0", `{"calls":[{"tool":"grep"}],"options":{"timeout_ms":-1}}`,
		[]string{"options.timeout_ms", "positive"}},
	{"time limit past all numbers", `{"calls":[{"tool":"grep"}],"options":{"timeout_ms":1e400}}`,
		[]string{"options.timeout_ms"}},
}

// TestOneBadCallHarmsNoOther: what is wrong with one call of a file is its result.
func TestOneBadCallHarmsNoOther(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	good := `{"tool":"glob","input":{"pattern":"*"}}`
	p := newPlace(t, map[string]string{"in.json": `{"calls":[` + good + `,{"tool":"` + strings.Repeat("a", 129) +
		`"},{"tool":""},{"tool":"\u001b[2J"},` +
		`{"tool":"grep","input":{"pattern":"a","pattern":"b"}},{"tool":"grep","input":` + deep + `},` + good + `]}`})
	var got []toolyard.Code
	for _, r := range p.view("in.json").Results {
		got = append(got, r.Code)
	}
	want := []toolyard.Code{"", "unknown_tool", "unknown_tool", "unknown_tool", "schema_validation_failed",
		"schema_validation_failed", ""}
	if !slices.Equal(got, want) {
		t.Errorf("the codes are %q, want %q", got, want)
	}
	if text := p.ok(nil, "run", "in.json"); strings.Contains(text, "\x1b") ||
		strings.Contains(text, strings.Repeat("a", 129)) {
		t.Errorf("a bad name is shown as it is:\n%s", text)
	}
}

// controls are what makes a name unprintable, as JSON writes it.
var controls = []struct{ escaped, said string }{
	{`\u0000`, "U+0000"}, {`\u001b[2J`, "U+001B"}, {`\n`, "U+000A"}, {`\t`, "U+0009"}, {`\u007f`, "U+007F"},
	{`\u0085`, "U+0085"},
}

func TestRunRefusesBadFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			p := place{t, p.dir, p.tmp}
			p.write("in.json", c.content)
			stdout, stderr, status := p.run(nil, nil, "run", "in.json")
			refused(t, stdout, stderr, status, append(c.want, "in.json: ")...)
			stdout, stderr, status = p.run(strings.NewReader(c.content), nil, "explain", "-")
			refused(t, stdout, stderr, status, append(c.want, "standard input: ")...)
		})
	}
	for i, field := range []string{"id", "agent", "session", "workspace", "calls[0].id"} {
		for j, c := range controls {
			if j != 0 && j != i { // NUL in each, another in each, and so all of them in some
				continue
			}
			t.Run(field+" with "+c.said, func(t *testing.T) {
				p := place{t, p.dir, p.tmp}
				doc := fmt.Sprintf(`{%q:"x%s","calls":[{"tool":"grep"}]}`, field, c.escaped)
				if in, ok := strings.CutPrefix(field, "calls[0]."); ok {
					doc = fmt.Sprintf(`{"calls":[{"tool":"grep",%q:"x%s"}]}`, in, c.escaped)
				}
				p.write("in.json", doc)
				stdout, stderr, status := p.run(nil, nil, "run", "in.json")
				refused(t, stdout, stderr, status, "in.json: ", field+": ", c.said, "names are printable")
			})
		}
	}
}

// TestHalfSurrogates: names that differ must not become the same.
func TestHalfSurrogates(t *testing.T) {
	p := newPlace(t, map[string]string{"in.json": `{"agent":"\ud800","calls":[{"id":"\udbff","tool":"grep"}]}`})
	stdout, stderr, status := p.run(nil, nil, "run", "in.json")
	refused(t, stdout, stderr, status, "in.json: ")
}

// TestSubmitRefusesBadFiles hands the same files to a served system, which must be none the worse for it.
func TestSubmitRefusesBadFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "fine.json": fine})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+p.dir)
	submit := func(args ...string) (string, string, int) {
		return p.run(nil, nil, append([]string{"submit", "--nats", d.says["nats"]}, args...)...)
	}
	for _, c := range badFiles {
		p.write("in.json", c.content)
		stdout, stderr, status := submit("in.json")
		refused(t, stdout, stderr, status, append(c.want, "in.json: ")...)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--deny", "bad rule(", "fine.json"}, "--deny"},
		{[]string{"--ask", "", "fine.json"}, "--ask"},
		{[]string{"--allow", "bash", "fine.json"}, "--allow"},
		{[]string{"--agent", "a\x01b", "fine.json"}, "agent: "},
		{[]string{"--id", "a\xffb", "fine.json"}, "id: is not valid UTF-8"},
		{[]string{"--workspace", "a\nb", "fine.json"}, "workspace: "},
		{[]string{"--json", "--format", "openai", "fine.json"}, "--format and --json"},
	} {
		stdout, stderr, status := submit(c.args...)
		refused(t, stdout, stderr, status, c.want)
	}
	// What only the system can refuse: a rule that the command line did not see.
	p.write("in.json", `{"calls":[{"tool":"grep"}],"options":{"deny":["ok","bad rule("]}}`)
	_, stderr, status := submit("in.json")
	refused(t, "", stderr, status, "options.deny[1]", `"bad rule("`)
	stdout, stderr, status := submit("--json", "fine.json")
	if v := viewOf(t, stdout); status != 0 || len(v.Results) != 1 || v.Results[0].IsError {
		t.Errorf("afterwards a good batch ends with %d, %s, %+v", status, stderr, v.Results)
	}
}

// TestBadCallsAreResults: what is wrong with one call is that call's result, and the others run.
func TestBadCallsAreResults(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{
		"a.txt": "one\n",
		"openai.json": `[{"type":"function_call","call_id":"good","name":"read_file","arguments":"{\"file_path\":\"a.txt\"}"},
			{"type":"function_call","call_id":"broken","name":"read_file","arguments":"{\"file_path\": \"a.t"},
			{"type":"function_call","call_id":"also good","name":"glob","arguments":"{\"pattern\":\"*.txt\"}"}]`,
		"native.json": `{"calls":[{"id":"good","tool":"read_file","input":{"file_path":"a.txt"}},
			{"id":"broken","tool":"read_file","input":"{\"file_path\": \"a.t"},
			{"id":"number","tool":"read_file","input":7},
			{"id":"array","tool":"read_file","input":["a.txt"]},
			{"id":"unknown","tool":"summarize","input":{}},
			{"id":"wrong type","tool":"read_file","input":{"file_path":5}},
			{"id":"no field","tool":"read_file","input":{}},
			{"id":"null","tool":"read_file","input":null},
			{"id":"extra field","tool":"read_file","input":{"file_path":"a.txt","path":"a.txt"}},
			{"id":"also good","tool":"glob","input":{"pattern":"*.txt"}}]}`,
	})
	for file, want := range map[string]map[string]toolyard.Code{
		"openai.json": {"good": "", "broken": toolyard.SchemaValidationFailed, "also good": ""},
		"native.json": {
			"good": "", "broken": toolyard.SchemaValidationFailed, "number": toolyard.SchemaValidationFailed,
			"array":   toolyard.SchemaValidationFailed,
			"unknown": toolyard.UnknownTool, "wrong type": toolyard.SchemaValidationFailed,
			"no field": toolyard.SchemaValidationFailed,
			"null":     toolyard.SchemaValidationFailed, "extra field": toolyard.SchemaValidationFailed,
			"also good": "",
		},
	} {
		v := p.view(file)
		got := map[string]toolyard.Code{}
		for i, r := range v.Results {
			got[r.CallID] = r.Code
			if r.Index != i || r.IsError != (r.Code != "") || r.IsError != (r.Error != "") {
				t.Errorf("%s: result %d is %+v", file, i, r)
			}
			if r.IsError && r.Attempts != 0 {
				t.Errorf("%s: %s was executed", file, r.CallID)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: codes differ (-want +got):\n%s", file, d)
		}
	}
}

// TestOddNames: names may hold all that can be printed, also what means something in a subject, a path or a glob.
func TestOddNames(t *testing.T) {
	t.Parallel()
	names := []string{
		"with spaces in it", "dots.in.it", "*", ">", "../..", "=2e", "ünï¢ödé 名前 🙂\u202e", `"quoted"\`,
		strings.Repeat(">", 128),
	}
	p := newPlace(t, map[string]string{"a.txt": "one\n"})
	events := filepath.Join(t.TempDir(), "events.jsonl") // not in TMPDIR: that must be left empty
	for i, name := range names {
		b := toolyard.Batch{
			ID: toolyard.BatchID(name), Agent: toolyard.Agent(names[(i+1)%len(names)]),
			Session:   toolyard.Session(names[(i+2)%len(names)]),
			Workspace: toolyard.Workspace(names[(i+3)%len(names)]),
			Calls: []toolyard.Call{
				{ID: name, Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
				{ID: "2", Tool: "write_file", Input: input(map[string]any{"file_path": "out.txt", "content": name})},
				{ID: "3", Tool: name, Input: input(map[string]any{})},
			},
		}
		v := p.view("--events", events, "--permission-mode", "accept_edits", batchFile(t, b))
		if v.ID != b.ID || v.Agent != b.Agent || v.Session != b.Session || v.Workspace != b.Workspace {
			t.Errorf("%q: the batch object names %q, %q, %q, %q", name, v.ID, v.Agent, v.Session, v.Workspace)
		}
		if len(v.Results) != 3 || v.Results[0].CallID != name || v.Results[0].IsError || v.Results[1].IsError ||
			v.Results[2].Code != toolyard.UnknownTool || v.Results[2].Tool != name {
			t.Errorf("%q: results %+v", name, v.Results)
		}
		if got, err := os.ReadFile(filepath.Join(p.dir, "out.txt")); err != nil || string(got) != name {
			t.Errorf("%q: written was %q, %v", name, got, err)
		}
		s := foldEvents(t, events)
		if s.Key != b.Key() || s.Submission.Session != b.Session || s.Submission.Workspace != b.Workspace {
			t.Errorf("%q: the events are of %+v, session %q, workspace %q", name, s.Key, s.Submission.Session,
				s.Submission.Workspace)
		}
		if d := cmp.Diff(v, s.View(), sameData); d != "" {
			t.Errorf("%q: the fold of the events differs from the batch object (-object +fold):\n%s", name, d)
		}
	}
	// From flags too: what looks like a flag is not one in the place of a value.
	p.write("fine.json", fine)
	v := p.view("--agent", "--json", "--session", "a b", "--id", "*.>", "fine.json")
	if v.Agent != "--json" || v.Session != "a b" || v.ID != "*.>" || v.Results[0].IsError {
		t.Errorf("names from flags: %+v", v)
	}
}

// TestFilesOfAllKinds: FILE may be what a shell makes of <(...), and must be something that can be read.
func TestFilesOfAllKinds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "fine.json": fine})
	t.Run("FIFO", func(t *testing.T) {
		// A FIFO without a writer is waited for, as cat does: a shell may be slow to open it.
		p := place{t, p.dir, p.tmp}
		fifo := filepath.Join(p.dir, "fifo")
		must.OK(t, syscall.Mkfifo(fifo, 0o600))
		for content, want := range map[string]int{fine: 0, "": 2, "{": 2} {
			wrote := make(chan error, 1)
			go func() { wrote <- os.WriteFile(fifo, []byte(content), 0o600) }() // it opens when the command does
			_, stderr, status := p.run(nil, nil, "run", "fifo")
			if err := <-wrote; err != nil || status != want {
				t.Errorf("%q through a FIFO: write %v, exit status %d, %s", content, err, status, stderr)
			}
		}
	})
	t.Run("standard input", func(t *testing.T) {
		p := place{t, p.dir, p.tmp}
		if stdout, stderr, status := p.run(strings.NewReader(fine), nil, "run", "-"); status != 0 ||
			!strings.Contains(stdout, "one") {
			t.Errorf("exit status %d, %s%s", status, stdout, stderr)
		}
	})
	sparse := filepath.Join(p.dir, "sparse.json")
	must.OK(t, errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 5<<30),
		os.Mkdir(filepath.Join(p.dir, "dir"), 0o755),
		os.Symlink("loop", filepath.Join(p.dir, "loop")),
		os.Symlink("nowhere", filepath.Join(p.dir, "dangling"))))
	for file, want := range map[string]string{
		"dir": "is a directory; name a file", ".": "is a directory", "missing.json": "no such file",
		"fine.json/x": "not a directory", "": "",
		"sparse.json": "16 MiB", "loop": "too many levels of symbolic links", "dangling": "no such file",
		"/dev/null": "is empty", "/dev/zero": "16 MiB",
		strings.Repeat("a", 300): "name too long", "a\x1bb": "no such file",
	} {
		for _, command := range []string{"run", "explain"} {
			stdout, stderr, status := p.run(nil, nil, command, file)
			refused(t, stdout, stderr, status, want)
		}
	}
	if os.Geteuid() != 0 { // root reads everything
		p.write("secret.json", fine)
		must.OK(t, os.Chmod(filepath.Join(p.dir, "secret.json"), 0))
		stdout, stderr, status := p.run(nil, nil, "run", "secret.json")
		refused(t, stdout, stderr, status, "secret.json: permission denied")
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{
		"fine.json": fine, "syntax.yaml": "max-concurrency: [\n", "unknown.yaml": "nope: 1\n",
		"under.yaml": "max_concurrency: 1\n", "value.yaml": "max-concurrency: many\n",
		"two.yaml": "max-concurrency: [1, 2]\n", "nested.yaml": "deny: {a: b}\n", "list.yaml": "- a\n",
		"twice.yaml": "json: true\njson: false\n", "alias.yaml": "timeout: *x\n",
		"binary.yaml": "\x00\x01", "bomb.yaml": strings.Repeat("#", 1<<20+1), "rule.yaml": "deny: [\"bad rule(\"]\n",
	})
	for _, c := range []struct {
		args, env []string
		want      []string
	}{
		{args: []string{"run"}, want: []string{"takes one FILE", "not 0"}},
		{args: []string{"run", "fine.json", "fine.json"}, want: []string{"takes one FILE", "not 2"}},
		{args: []string{"submit"}, want: []string{"takes one FILE"}},
		{args: []string{"explain", "a", "b", "c"}, want: []string{"takes one FILE", "not 3"}},
		{args: []string{"tools", "x"}, want: []string{`"x"`}},
		{args: []string{"serve", "x"}, want: []string{`"x"`}},
		{args: []string{"nope"}, want: []string{`unknown command "nope"`}},
		{args: []string{"run", "--nope", "fine.json"}, want: []string{"--nope", "dispatcher run --help"}},
		{args: []string{"run", "-x", "fine.json"}, want: []string{"-x", "--help"}},
		{args: []string{"run", "fine.json", "--partition"}, want: []string{"--partition", "needs an argument"}},
		{args: []string{"run", "--partition", "nope", "fine.json"},
			want: []string{"partition", `"nope"`, "consecutive", "ordered_halt"}},
		{args: []string{"run", "--on-error", "nope", "fine.json"},
			want: []string{"--on-error", `"nope"`, "cancel_group", "continue"}},
		{args: []string{"run", "--max-concurrency", "-1", "fine.json"},
			want: []string{"--max-concurrency", "1 to 1000"}},
		{args: []string{"run", "--max-concurrency", "1001", "fine.json"},
			want: []string{"--max-concurrency", "1 to 1000"}},
		{args: []string{"run", "--max-concurrency", "many", "fine.json"},
			want: []string{"--max-concurrency", `"many"`}},
		{args: []string{"run", "--max-concurrency", "99999999999999999999", "fine.json"},
			want: []string{"--max-concurrency"}},
		{args: []string{"run", "--timeout", "0.5us", "fine.json"}, want: []string{"--timeout", "use at least 1ms"}},
		{args: []string{"run", "--timeout", "-1s", "fine.json"}, want: []string{"--timeout", "use at least 1ms"}},
		{args: []string{"run", "--timeout", "10", "fine.json"}, want: []string{"--timeout", "a number with its unit"}},
		{args: []string{"run", "--call-timeout", "0.5us", "fine.json"},
			want: []string{"--call-timeout", "use at least 1ms"}},
		{args: []string{"run", "--permission-mode", "x", "fine.json"},
			want: []string{"--permission-mode", `"x"`, "accept_edits"}},
		{args: []string{"run", "--allow", "bad rule(", "fine.json"},
			want: []string{"--allow", `"bad rule("`, "tool(specifier)"}},
		{args: []string{"run", "--deny", "", "fine.json"}, want: []string{"--deny", "names no tool"}},
		{args: []string{"run", "--ask", "bash()", "fine.json"}, want: []string{"--ask", `"bash()"`}},
		{args: []string{"run", "--deny", "read_file(domain:x", "fine.json"}, want: []string{"--deny"}},
		{args: []string{"run", "--format", "x", "fine.json"}, want: []string{"--format", `"x"`, "openai-chat"}},
		{args: []string{"run", "--format", "openai", "--json", "fine.json"}, want: []string{"--format and --json"}},
		{args: []string{"run", "--input-format", "x", "fine.json"}, want: []string{"--input-format", `"x"`, "gemini"}},
		{args: []string{"run", "--input-format", "openai", "fine.json"}, want: []string{"fine.json: "}},
		{args: []string{"run", "--workspace", "missing", "fine.json"},
			want: []string{"--workspace", `"missing"`, "no such file"}},
		{args: []string{"run", "--workspace", "fine.json", "fine.json"},
			want: []string{"--workspace", "not a directory"}},
		{args: []string{"run", "--log-level", "loud", "fine.json"},
			want: []string{"--log-level", `"loud"`, "debug, info, warn or error"}},
		{args: []string{"run", "--log-format", "xml", "fine.json"},
			want: []string{"--log-format", `"xml"`, "text or json"}},
		{args: []string{"run", "--web-allow-private", "not an address", "fine.json"},
			want: []string{"--web-allow-private", "127.0.0.1"}},
		{args: []string{"run", "--read-slots", "-1", "fine.json"}, want: []string{"--read-slots", "1 to 1024"}},
		{args: []string{"run", "--write-slots", "5000", "fine.json"}, want: []string{"--write-slots", "1 to 1024"}},
		{args: []string{"run", "--agent", "a\x01b", "fine.json"}, want: []string{"agent: ", "U+0001"}},
		{args: []string{"run", "--session", "a\xffb", "fine.json"}, want: []string{"session: ", "UTF-8"}},
		{args: []string{"run", "--id", strings.Repeat("i", 129), "fine.json"}, want: []string{"id: ", "129 bytes"}},

		{args: []string{"serve", "--max-batches", "0"}, want: []string{"--max-batches"}},
		{args: []string{"serve", "--max-concurrency", "0"}, want: []string{"--max-concurrency", "1 to 1000"}},
		{args: []string{"serve", "--timeout", "0s"}, want: []string{"--timeout", "positive"}},
		{args: []string{"serve", "--replicas", "2"}, want: []string{"replicas", "1, 3 or 5"}},
		{args: []string{"serve", "--batch-lifetime", "1s"}, want: []string{"batch lifetime", "at least 1m"}},
		{args: []string{"serve", "--archive-after", "5s"}, want: []string{"--archive-after", "at least 1m"}},
		{args: []string{"init", "--archive-after", "5s"}, want: []string{"--archive-after", "at least 1m"}},
		{args: []string{"serve", "--with-worker", "--workspace", "nodir"}, want: []string{"--workspace", "NAME=DIR"}},
		{args: []string{"serve", "--with-worker", "--workspace", "a\x01=."}, want: []string{"--workspace", "U+0001"}},
		{args: []string{"serve", "--with-worker", "--workspace", "a=missing"},
			want: []string{"--workspace", "no such file"}},
		{args: []string{"serve", "--with-worker", "--workspace", "a=/"},
			want: []string{"--workspace", `"a"`, "whole machine"}},
		{args: []string{"serve", "--with-worker", "--workspace", "mono=.", "--workspace", "web=."},
			want: []string{"--workspace", `"mono"`, `"web"`, "overlap"}},
		{args: []string{"serve", "--with-worker", "--protect", "/etc"}, want: []string{"--protect", `"/etc"`}},
		{args: []string{"run", "--protect", "*.yml", "fine.json"}, want: []string{"--protect", "plain path"}},
		{args: []string{"serve", "--with-worker", "--classes", "FAST"},
			want: []string{"--classes", `"FAST"`, "WRITE_EXCLUSIVE"}},

		{env: []string{"TOOLYARD_MAX_CONCURRENCY=many"}, want: []string{"TOOLYARD_MAX_CONCURRENCY", `"many"`}},
		{env: []string{"TOOLYARD_MAX_CONCURRENCY=-4"}, want: []string{"--max-concurrency", "1 to 1000"}},
		{env: []string{"TOOLYARD_MAX_CONCURRENCY="}, want: []string{"TOOLYARD_MAX_CONCURRENCY"}},
		{env: []string{"TOOLYARD_JSON=perhaps"}, want: []string{"TOOLYARD_JSON", `"perhaps"`}},
		{env: []string{"TOOLYARD_DENY=bash\nbad rule("}, want: []string{"--deny", `"bad rule("`}},
		{env: []string{"TOOLYARD_AGENT=a\nb"}, want: []string{"agent: ", "U+000A"}},
		{env: []string{"TOOLYARD_CONFIG=missing.yaml"}, want: []string{"missing.yaml", "no such file"}},
		{args: []string{"run", "--config", "missing.yaml", "fine.json"},
			want: []string{"--config missing.yaml", "no such file"}},
		{args: []string{"run", "--config", ".", "fine.json"}, want: []string{"--config .", "not a regular file"}},
		{args: []string{"run", "--config", "bomb.yaml", "fine.json"},
			want: []string{"--config bomb.yaml", "1048576 bytes"}},
		{args: []string{"run", "--config", "syntax.yaml", "fine.json"}, want: []string{"syntax.yaml", "line 2"}},
		{args: []string{"run", "--config", "binary.yaml", "fine.json"}, want: []string{"binary.yaml"}},
		{args: []string{"run", "--config", "unknown.yaml", "fine.json"},
			want: []string{"unknown.yaml", `"nope"`, "--help"}},
		{args: []string{"run", "--config", "under.yaml", "fine.json"},
			want: []string{"under.yaml", `"max_concurrency"`}},
		{args: []string{"run", "--config", "value.yaml", "fine.json"},
			want: []string{"value.yaml", `"max-concurrency"`, `"many"`}},
		{args: []string{"run", "--config", "two.yaml", "fine.json"},
			want: []string{"two.yaml", `"max-concurrency"`, "one value, not 2"}},
		{args: []string{"run", "--config", "nested.yaml", "fine.json"},
			want: []string{"nested.yaml", "line 1", `"deny"`}},
		{args: []string{"run", "--config", "list.yaml", "fine.json"}, want: []string{"list.yaml", "line 1"}},
		{args: []string{"run", "--config", "twice.yaml", "fine.json"},
			want: []string{"twice.yaml", `"json"`, "line 2"}},
		{args: []string{"run", "--workspace", "", "fine.json"}, want: []string{"--workspace", "no directory"}},
		{args: []string{"run", "--config", "alias.yaml", "fine.json"}, want: []string{"alias.yaml", "line 1"}},
		{args: []string{"run", "--config", "rule.yaml", "fine.json"}, want: []string{"--deny", `"bad rule("`}},
	} {
		t.Run(strings.Join(append(slices.Clone(c.env), c.args...), " "), func(t *testing.T) {
			p := place{t, p.dir, p.tmp}
			if c.args == nil {
				c.args = []string{"run", "fine.json"}
			}
			if c.args[0] == "serve" { // should it start after all
				c.args = append(c.args, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
					t.TempDir())
			}
			stdout, stderr, status := p.run(nil, c.env, c.args...)
			refused(t, stdout, stderr, status, c.want...)
		})
	}
}

// TestPaths: what a path may not or cannot do is a result, and none tells anything of what lies outside.
func TestPaths(t *testing.T) {
	t.Parallel()
	const secret = "kept-outside-the-workspace"
	outside := workspace(t, map[string]string{"secret.txt": secret + " inside the file\n", "sub/" + secret +
		".txt": "x"})
	p := newPlace(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n", "binary": "a\x00b"})
	in := func(name string) string { return filepath.Join(p.dir, name) }
	must.OK(t, errors.Join(
		os.Symlink(filepath.Join(outside, "secret.txt"), in("link")), os.Symlink(outside, in("dirlink")),
		os.Symlink("dirlink", in("chain")), os.Symlink("loop", in("loop")),
		os.Symlink(filepath.Join(outside, "not-there"), in("dangling")), syscall.Mkfifo(in("fifo"), 0o600),
		os.WriteFile(in("sparse"), nil, 0o600), os.Truncate(in("sparse"), 5<<30),
	))
	up, err := filepath.Rel(p.dir, outside)
	must.OK(t, err)
	const sandbox, invalid = toolyard.SandboxViolation, toolyard.InvalidArguments
	type fields map[string]any
	var b toolyard.Batch
	var want []toolyard.Code
	add := func(code toolyard.Code, tool string, in fields) {
		b.Calls = append(b.Calls, toolyard.Call{Tool: tool, Input: input(in)})
		want = append(want, code)
	}
	for _, path := range []string{
		up + "/secret.txt", "../../../../../../../../etc/passwd", outside +
			"/secret.txt", "/etc/passwd", "/proc/self/environ", "link", "dirlink/secret.txt",
		"chain/secret.txt", "dir/../../x", "dirlink/../a.txt", "dirlink/no-such", "dangling", up + "/not-there",
	} {
		add(sandbox, "read_file", fields{"file_path": path})
		add(sandbox, "grep", fields{"pattern": ".", "path": path})
		add(sandbox, "write_file", fields{"file_path": path, "content": "x"})
		add(sandbox, "edit_file", fields{"file_path": path, "old_string": "kept", "new_string": "x"})
	}
	for _, path := range []string{"dirlink", "chain", outside, up, "/", ".."} {
		add(sandbox, "glob", fields{"pattern": "*", "path": path})
		add(sandbox, "glob", fields{"pattern": path + "/*"})
		add(sandbox, "grep", fields{"pattern": ".", "path": path})
		add(sandbox, "read_file", fields{"file_path": path})
	}
	for _, path := range []string{"dir", "fifo", "binary", "sparse", "missing", "missing/x", "a.txt/x", "loop", "",
		"a\x00b", strings.Repeat("a/", 3000), strings.Repeat("n", 300)} {
		add(invalid, "read_file", fields{"file_path": path})
	}
	for _, path := range []string{"dir", "fifo", "a.txt/x", "", "a\x00b", strings.Repeat("n", 300)} {
		add(invalid, "write_file", fields{"file_path": path, "content": "x"})
	}
	for _, path := range []string{"dir", "fifo", "binary", "sparse", "missing"} {
		add(invalid, "edit_file", fields{"file_path": path, "old_string": "b", "new_string": "c"})
	}
	add(invalid, "grep", fields{"pattern": ".", "path": "fifo"})
	add(invalid, "grep", fields{"pattern": ".", "path": "missing"})
	add(invalid, "grep", fields{"pattern": "("})
	add(invalid, "glob", fields{"pattern": "["})
	// does not follow links out, nor stop at what it can't read
	add("", "grep", fields{"pattern": "inside the file|one"})
	add("", "glob", fields{"pattern": "**"})
	add("", "grep", fields{"pattern": ".", "path": "sparse"})

	v := p.view("--permission-mode", "bypass", batchFile(t, b))
	if len(v.Results) != len(want) {
		t.Fatalf("%d results of %d", len(v.Results), len(want))
	}
	for i, r := range v.Results {
		call := fmt.Sprintf("%s %.200s", b.Calls[i].Tool, b.Calls[i].Input)
		if r.Code != want[i] {
			t.Errorf("%s ended as %q, want %q: %s%s", call, r.Code, want[i], r.Error, r.Output)
		}
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), secret) ||
			strings.Contains(string(text), "root:") {
			t.Errorf("%s shows what lies outside (%v): %s", call, err, text)
		}
		if r.IsError && r.Attempts != 0 {
			t.Errorf("%s was executed", call)
		}
	}
	// Whether something is there outside must not show either.
	for _, pair := range [][2]string{{outside + "/secret.txt", outside + "/not-there"},
		{"dirlink/secret.txt", "dirlink/no-secret"}} {
		var said [2]string
		for i, path := range pair {
			r := p.view(batchFile(t, toolyard.Batch{Calls: []toolyard.Call{{Tool: "read_file",
				Input: input(fields{"file_path": path})}}})).Results[0]
			said[i] = strings.ReplaceAll(fmt.Sprint(r.Code, r.Error, r.Detail), path, "PATH")
		}
		if said[0] != said[1] {
			t.Errorf("what is there outside is told apart from what is not:\n%s\n%s", said[0], said[1])
		}
	}
	if got, err := os.ReadFile(filepath.Join(outside, "secret.txt")); err != nil || string(got) != secret+
		" inside the file\n" {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 2 {
		t.Errorf("outside there are now %v, %v", left, err)
	}
}
