package dispatchercmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestADenialIsOfWhatWasShown: while a person thinks, somebody else may answer, and the call ask something else. A no
// at a terminal is to the question that stands there, and ends no call that asks another.
func TestADenialIsOfWhatWasShown(t *testing.T) {
	t.Parallel()
	v, err := schema.Parse(json.RawMessage(`{"command":"ls"}`))
	must.OK(t, err)
	shown := client.Approval{ID: "a.b.0", Agent: "a", Batch: "b", Tool: "bash", Input: v.Canonical(),
		InputSHA256: v.Hash()}
	form := shown
	form.Form = &toolyard.Form{Server: "s", Message: "m", Schema: json.RawMessage(`{"type":"object"}`)}
	filled, err := schema.ParseInput(form.Input)
	must.OK(t, err)
	if form.InputSHA256, err = display.AskedSHA256(form.Form, filled); err != nil {
		t.Fatal(err)
	}
	part := shown
	part.Input = json.RawMessage(`{"command":"[cut: 99999 bytes in all]"}`)
	said := make(chan string, 8)
	list := must.JSON(t, map[string]any{"approvals": []client.Approval{shown}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer := list
		if r.Method == http.MethodPost {
			said <- string(body)
			answer = []byte(`{"id":"a.b.0","decision":"deny"}`)
		}
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.ConnectHTTP(t.Context(), server.URL, client.HTTPOptions{})
	must.OK(t, err)
	check := func(how string, of client.Approval, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		got := ""
		select {
		case got = <-said:
		default:
		}
		if !strings.Contains(got, `"decision":"deny"`) || !strings.Contains(got, `"input_sha256":"`+of.InputSHA256) {
			t.Errorf("%s: the denial is %q, and does not say of what", how, got)
		}
	}
	var text bytes.Buffer
	s := &std{in: strings.NewReader(""), out: &text, err: &text, terminal: func() bool { return false }}
	for how, ask := range map[string]struct {
		of    client.Approval
		keys  string
		shown string
	}{
		"run, no":              {shown, "n\n", "ls"},
		"run, silent":          {shown, "", "ls"},
		"run, no answer":       {form, "n\n", "m"},
		"run, not shown whole": {part, "n\n", "denied"},
	} {
		text.Reset()
		err := s.askOne(t.Context(), c, ask.of, bufio.NewScanner(strings.NewReader(ask.keys)), nil)
		check(how, ask.of, err)
		if !strings.Contains(text.String(), ask.shown) {
			t.Errorf("%s: the person reads\n%s", how, text.String())
		}
	}
	in, keys, err := os.Pipe()
	must.OK(t, err)
	screen, out, err := os.Pipe()
	must.OK(t, err)
	for _, f := range []*os.File{in, keys, screen, out} {
		t.Cleanup(func() { _ = f.Close() })
	}
	if _, err := keys.WriteString("n\ny\n"); err != nil {
		t.Fatal(err)
	}
	l := &liveScreen{s: s, c: c, view: newLive(toolyard.BatchKey{Agent: "a", ID: "b"}, s.paint()), in: in, out: out}
	_, err = l.decide(t.Context(), 0)
	check("watch", shown, err)
}
