//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
)

// tree lists all files of a directory with their sizes.
func tree(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		info, infoErr := d.Info()
		if err := errors.Join(err, infoErr); err != nil {
			return err
		}
		files[name] = 0
		if !d.IsDir() {
			files[name] = info.Size()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestExplain(t *testing.T) {
	t.Parallel()
	files := exampleFiles(t)
	files["in.json"], files["a.txt"] = permissionCalls, "one\n"
	p := newPlace(t, files)
	before := tree(t, p.dir)
	type explained struct {
		Surface, Partition string
		Tools, Blocked     []string
		Groups             [][]int
		Calls              []struct {
			Index      int
			CallID     string `json:"call_id"`
			Tool       string
			Class      string `json:"concurrency_class"`
			Why        string
			Group      int
			Code       toolyard.Code
			Error      string
			Permission string
			DecidedBy  string `json:"decided_by"`
			Reason     string
			Claim      bool
			Ticket     bool
		}
	}
	explain := func(args ...string) (e explained) {
		t.Helper()
		decode(t, []byte(p.ok(nil, append([]string{"explain", "--json"}, args...)...)), &e)
		return e
	}
	for example, codes := range exampleCodes {
		e := explain("examples/" + example)
		text := p.ok(nil, "explain", "examples/"+example)
		if len(e.Calls) != len(codes) || len(e.Tools) == 0 || len(e.Surface) != 64 || len(e.Groups) == 0 {
			t.Errorf("%s: %+v", example, e)
		}
		var placed []int
		for _, g := range e.Groups {
			placed = append(placed, g...)
		}
		for i, c := range e.Calls {
			if c.Index != i || placed[i] != i || c.Class == "" || c.Why == "" ||
				(c.Code == "") != (c.Permission != "") || (c.Code == "") != (c.DecidedBy != "") {
				t.Errorf("%s, call %d: %+v", example, i, c)
			}
			if !strings.Contains(text, fmt.Sprintf("[%d] %s  %s (%s)", i, c.Tool, c.Class, c.Why)) ||
				!strings.Contains(text, c.Permission+" ("+c.DecidedBy+")") && c.Code == "" {
				t.Errorf("%s, call %d is not shown to a person as it is: %+v\n%s", example, i, c, text)
			}
			// What is answered at plan is what run answers.
			if atPlan := codes[i] == toolyard.UnknownTool ||
				codes[i] == toolyard.SchemaValidationFailed; atPlan != (c.Code != "") || atPlan && c.Code != codes[i] {
				t.Errorf("%s, call %d: explain says %q, run %q", example, i, c.Code, codes[i])
			}
		}
	}
	for mode, want := range map[string][]string{
		"default":      {"allow", "allow", "ask", "ask", "ask", "allow"},
		"accept_edits": {"allow", "allow", "allow", "ask", "ask", "allow"},
		"plan":         {"allow", "allow", "deny", "deny", "ask", "allow"},
		"dont_ask":     {"allow", "allow", "deny", "deny", "deny", "allow"},
		"bypass":       {"allow", "allow", "allow", "ask", "allow", "allow"}, // .git is protected
	} {
		var got []string
		for _, c := range explain("--permission-mode", mode, "in.json").Calls {
			got = append(got, c.Permission)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("mode %s (-want +got):\n%s", mode, d)
		}
	}
	e := explain("--deny", "read_file", "--deny", "write_file(docs/**)", "in.json")
	if e.Calls[0].Code != toolyard.BlockedTool || !slices.Contains(e.Blocked, "read_file") ||
		slices.Contains(e.Tools, "read_file") || e.Calls[2].Permission != "deny" ||
		!strings.Contains(e.Calls[2].DecidedBy, "write_file(docs/**)") || e.Calls[3].Permission != "ask" {
		t.Errorf("with rules: %+v", e)
	}
	if d := cmp.Diff(before, tree(t, p.dir)); d != "" {
		t.Errorf("explain changed the workspace (-before +after):\n%s", d)
	}
}

// TestExplainSaysWhatHolds: what a repair would mend, and with it what rules say of the mended input; whether the
// workspace is kept or copied; which limits and scanners hold for an output. What explain says of a repair is what run
// does.
func TestExplainSaysWhatHolds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"note.txt": "one\n", "in.json": `{"calls":[
		{"tool":"read_file","input":{"file_path":"note.txt"}},
		{"tool":"write_file","input":{"file_path":"b.txt","content":"two"}},
		{"tool":"web_fetch","input":{"url":"http://127.0.0.1:9/"}}]}`})
	type call struct {
		Code              toolyard.Code
		Permission        string
		DecidedBy         string `json:"decided_by"`
		Mended, Mendable  string
		Scanners          []string
		Chars             int `json:"max_result_chars"`
		Tokens            int `json:"max_result_tokens"`
		Snapshot, Overlay bool
		Origin            string
	}
	explain := func(args ...string) (calls []call, text string) {
		t.Helper()
		var e struct{ Calls []call }
		decode(t, []byte(p.ok(nil, append([]string{"explain", "--json"}, args...)...)), &e)
		return e.Calls, strings.Join(strings.Fields(p.ok(nil, append([]string{"explain"}, args...)...)), " ")
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("explain says nothing of %q: %s", w, text)
			}
		}
	}
	broken := example(t, "repair/openai-response.json")
	without, text := explain(broken)
	has(text, "with --repair it would run: ")
	with, text := explain("--repair", "--deny", "read_file(note.txt)", broken)
	has(text, "input: mended: ")
	ran := p.view("--repair", broken).Results
	for i, r := range ran {
		mends := r.Code == ""
		if a := without[i]; a.Code != toolyard.SchemaValidationFailed || mends != (a.Mendable != "") || a.Mended != "" {
			t.Errorf("without the option, call %d: %+v", i, a)
		}
		if a := with[i]; mends != (a.Code == "") || mends != (a.Mended != "") || a.Mendable != "" {
			t.Errorf("with the option, call %d: %+v", i, a)
		}
	}
	if a := with[0]; a.Permission != "deny" || !strings.Contains(a.DecidedBy, "read_file(note.txt)") {
		t.Errorf("a rule about the mended input: %+v", a)
	}

	calls, text := explain("--snapshot", "--max-result-tokens", "1000", "--scan-outputs", "invisible=mark", "in.json")
	has(text, "holds workspace default · snapshot before it", "scanned: invisible=mark",
		"and 1000 tokens go to the model")
	for i, want := range []call{{Chars: -1}, {Chars: -1, Snapshot: true},
		{Chars: 100_000, Tokens: 1000, Scanners: []string{"invisible=mark"}}} {
		c := calls[i]
		if i == 2 {
			want.Chars = c.Chars // the tool's own
		}
		if c.Chars != want.Chars || c.Tokens != want.Tokens || c.Snapshot != want.Snapshot || c.Overlay ||
			!slices.Equal(c.Scanners, want.Scanners) || i == 2 && c.Chars <= 0 {
			t.Errorf("call %d: %+v, want %+v", i, c, want)
		}
	}
	calls, text = explain("--overlay", "-v", "in.json")
	has(text, "holds workspace default · on an overlay", "all of it goes to the model")
	if !calls[0].Overlay || !calls[1].Overlay || calls[2].Overlay || calls[1].Snapshot || calls[2].Tokens != 0 ||
		len(calls[2].Scanners) != 0 {
		t.Errorf("on an overlay: %+v", calls)
	}
	for _, args := range [][]string{{"--max-result-tokens", "199"}, {"--scan-outputs", "nothing=mark"}} {
		stdout, stderr, status := p.run(nil, nil, append(append([]string{"explain"}, args...), "in.json")...)
		refused(t, stdout, stderr, status, args[0])
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	text := p.ok(nil, "tools")
	var surface struct{ Tools []struct{ Name string } }
	decode(t, []byte(p.ok(nil, "tools", "--json")), &surface)
	for _, tool := range []string{"bash", "edit_file", "glob", "grep", "read_file", "read_result", "tool_search",
		"web_fetch", "write_file"} {
		if !strings.Contains("\n"+text, "\n"+tool+" ") {
			t.Errorf("%s is not listed:\n%s", tool, text)
		}
		if !slices.ContainsFunc(surface.Tools, func(s struct{ Name string }) bool { return s.Name == tool }) {
			t.Errorf("%s is not in the JSON", tool)
		}
	}
	if !slices.IsSortedFunc(surface.Tools, func(a, b struct{ Name string }) int {
		return strings.Compare(a.Name,
			b.Name)
	}) {
		t.Errorf("the tools are not sorted: %v", surface.Tools)
	}
	if text := p.ok(nil, "tools", "--deny", "bash", "--deny", "read_file(a)"); strings.Contains(text, "bash ") ||
		!strings.Contains(text, "read_file ") {
		t.Errorf("without bash:\n%s", text)
	}
}

// TestHelp: every command explains itself, and how its flags are set otherwise.
func TestHelp(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	for _, c := range [][]string{nil, {"run"}, {"serve"}, {"submit"}, {"explain"}, {"tools"}} {
		out := p.ok(nil, append(c, "--help")...)
		if !strings.Contains(out, "Usage:\n  dispatcher") || !strings.Contains(out, "TOOLYARD_") ||
			!strings.Contains(out, "YAML") {
			t.Errorf("%q --help does not tell of all settings:\n%s", c, out)
		}
		if short := p.ok(nil, append(c, "-h")...); short != out {
			t.Errorf("%q -h says other things than --help", c)
		}
	}
	for _, c := range [][]string{{"--help"}, {"serve", "--help"}, {"check", "--help"}} {
		stdout, stderr, status := run(t, nil, "worker", c...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, "Usage:\n  worker") ||
			!strings.Contains(stdout, "TOOLYARD_") {
			t.Errorf("worker %q: exit status %d, %s%s", c, status, stdout, stderr)
		}
	}
	if out := p.ok(nil); !strings.Contains(out, "Usage:") { // without a command it shows the help
		t.Errorf("without arguments:\n%s", out)
	}
}
