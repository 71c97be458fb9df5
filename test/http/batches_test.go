package http

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

const batches = "/v1/batches"

// echoes is a batch of so many calls of echo.
func echoes(id string, n int) string {
	var calls []string
	for i := range n {
		calls = append(calls, fmt.Sprintf(`{"id": "c%d", "tool": "echo", "input": {"text": "t%d"}}`, i, i))
	}
	return fmt.Sprintf(`{"id": %q, "calls": [%s]}`, id, strings.Join(calls, ", "))
}

// TestSubmitAndRead: a batch goes in and its results come out, in each of the ways.
func TestSubmitAndRead(t *testing.T) {
	p := start(t, nil)
	r := p.do(http.MethodPost, batches, echoes("first", 3))
	if r.status != http.StatusAccepted || r.header.Get("Location") != "/v1/batches/first" {
		t.Fatalf("%s, at %q", r, r.header.Get("Location"))
	}
	view := decode[map[string]json.RawMessage](p, string(r.body))
	for field, holds := range map[string]string{"id": `"first"`, "agent": `"default"`, "session": `"default"`,
		"workspace": `"default"`} {
		if string(view[field]) != holds {
			t.Errorf("%s is %s, want %s", field, view[field], holds)
		}
	}
	if !strings.HasPrefix(string(view["groups"]), "[") || !strings.HasPrefix(string(view["results"]), "[") {
		t.Errorf("a new batch has groups %s and results %s; want lists", view["groups"], view["results"])
	}

	// The same again is the same batch, and it is waited for.
	done := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", echoes("first", 3))
	if done.Status != toolyard.StatusCompleted || len(done.Results) != 3 || len(done.Groups) != 1 {
		t.Fatalf("the batch is %+v", done)
	}
	for i, r := range done.Results {
		if r.Index != i || r.Output != fmt.Sprint("t", i) || r.CallID != fmt.Sprint("c", i) || r.IsError ||
			len(r.Phases) == 0 {
			t.Errorf("result %d is %+v", i, r)
		}
	}
	if again := p.do(http.MethodPost, batches, echoes("first", 2)); again.status != http.StatusConflict ||
		!strings.Contains(string(again.body), `"field":"id"`) {
		t.Errorf("other content under the same id: %s", again)
	}
	shown := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/first", "")
	if len(shown.Results) != 3 || shown.Results[1].Worker != done.Results[1].Worker ||
		shown.Results[1].DurationMS != done.Results[1].DurationMS {
		t.Errorf("it ran again: %+v", shown)
	}
	testenv.Until(p, "the batch is listed", func() bool {
		page := want[api.Page](p, http.StatusOK, http.MethodGet, batches+
			"?agent=default&session=default&status=completed", "")
		return len(page.Batches) == 1 && page.Batches[0].ID == "first"
	})
	if page := want[api.Page](p, http.StatusOK, http.MethodGet, batches+"?session=other", ""); page.Batches == nil ||
		len(page.Batches) != 0 {
		t.Errorf("another session has %+v", page)
	}
	if r := p.do(http.MethodGet, batches+"/none", ""); r.status != http.StatusNotFound {
		t.Errorf("no batch: %s", r)
	}
	old, err := uuid.NewV7()
	must.OK(t, err)
	then := time.Now().Add(-30 * 24 * time.Hour).UnixMilli()
	for i := range 6 {
		old[i] = byte(then >> (40 - 8*i))
	}
	if r := p.do(http.MethodGet, batches+"/"+old.String(), ""); r.status != http.StatusGone {
		t.Errorf("a batch that is over: %s", r)
	}
	if r := p.do(http.MethodGet, batches+"/"+uuid.Must(uuid.NewV7()).String(), ""); r.status != http.StatusNotFound {
		t.Errorf("a batch that never was: %s", r)
	}
}

