package http

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
)

// TestAnOpenedBatchIsOpen: it is from its first answer on, before a dispatcher has looked at it, until it is
// closed.
func TestAnOpenedBatchIsOpen(t *testing.T) {
	p := start(t, nil)
	for _, path := range []string{"?open=true", "?open=true&wait=1"} {
		v := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+path, "{}")
		if v.Status != toolyard.StatusOpen {
			t.Errorf("%s: the answer says %q", path, v.Status)
		}
		if v = want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+
			string(v.ID), ""); v.Status != toolyard.StatusOpen {
			t.Errorf("%s: it is %q", path, v.Status)
		}
		v = want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/"+string(v.ID)+"/close", "{}")
		if v.Status == toolyard.StatusOpen {
			t.Errorf("%s: closed, it is %q", path, v.Status)
		}
	}
}

// TestABadNameNeedsNoRight: a token for some tools is not refused for a name that no tool can have.
func TestABadNameNeedsNoRight(t *testing.T) {
	p := startFor(t, "some alice tools=echo\n")
	body := `{"calls": [{"id": "a", "tool": "echo", "input": {"text": "x"}}, {"id": "b", "tool": ""}]}`
	v := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
		"?wait=60", body, "Authorization", "Bearer some")
	if got := codes(v.Results); got != "a: b:unknown_tool" {
		t.Errorf("%s", got)
	}
	if r := p.do(http.MethodPost, batches, `{"calls": [{"tool": "write"}]}`, "Authorization",
		"Bearer some"); r.status != http.StatusForbidden {
		t.Errorf("another tool: %s", r)
	}
}

// TestNoBatchNamesTheAgent: who may mean other agents' batches, and names none, is told how to.
func TestNoBatchNamesTheAgent(t *testing.T) {
	p := startFor(t, "alone alice\nboth bob agents=carol\nall *\n")
	for _, c := range []struct {
		token, query string
		names        bool
	}{{"alone", "", false}, {"both", "", true}, {"both", "?agent=carol", false}, {"all", "", true},
		{"all", "?agent=x", false}} {
		for _, path := range []string{"/none", "/none/results", "/none/events"} {
			r := p.do(http.MethodGet, batches+path+c.query, "", "Authorization", "Bearer "+c.token)
			if r.status != http.StatusNotFound || strings.Contains(string(r.body), "?agent=") != c.names {
				t.Errorf("%s, %s%s: %s", c.token, path, c.query, r)
			}
		}
		r := p.do(http.MethodPost, batches+"/none/cancel"+c.query, "{}", "Authorization", "Bearer "+c.token)
		if r.status != http.StatusNotFound || strings.Contains(string(r.body), "?agent=") != c.names {
			t.Errorf("%s, cancel: %s", c.token, r)
		}
	}
}

// TestIDsOfDots: a batch or a session whose name is what a path has for "here" or "above" is found where the answer
// says.
func TestIDsOfDots(t *testing.T) {
	p := start(t, nil)
	c, err := client.ConnectHTTP(t.Context(), p.url, client.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{".", "..", "...", "a/../b", "%2E"} {
		r := p.do(http.MethodPost, batches, echoes(id, 1))
		shown := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, r.header.Get("Location")+"?wait=60", "")
		if string(shown.ID) != id || len(shown.Results) != 1 {
			t.Errorf("at %q is %+v; want batch %q", r.header.Get("Location"), shown, id)
		}
		key := toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: toolyard.BatchID(id)}
		if v, err := c.Batch(key).View(t.Context()); err != nil || string(v.ID) != id {
			t.Errorf("the Go client finds %+v as %q: %v", v, id, err)
		}
		if _, err := c.SetUnattended(t.Context(), toolyard.DefaultAgent, toolyard.Session(id), true); err != nil {
			t.Errorf("session %q: %v", id, err)
		}
	}
}

// TestCallsOfGeminiAreAppended: Gemini gives its calls no ids. Those of each piece of a response are calls of their
// own, also where they are equal, and what goes back names none of the ids that they get.
func TestCallsOfGeminiAreAppended(t *testing.T) {
	p := start(t, nil)
	piece := func(texts ...string) string {
		var parts []string
		for _, text := range texts {
			parts = append(parts, `{"functionCall": {"name": "echo", "args": {"text": "`+text+`"}}}`)
		}
		return `{"gemini": {"role": "model", "parts": [` + strings.Join(parts, ", ") + `]}`
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, piece("a")+`, "id": "g", "open": true}`)
	for i, c := range []struct {
		body  string
		first int
	}{{piece("b", "c") + "}", 1}, {piece("c") + "}", 3}, {piece("c") + "}", 4},
		{`{"gemini": {"parts": [{"functionCall": {"id": "own", "name": "echo", "args": {"text": "d"}}}]}}`, 5},
		{`{"gemini": {"parts": [{"functionCall": {"id": "own", "name": "echo", "args": {"text": "d"}}}]}}`, 5},
	} {
		if got := want[api.Appended](p, http.StatusAccepted, http.MethodPost, batches+"/g/calls",
			c.body); got.First != c.first {
			t.Errorf("piece %d is call %d, want %d", i, got.First, c.first)
		}
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/g/close", "")
	reply := want[struct {
		Parts []struct {
			FunctionResponse struct {
				ID       string
				Response struct{ Output string }
			}
		}
	}](p, http.StatusOK, http.MethodGet, batches+"/g?wait=60&format=gemini", "")
	var said []string
	for _, part := range reply.Parts {
		said = append(said, part.FunctionResponse.ID+":"+part.FunctionResponse.Response.Output)
	}
	if got := strings.Join(said, " "); got != ":a :b :c :c :c own:d" {
		t.Errorf("the reply has %s", got)
	}
}
