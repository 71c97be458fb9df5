package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestLintFindsTheBadExamples: those of the documents that the project was made from.
func TestLintFindsTheBadExamples(t *testing.T) {
	var fields []string
	for i := range 12 {
		fields = append(fields, fmt.Sprintf(`"f%d":{"type":"string","description":"x"}`, i))
	}
	good := tool.Declaration{
		Name: "extract_csv_rows", Description: "Extracts rows of a CSV file by their numbers.",
		Class: tool.ClassRule{Static: toolyard.ReadOnly}, MaxResultSizeChars: 100_000,
		InputSchema: json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,
			"properties":{"path":{"type":"string","description":"x","examples":["a.csv"]}}}`),
	}
	for name, c := range map[string]struct {
		change func(*tool.Declaration)
		want   []string // a part of each remark
	}{
		"a good one": {func(*tool.Declaration) {}, nil},
		"twelve optional fields beside always_load": {func(d *tool.Declaration) {
			d.AlwaysLoad = true
			d.InputSchema = json.RawMessage(`{"type":"object","examples":[{}],"properties":{` +
				strings.Join(fields, ",") + `}}`)
		},
			[]string{"12 fields are optional, which invites a model to fill in what should be left out, and " +
				"always_load"}},
		"a vague name": {func(d *tool.Declaration) { d.Name = "process_data" },
			[]string{`the name "process_data" says nothing`}},
		"a vague name of another": {func(d *tool.Declaration) { d.Name = "mcp__tracker__handleRequest" },
			[]string{"says nothing"}},
		"a name with a thing": {func(d *tool.Declaration) { d.Name = "get_invoice" }, nil},
		"no size": {func(d *tool.Declaration) { d.MaxResultSizeChars = 0 },
			[]string{"max_result_size_chars is not set"}},
		"no examples": {func(d *tool.Declaration) {
			d.InputSchema = json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"x"}}}`)
		}, []string{"the schema has no examples"}},
		"a choice shows itself": {func(d *tool.Declaration) {
			d.InputSchema = json.RawMessage(`{"type":"object","properties":{"path":{"enum":["a"],"description":"x"}}}`)
		}, nil},
	} {
		d := good
		c.change(&d)
		if got := Lint(d); !slices.EqualFunc(c.want, got, func(w, g string) bool { return strings.Contains(g, w) }) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLintSurface: what is wrong with tools side by side.
func TestLintSurface(t *testing.T) {
	always := func(e *Entry) { e.AlwaysLoad = true }
	later := func(e *Entry) { e.ShouldDefer = true }
	if s := assemble(t, register(t, entry(Toolset, "late", later)), nil); !slices.Equal(LintSurface(&s),
		[]string{"late is deferred, and no tool_search is offered that would load it"}) {
		t.Errorf("remarks: %q", LintSurface(&s))
	}
	entries := []Entry{entry(Builtin, "a", aliases("b", "x")), entry(Builtin, "b"), entry(Toolset, "c", aliases("x")),
		entry(MCP, "d", aliases("y"))}
	s := assemble(t, register(t, entries...), nil)
	want := []string{`a: its alias "b" means the tool "b"`, `c: its alias "x" means the tool "a"`,
		`d: its alias "y" does not count`}
	if got := LintSurface(&s); !slices.EqualFunc(want, got, func(w, g string) bool { return strings.HasPrefix(g, w) }) {
		t.Errorf("remarks: %q, want %q", got, want)
	}
	for i := range 6 {
		entries = append(entries, entry(Toolset, fmt.Sprint("many", i), always))
	}
	s = assemble(t, register(t, entries...), nil)
	if got := LintSurface(&s); len(got) != 4 || !strings.HasPrefix(got[0], "6 tools have always_load") {
		t.Errorf("remarks: %q", got)
	}
}
