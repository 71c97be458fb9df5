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