// TestPages: a list is read page by page, without gap or repeat.
func TestPages(t *testing.T) {
	p := start(t, nil)
	for i := range 5 {
		want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60", echoes(fmt.Sprint("b", i), 1))
	}
	testenv.Until(p, "all are listed as completed", func() bool {
		return len(want[api.Page](p, http.StatusOK, http.MethodGet, batches+"?status=completed", "").Batches) == 5
	})
	var seen []string
	for after := uint64(0); ; {
		page := want[api.Page](p, http.StatusOK, http.MethodGet, fmt.Sprintf("%s?limit=2&after=%d", batches, after), "")
		for _, b := range page.Batches {
			seen = append(seen, string(b.ID))
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	slices.Sort(seen)
	if strings.Join(seen, " ") != "b0 b1 b2 b3 b4" {
		t.Errorf("the pages have %v", seen)
	}
}

// TestProviders: calls in each provider's form, with the same options, and results in the form that goes back.
func TestProviders(t *testing.T) {
	p := start(t, nil)
	for format, c := range map[string]struct{ body, has string }{
		"anthropic": {`"anthropic": {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "u1", "name": "echo", "input": {"text": "hello"}}]}`,
			`"tool_use_id":"u1"`},
		"openai":      {`"openai": [{"type": "function_call", "call_id": "u1", "name": "echo", "arguments": "{\"text\": \"hello\"}"}]`, `"function_call_output"`},
		"openai-chat": {`"openai_chat": {"role": "assistant", "tool_calls": [{"id": "u1", "type": "function", "function": {"name": "echo", "arguments": "{\"text\": \"hello\"}"}}]}`, `"tool_call_id":"u1"`},
		"gemini":      {`"gemini": {"role": "model", "parts": [{"functionCall": {"id": "u1", "name": "echo", "args": {"text": "hello"}}}]}`, `"functionResponse"`},
	} {
		body := fmt.Sprintf(`{"id": %q, "session": "s", "options": {"partition": "sequential"}, %s}`, format, c.body)
		r := p.do(http.MethodPost, batches+"?wait=60&format="+format, body)
		flat := strings.ReplaceAll(strings.ReplaceAll(string(r.body), " ", ""), "\n", "")
		if r.status != http.StatusOK || !strings.Contains(flat, c.has) || !strings.Contains(flat, "hello") {
			t.Errorf("%s: %s", format, r)
		}
		if again := p.do(http.MethodGet, batches+"/"+format+"?format="+format, ""); again.status != http.StatusOK ||
			string(again.body) != string(r.body) {
			t.Errorf("%s, asked for again: %s", format, again)
		}
		view := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+format, "")
		if view.Session != "s" || view.Results[0].Output != "hello" {
			t.Errorf("%s: %+v", format, view)
		}
	}
}

// TestOpenBatches: calls are appended, what is sent twice counts once, and a closed batch takes no more.
func TestOpenBatches(t *testing.T) {
	p := start(t, nil)
	view := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
		"?open=true", `{"id": "o", "calls": [{"id": "a", "tool": "echo", "input": {"text": "0"}}]}`)
	if len(view.Results) > 1 {
		t.Fatalf("it begins with %+v", view)
	}
	two := `{"calls": [{"id": "b", "tool": "echo", "input": {"text": "1"}}, {"id": "c", "tool": "echo", "input": {"text": "2"}}]}`
	for range 2 {
		if got := want[api.Appended](p, http.StatusAccepted, http.MethodPost, batches+
			"/o/calls", two); got.First != 1 || got.Calls != 3 {
			t.Errorf("appended as %+v", got)
		}
	}
	wrapped := `{"anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "d", "name": "echo", "input": {"text": "3"}}]}}`
	if got := want[api.Appended](p, http.StatusAccepted, http.MethodPost, batches+
		"/o/calls", wrapped); got.First != 3 || got.Calls != 4 {
		t.Errorf("appended as %+v", got)
	}
	for body, field := range map[string]string{
		`{"calls": []}`: "calls", `{}`: "calls", `{"calls": [{"id": "a", "tool": "write"}]}`: "calls[0].id",
		`{"calls": [{"tool": "echo"}], "session": "s"}`: "session",
	} {
		if r := p.do(http.MethodPost, batches+"/o/calls", body); r.status != http.StatusBadRequest ||
			decode[api.Problem](p, string(r.body)).Field != field {
			t.Errorf("%s: %s; want field %s", body, r, field)
		}
	}
	for range 2 {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/o/close", "")
	}
	if r := p.do(http.MethodPost, batches+
		"/o/calls", `{"calls": [{"id": "e", "tool": "echo"}]}`); r.status != http.StatusConflict {
		t.Errorf("appending to what is closed: %s", r)
	}
	if got := want[api.Appended](p, http.StatusAccepted, http.MethodPost, batches+"/o/calls", two); got.First != 1 {
		t.Errorf("what is there is not known again: %+v", got)
	}
	done := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/o?wait=60", "")
	var outputs []string
	for _, r := range done.Results {
		outputs = append(outputs, r.Output)
	}
	if done.Status != toolyard.StatusCompleted || strings.Join(outputs, " ") != "0 1 2 3" {
		t.Errorf("%s: %v", done.Status, outputs)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, echoes("whole", 1))
	for _, path := range []string{"/whole/calls", "/whole/close"} {
		if r := p.do(http.MethodPost, batches+path, `{"calls": [{"tool": "echo"}]}`); path == "/whole/calls" &&
			r.status != http.StatusConflict || r.status < 400 {
			t.Errorf("%s: %s", path, r)
		}
	}
	if r := p.do(http.MethodPost, batches+"/none/calls", two); r.status != http.StatusNotFound {
		t.Errorf("no batch: %s", r)
	}
}

