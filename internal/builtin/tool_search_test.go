//go:build unix

package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func offered(name, description, properties string, deferred bool) tool.Offered {
	return tool.Offered{
		Declaration: tool.Declaration{Name: name, Description: description,
			InputSchema: json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)},
		WireName: strings.ReplaceAll(name, ".", "_"), Deferred: deferred,
	}
}

var shelf = []tool.Offered{
	offered("read_file", "Reads a file.", `"file_path":{"type":"string"}`, false),
	offered("github.createIssue", "Opens a new issue in a repository.", `"title":{"type":"string"},"body":{}`, true),
	offered("github.listIssues", "Lists the issues of a repository.", `"state":{"type":"string"}`, true),
	offered("mail.send", "Sends a message.",
		`"recipient":{"type":"string","description":"whose repository of letters gets it"}`, true),
	offered("calendar.find", "Finds a free slot.", `"attendees":{"type":"array"}`, true),
}

func lookUp(t *testing.T, env tool.Env, input string) (tool.Output, error) {
	t.Helper()
	s, err := toolSearch()
	must.OK(t, err)
	if err := s.Check(t.Context(), env, json.RawMessage(input)); err != nil {
		return tool.Output{}, err
	}
	return s.Run(t.Context(), env, json.RawMessage(input))
}

func shelfEnv(tools []tool.Offered) tool.Env {
	return tool.Env{Tools: func(context.Context) ([]tool.Offered, error) { return slices.Clone(tools), nil }}
}

func TestToolSearchFinds(t *testing.T) {
	for _, tt := range []struct {
		input string
		loads []string
	}{
		{`{"query":"create issue"}`, []string{"github.createIssue", "github.listIssues"}},
		{`{"query":"issue list"}`, []string{"github.listIssues", "github.createIssue"}},
		{`{"query":"repository"}`, []string{"github.createIssue", "github.listIssues", "mail.send"}},
		{`{"query":"repository","limit":1}`, []string{"github.createIssue"}},
		{`{"query":"ATTENDEE"}`, []string{"calendar.find"}},
		{`{"query":"send mail to a recipient"}`, []string{"mail.send"}},
		{`{"query":"file"}`, nil}, // there already
		{`{"query":"weather"}`, nil},
		{`{"query":"select:mail.send, calendar_find,mail.send,nope,read_file"}`,
			[]string{"mail.send", "calendar.find"}},
		{`{"query":"select:nope"}`, nil},
	} {
		out, err := lookUp(t, shelfEnv(shelf), tt.input)
		if err != nil {
			t.Errorf("%s: %v", tt.input, err)
			continue
		}
		var loads, parts []string
		if out.Session != nil {
			loads = out.Session.Loads
		}
		for _, p := range out.Content {
			if parts = append(parts, p.Name); p.Type != toolyard.ContentTool || len(p.Schema) == 0 ||
				p.WireName != strings.ReplaceAll(p.Name, ".", "_") {
				t.Errorf("%s: the part %+v", tt.input, p)
			}
		}
		if !reflect.DeepEqual(loads, tt.loads) || !reflect.DeepEqual(parts, tt.loads) || out.Text == "" {
			t.Errorf("%s: loads %q, parts %q\n%s", tt.input, loads, parts, out.Text)
		}
	}
	out, err := lookUp(t, shelfEnv(shelf), `{"query":"select:github.createIssue,nope,read_file"}`)
	want := "There is no tool nope.\nThe tool read_file is always there; it needs no loading.\n1 tool of 4 deferred " +
		"loaded; from the next turn on they can be called:\n\n" +
		"github_createIssue: Opens a new issue in a repository.\n  input: body, title (string)"
	if err != nil || out.Text != want {
		t.Errorf("got %q, %v", out.Text, err)
	}
}

func TestToolSearchRefuses(t *testing.T) {
	broken := tool.Env{Tools: func(context.Context) ([]tool.Offered, error) { return nil, errors.New("no answer") }}
	for _, tt := range []struct {
		env   tool.Env
		input string
		code  toolyard.Code
	}{
		{shelfEnv(shelf), `{"query":" "}`, toolyard.InvalidArguments},
		{shelfEnv(shelf), `{"query":"select:"}`, toolyard.InvalidArguments},
		{shelfEnv(shelf), `{"query":"` + strings.Repeat("x", MaxQueryBytes+1) + `"}`, toolyard.InvalidArguments},
		{shelfEnv(shelf), `{"query":"x","limit":21}`, toolyard.InvalidArguments},
		{tool.Env{}, `{"query":"x"}`, toolyard.SetupRequired},
		{broken, `{"query":"x"}`, toolyard.DependencyUnavailable},
	} {
		if _, err := lookUp(t, tt.env, tt.input); err == nil || tool.AsError(err).Code != tt.code {
			t.Errorf("%.40s: %v, want %s", tt.input, err, tt.code)
		}
	}
}

// TestToolSearchIsDeterministicAndBounded: over many tools, in any order of the list, the same answer of bounded size.
func TestToolSearchIsDeterministicAndBounded(t *testing.T) {
	var many []tool.Offered
	big := strings.Repeat("x", 20_000)
	for i := range 300 {
		many = append(many, offered(fmt.Sprintf("team%d.get_report", i%7*100+i), "Gets a report. "+
			big, `"id":{"type":"string"}`, true))
	}
	first, err := lookUp(t, shelfEnv(many), `{"query":"get report","limit":20}`)
	must.OK(t, err)
	size := len(first.Text)
	for _, p := range first.Content {
		size += len(p.Description) + len(p.Schema)
	}
	if n := len(first.Content); n == 0 || n >= MaxSearchTools || size > 2*MaxSearchBytes ||
		!strings.Contains(first.Text, "[not loaded, and matching too: ") {
		t.Errorf("%d tools, %d bytes", len(first.Content), size)
	}
	for range 5 {
		rand.Shuffle(len(many), func(i, j int) { many[i], many[j] = many[j], many[i] })
		if again, err := lookUp(t, shelfEnv(many), `{"query":"get report","limit":20}`); err != nil ||
			!reflect.DeepEqual(again, first) {
			t.Fatalf("another answer for another order of the list: %v", err)
		}
	}
	if out, err := lookUp(t, shelfEnv(shelf[:1]), `{"query":"x"}`); err != nil ||
		!strings.HasPrefix(out.Text, "There are no deferred tools") {
		t.Errorf("%q, %v", out.Text, err)
	}
}
