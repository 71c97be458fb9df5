//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
	pool "github.com/toolyard/toolyard/worker"
)

// TestADeferredToolInEveryForm: a model of each provider searches for a tool of another pool, gets it in that
// provider's form, and calls it in the next turn; the tools of that session's next request have it, and an agent with a
// narrower view finds nothing.
func TestADeferredToolInEveryForm(t *testing.T) {
	t.Parallel()
	d := dispatcher(t, "--with-worker", "--workspace", "default="+t.TempDir(), "--view", "blind=tool_search,read_*")
	nc, err := nats.Connect(d.says["nats"], credsFor(t, d.says["nats"], "worker.own"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- pool.Run(ctx, nc, pool.Options{Pool: "own", Ready: func(id string) { ready <- id },
			Tools: []tool.Tool{{
				Declaration: tool.Declaration{Name: "tracker.open", Description: "Opens an issue.",
					InputSchema: json.RawMessage(`{"type":"object","properties":{"title":{"type":"string"}}}`),
					Class:       tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true, ShouldDefer: true},
				Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
					return tool.Output{Text: "opened"}, nil
				},
			}}})
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); <-ended })
	p := newPlace(t, nil)
	submit := func(agent, session, doc, format string) string {
		stdout, stderr, status := p.run(strings.NewReader(doc), nil, "submit", "--nats", d.says["nats"], "--agent",
			agent, "--session", session, "--format", format, "-")
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		return stdout
	}
	offered := func(format, session string) (names []string, raw string) {
		raw, stderr, status := p.run(nil, nil, "tools", "--nats", d.says["nats"], "--format", format, "--session",
			session)
		if status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		var list []struct {
			Name, Type, Execution string
			Function              struct{ Name string }
		}
		decode(t, []byte(raw), &list)
		for _, d := range list {
			names = append(names, d.Name+d.Function.Name)
			if d.Type == "tool_search" && d.Execution != "client" {
				t.Errorf("the search is run by %q", d.Execution)
			}
		}
		return names, raw
	}

	got := submit("default", "a",
		`{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"tool_search","input":{"query":"open issue"}}]}`, "anthropic")
	if !strings.Contains(got, `{"tool_name":"tracker_open","type":"tool_reference"}`) {
		t.Errorf("Anthropic gets %s", got)
	}
	got = submit("default", "o",
		`[{"type":"tool_search_call","call_id":"t1","execution":"client","status":"completed","arguments":{"query":"select:tracker.open"}}]`, "openai")
	for _, want := range []string{`"type":"tool_search_output"`, `"name":"tracker_open"`, `"defer_loading":true`,
		`"title":{"type":"string"}`} {
		if !strings.Contains(got, want) {
			t.Errorf("OpenAI gets no %s: %s", want, got)
		}
	}
	got = submit("default", "c",
		`{"role":"assistant","tool_calls":[{"id":"t1","type":"function","function":{"name":"tool_search","arguments":"{\"query\":\"open issue\",\"limit\":null}"}}]}`, "openai-chat")
	if !strings.Contains(got, "tracker_open: Opens an issue.") {
		t.Errorf("Chat Completions gets %s", got)
	}
	for _, session := range []string{"a", "o", "c"} {
		if got := submit("default", session, `{"calls":[{"id":"1","tool":"tracker_open","input":{"title":"x"}}]}`,
			"native"); !strings.Contains(got, `"output": "opened"`) {
			t.Errorf("the next batch of %s: %s", session, got)
		}
	}
	if got := submit("default", "other", `{"calls":[{"id":"1","tool":"tracker_open","input":{"title":"x"}}]}`,
		"native"); !strings.Contains(got, "schema_not_loaded") {
		t.Errorf("another session: %s", got)
	}
	if got := submit("blind", "a",
		`{"calls":[{"id":"1","tool":"tool_search","input":{"query":"open issue"}},{"id":"2","tool":"bash","input":{"command":"ls"}}]}`, "native"); strings.Contains(got, "tracker") || !strings.Contains(got, "blocked_tool") {
		t.Errorf("an agent that sees less: %s", got)
	}

	if names, _ := offered("openai-chat", "c"); !slices.Contains(names, "tracker_open") {
		t.Errorf("the session's next request has %q", names)
	}
	if names, _ := offered("openai-chat", "other"); slices.Contains(names, "tracker_open") {
		t.Errorf("a session that has loaded nothing has %q", names)
	}
	if _, raw := offered("openai", "other"); !strings.Contains(raw, `"type":"tool_search"`) ||
		!strings.Contains(raw, `"defer_loading":true`) {
		t.Errorf("OpenAI is offered %s", raw)
	}
	// A prompt cache stays warm over a load.
	for format, session := range map[string]string{"anthropic": "a", "openai": "o"} {
		_, before := offered(format, "other")
		if _, after := offered(format, session); before != after || !strings.Contains(after, `"defer_loading":true`) {
			t.Errorf("%s: before the load %s, after it %s", format, before, after)
		}
	}
}