// TestCancel: of a batch, of a call, and a session's interrupt.
func TestCancel(t *testing.T) {
	p := start(t, nil)
	submit := func(id string) {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
			fmt.Sprintf(`{"id": %q, "session": "talk", "calls": [{"tool": "wait"}, {"tool": "echo", "input": {"text": "x"}}]}`, id))
	}
	code := func(id string) (out []toolyard.Code) {
		for _, r := range want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id+
			"?wait=60", "").Results {
			out = append(out, r.Code)
		}
		return out
	}
	submit("whole")
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
		"/whole/cancel", `{"reason": "no longer needed"}`)
	if got := code("whole"); !slices.Equal(got, []toolyard.Code{toolyard.Canceled, toolyard.Canceled}) {
		t.Errorf("the canceled batch has %v", got)
	}
	if r := p.do(http.MethodPost, batches+"/whole/cancel", ""); r.status != http.StatusConflict {
		t.Errorf("canceling what is over: %s", r)
	}
	for id, body := range map[string]string{"empty": `{"id": "empty"}`,
		"done": `{"id": "done", "calls": [{"tool": "echo", "input": {"text": "x"}}]}`} {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"?open=true", body)
		testenv.Until(p, "its calls are done", func() bool {
			view := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id, "")
			return view.Surface != "" && (id == "empty" || len(view.Results) == 1)
		})
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/"+id+"/cancel", "")
		if view := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id+"?wait=60",
			""); view.Status != toolyard.StatusCanceled {
			t.Errorf("the open batch that was canceled is %s", view.Status)
		}
	}
	submit("one")
	for path, c := range map[string]struct{ body, field string }{
		"/one/calls/7/cancel": {"", "index"}, "/one/cancel": {`{"calls": [0, 7]}`, "calls"},
	} {
		r := p.do(http.MethodPost, batches+path, c.body)
		if problem := decode[api.Problem](p, string(r.body)); problem.Field != c.field {
			t.Errorf("%s %s: the wrong field is %q, want %q", path, c.body, problem.Field, c.field)
		}
	}
	if r := p.do(http.MethodPost, batches+"/one/calls/7/cancel", ""); r.status != http.StatusNotFound {
		t.Errorf("no such call: %s", r)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/one/calls/0/cancel", "")
	if got := code("one"); !slices.Equal(got, []toolyard.Code{toolyard.Canceled, toolyard.OK}) {
		t.Errorf("with one call canceled: %v", got)
	}
	submit("talked")
	testenv.Until(p, "the batch is planned", func() bool { // before that it would stop, and not be counted
		return want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
			"/talked", "").Surface != ""
	})
	testenv.Until(p, "the interrupt finds the batch", func() bool {
		return want[api.Interrupted](p, http.StatusAccepted, http.MethodPost, "/v1/sessions/talk/interrupt",
			`{"reason": "stop"}`).Batches == 1
	})
	testenv.Until(p, "the call that runs ends", func() bool { // it ran already, or it does not begin
		select {
		case p.gate <- struct{}{}:
		default:
		}
		return want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
			"/talked", "").Status == toolyard.StatusCompleted
	})
	if got := code("talked"); got[1] != toolyard.Canceled {
		t.Errorf("the interrupted session's batch has %v", got)
	}
}

