package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// tools copies the MCP servers of the examples, and returns the file that declares them.
func tools(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join("..", "..", "examples", "mcp")
	for _, name := range []string{"notes.py", "tools.yaml"} {
		data := must.Read(t, filepath.Join(from, name))
		data = []byte(strings.ReplaceAll(string(data), "notes.ts", "notes.mjs"))
		must.OK(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	javascript(t, dir, ".mjs", filepath.Join(from, "notes.ts"))
	return filepath.Join(dir, "tools.yaml")
}

// TestToolsInOtherLanguages: a tool of an MCP server in Python or TypeScript has the class that it declares, tells its
// progress, ends when it is canceled, and takes effect once though its worker is lost and the call runs again.
func TestToolsInOtherLanguages(t *testing.T) {
	t.Parallel()
	file := tools(t)
	checked := run(t, nil, filepath.Join(bin, "worker"), "check", "--tools", file)
	for _, line := range []string{"server py: 2 tools", "  mcp__py__list_notes: READ_ONLY",
		"  mcp__py__add_note: WRITE_EXCLUSIVE", "server ts: 2 tools", "  mcp__ts__list_notes: READ_ONLY",
		"  mcp__ts__add_note: WRITE_EXCLUSIVE"} {
		if !strings.Contains(checked, line+"\n") {
			t.Errorf("worker check does not say %q:\n%s", line, checked)
		}
	}
	s := serve(t)
	serveTools := func() (kill func()) {
		_, kill = start(t, "worker", "serve", "--nats", s.nats, "--data", s.data, "--tools", file, "--workspace",
			"default="+t.TempDir(), "--permission-mode", "bypass")
		return kill
	}
	kill := serveTools()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.ConnectHTTP(ctx, s.http, client.HTTPOptions{})
	must.OK(t, err)
	for _, server := range []string{"py", "ts"} {
		l := language{t, c, "mcp__" + server + "__"}
		l.await(ctx)

		b := l.begin(ctx, "add_note", `{"text": "first", "steps": 3}`)
		told := l.progress(ctx, b)
		if r := l.end(ctx, b); r.Output != "Noted: first" || r.Class != toolyard.WriteExclusive || !told {
			t.Errorf("%s: %+v, progress told: %t", server, r, told)
		}
		b = l.begin(ctx, "add_note", `{"text": "second", "steps": 1000}`)
		l.progress(ctx, b)
		must.OK(t, b.Cancel(ctx, "not needed"))
		if r := l.end(ctx, b); r.Code != toolyard.Canceled {
			t.Errorf("%s: a call that was canceled ends so: %+v", server, r)
		}

		b = l.begin(ctx, "add_note", `{"text": "third", "steps": 1000}`)
		l.progress(ctx, b)
		kill()
		kill = serveTools()
		if r := l.end(ctx, b); r.Output != "Noted: third" || r.Attempts != 2 {
			t.Errorf("%s: a call whose worker was lost ends so: %+v", server, r)
		}
		l.await(ctx)
		r := l.end(ctx, l.begin(ctx, "list_notes", `{}`))
		if r.Output != "first\nsecond\nthird" || r.Class != toolyard.ReadOnly {
			t.Errorf("%s: the notes are %q, of class %s", server, r.Output, r.Class)
		}
	}
}

// language calls the tools of one server.
type language struct {
	*testing.T
	c      *client.Client
	prefix string
}

// await waits until the server's tools are offered.
func (l language) await(ctx context.Context) {
	l.Helper()
	for {
		if r := l.end(ctx, l.begin(ctx, "list_notes", `{}`)); r.Code != toolyard.UnknownTool {
			return
		}
	}
}

func (l language) begin(ctx context.Context, tool, input string) *client.Batch {
	l.Helper()
	b, err := l.c.Submit(ctx, toolyard.Batch{Calls: []toolyard.Call{{ID: "call", Tool: l.prefix + tool,
		Input: []byte(input)}}})
	must.OK(l, err)
	return b
}

func (l language) end(ctx context.Context, b *client.Batch) (out toolyard.Result) {
	l.Helper()
	for r, err := range b.Results(ctx) {
		must.OK(l, err)
		out = r
	}
	return out
}

// progress waits until the tool itself has reported, and says whether it has.
func (l language) progress(ctx context.Context, b *client.Batch) bool {
	l.Helper()
	for p, err := range b.Progress(ctx) {
		must.OK(l, err)
		if strings.HasPrefix(p.Status, "step ") && p.Fraction > 0 && p.Fraction < 1 {
			return true
		}
	}
	return false
}