// TestApprovals: a call waits for a person, who sees it and decides.
func TestApprovals(t *testing.T) {
	p := start(t, nil)
	ask := func(id string) string {
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
			fmt.Sprintf(`{"id": %q, "session": %q, "interactive": true, "calls": [{"tool": "write", "input": {"text": "it"}}]}`, id, "s-"+id))
		var found string
		testenv.Until(p, "a call waits", func() bool {
			for _, a := range want[api.Approvals](p, http.StatusOK, http.MethodGet, "/v1/approvals?agent=default",
				"").Approvals {
				if string(a.Batch) == id && a.Tool == "write" && string(a.Input) == `{"text":"it"}` {
					found = a.ID
				}
			}
			return found != ""
		})
		return found
	}
	result := func(id string) toolyard.Result {
		return want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id+"?wait=60", "").Results[0]
	}
	first := ask("allowed")
	for body, field := range map[string]string{
		`{"decision": "maybe"}`: "decision", `{}`: "decision", `{"decision": "deny", "input": {"text": "x"}}`: "input",
		`{"decision": "deny", "remember": "session"}`: "remember",
		`{"decision": "allow", "remember": "ever"}`:   "remember", `{"decision": "allow", "by": "me"}`: "by",
		`{"decision": "allow", "reason": 1}`:                                   "reason",
		`{"decision": "deny", "reason": "` + strings.Repeat("x", 1_001) + `"}`: "reason",
	} {
		r := p.do(http.MethodPost, "/v1/approvals/"+first, body)
		if problem := decode[api.Problem](p, string(r.body)); r.status != http.StatusBadRequest &&
			r.status != http.StatusRequestEntityTooLarge || problem.Field != field {
			t.Errorf("%.60s: %s; want field %s", body, r, field)
		}
	}
	if got := want[api.Decided](p, http.StatusOK, http.MethodPost, "/v1/approvals/"+
		first, `{"decision": "allow", "reason": "fine"}`); got.ID != first || got.Decision != "allow" {
		t.Errorf("decided %+v", got)
	}
	if r := result("allowed"); r.Output != "wrote it" || r.ApprovalWaitMS <= 0 {
		t.Errorf("the approved call: %+v", r)
	}
	if r := p.do(http.MethodPost, "/v1/approvals/"+first, `{"decision": "deny"}`); r.status != http.StatusGone {
		t.Errorf("a decision that comes too late: %s", r)
	}
	want[api.Decided](p, http.StatusOK, http.MethodPost, "/v1/approvals/"+
		ask("changed"), `{"decision": "allow", "input": {"text": "less"}}`)
	if r := result("changed"); r.Output != "wrote less" {
		t.Errorf("the changed call: %+v", r)
	}
	want[api.Decided](p, http.StatusOK, http.MethodPost, "/v1/approvals/"+
		ask("denied"), `{"decision": "deny", "reason": "not on a Friday"}`)
	if r := result("denied"); r.Code != toolyard.ApprovalRejected || !strings.Contains(r.Error, "Friday") {
		t.Errorf("the denied call: %+v", r)
	}
	want[api.Decided](p, http.StatusOK, http.MethodPost, "/v1/approvals/"+
		ask("kept"), `{"decision": "allow", "remember": "session"}`)
	next := `{"id": "next", "session": "s-kept", "interactive": true, "calls": [{"tool": "write", "input": {"text": "it"}}]}`
	if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
		"?wait=60", next); v.Results[0].Output != "wrote it" {
		t.Errorf("what is remembered: %+v", v)
	}
	for _, id := range []string{"default.none.0", "default.allowed.9", "nonsense"} {
		if r := p.do(http.MethodPost, "/v1/approvals/"+id, `{"decision": "deny"}`); r.status != http.StatusNotFound {
			t.Errorf("%s: %s", id, r)
		}
	}
}

// TestBlobs: an offloaded result is read in parts, which together are the whole.
func TestBlobs(t *testing.T) {
	p := start(t, nil)
	done := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
		"?wait=60", `{"calls": [{"tool": "long"}]}`)
	ref := done.Results[0].Blob
	if ref == "" || !done.Results[0].Truncated {
		t.Fatalf("the result is inline: %+v", done.Results[0])
	}
	whole := strings.Repeat("äb", 3_000)
	for _, limit := range []int{1, 1_000, 4_000, 100_000} {
		var got strings.Builder
		for at, more := 0, true; more && got.Len() < 200; {
			b := want[api.Blob](p, http.StatusOK, http.MethodGet,
				fmt.Sprintf("/v1/blobs/%s?offset=%d&limit=%d", ref, at, limit), "")
			if b.Offset != at || b.Size != len(whole) || b.Content == "" {
				t.Fatalf("at %d: %+v", at, b)
			}
			got.WriteString(b.Content)
			at, more = b.Next, b.Next != 0
			if limit > 200 && more {
				continue
			}
		}
		if !strings.HasPrefix(whole, got.String()) || limit == 100_000 && got.String() != whole {
			t.Errorf("in parts of %d it is other", limit)
		}
	}
	if b := want[api.Blob](p, http.StatusOK, http.MethodGet, "/v1/blobs/"+ref+
		"?offset=1&limit=3", ""); b.Content != "äb" || b.Offset != 0 {
		t.Errorf("from within a character: %+v", b)
	}
	for path, status := range map[string]int{
		ref + "?offset=9001": 400, ref + "?limit=0": 400, ref + "?offset=-1": 400, ref +
			"?agent=other": 404, "nothing": 404, ref[:len(ref)-1] + "0?agent=default": 404,
	} {
		if r := p.do(http.MethodGet, "/v1/blobs/"+path, ""); r.status != status &&
			!strings.HasPrefix(path, ref[:len(ref)-1]+"0") {
			t.Errorf("%s: %s", path, r)
		}
	}
}

// TestOperations: what a supervisor asks.
func TestOperations(t *testing.T) {
	p := start(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := p.do(http.MethodGet, path, ""); r.status != http.StatusOK || string(r.body) != "ok\n" {
			t.Errorf("%s: %s", path, r)
		}
	}
	list := want[api.Workers](p, http.StatusOK, http.MethodGet, "/v1/workers", "")
	if len(list.Workers) != 1 || list.Workers[0].Pool != "default" {
		t.Errorf("the workers are %+v", list)
	}
}

// TestBatchesOfALaterVersion are shown as far as this version understands them, and otherwise it says who can.
func TestBatchesOfALaterVersion(t *testing.T) {
	p := start(t, nil)
	later := func(k toolyard.BatchKey, c batch.Chain, eventType events.Type) {
		t.Helper()
		body := events.Newer{Type: eventType, MinReaderVersion: version.Wire + 1, Data: []byte(`{"to":3}`)}
		if _, err := p.broker.Append(t.Context(), k, c, "", 0, 0, body); err != nil {
			t.Fatal(err)
		}
	}
	slowed := toolyard.Batch{ID: "slowed", Calls: []toolyard.Call{{Tool: "echo"}}}
	slowed.Normalize("slowed")
	later(slowed.Key(), batch.ChainControl, "dev.toolyard.batch.slowed.v1")
	must.OK(t, p.broker.Submit(t.Context(), slowed))
	testenv.Until(p, "a dispatcher has left it", func() bool {
		return want[toolyard.BatchView](p, http.StatusOK, "GET", batches+"/slowed", "").NewerEvents == 1
	})
	lines := p.do("GET", batches+"/slowed/events?follow=false", "")
	if lines.status != http.StatusOK || !strings.Contains(string(lines.body), `"dev.toolyard.batch.slowed.v1"`) ||
		!strings.Contains(string(lines.body), `"to":3`) {
		t.Errorf("its events are %s", lines)
	}
	unread := toolyard.BatchKey{Agent: "default", ID: "unread"}
	later(unread, batch.ChainSubmission, "dev.toolyard.batch.submitted.v2")
	if got := want[api.Problem](p, http.StatusNotImplemented, "GET", batches+
		"/unread", ""); !strings.Contains(got.Detail, "newer version") {
		t.Errorf("a batch that only a later version can read: %+v", got)
	}
}
