package http

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestTokens: an agent finds its own things and nothing of any other's; the operator finds all.
func TestTokens(t *testing.T) {
	p := startFor(t, "# who\nsecret-a alice interactive=yes\n\nsecret-b bob\nsecret-o *\n")
	alice, bob, operator := []string{"Authorization", "Bearer secret-a"}, []string{"Authorization", "bearer secret-b"},
		[]string{"Authorization", "Bearer secret-o"}
	body := `{"id": "b", "session": "s", "interactive": true, "calls": [{"tool": "long"}, {"tool": "write", "input": {"text": "x"}}, {"tool": "wait"}]}`
	view := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, body, alice...)
	if view.Agent != "alice" {
		t.Fatalf("the batch is %s's", view.Agent)
	}
	var approval string
	testenv.Until(p, "a call waits", func() bool {
		if list := want[api.Approvals](p, http.StatusOK, http.MethodGet, "/v1/approvals", "",
			alice...); len(list.Approvals) == 1 {
			approval = list.Approvals[0].ID
		}
		return approval != ""
	})
	ref := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/b", "", alice...).Results[0].Blob
	for _, c := range []struct {
		method, path, body string
	}{
		{http.MethodGet, batches + "/b", ""}, {http.MethodGet, batches + "/b?agent=alice", ""},
		{http.MethodGet, batches + "/b/results", ""},
		{http.MethodGet, batches + "/b/results?agent=alice", ""}, {http.MethodGet, batches + "/b/events", ""},
		{http.MethodGet, batches + "/b/events?agent=alice", ""},
		{http.MethodPost, batches + "/b/cancel", ""}, {http.MethodPost, batches + "/b/cancel?agent=alice", ""},
		{http.MethodPost, batches + "/b/calls/0/cancel?agent=alice", ""},
		{http.MethodPost, batches + "/b/calls?agent=alice", `{"calls": [{"tool": "echo"}]}`},
		{http.MethodPost, batches + "/b/close?agent=alice", ""},
		{http.MethodPost, "/v1/approvals/" + approval, `{"decision": "allow"}`},
		{http.MethodPost, "/v1/sessions/s/interrupt?agent=alice", ""},
		{http.MethodGet, "/v1/blobs/" + ref, ""}, {http.MethodGet, "/v1/blobs/" + ref + "?agent=alice", ""},
		{http.MethodGet, batches + "?agent=alice", ""}, {http.MethodGet, "/v1/approvals?agent=alice", ""},
	} {
		if r := p.do(c.method, c.path, c.body, bob...); r.status != http.StatusNotFound {
			t.Errorf("another agent: %s %s: %s", c.method, c.path, r)
		}
		for _, wrong := range [][]string{nil, {"Authorization", "Bearer secret-x"}, {"Authorization", "Bearer"},
			{"Authorization", "Basic secret-a"}, {"Authorization", "Bearer *"}} {
			if r := p.do(c.method, c.path, c.body, wrong...); r.status != http.StatusUnauthorized ||
				!strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("with %v: %s %s: %s", wrong, c.method, c.path, r)
			}
		}
	}
	if n := want[api.Interrupted](p, http.StatusAccepted, http.MethodPost, "/v1/sessions/s/interrupt", "",
		bob...); n.Batches != 0 {
		t.Errorf("another agent interrupted %+v", n)
	}
	if list := want[api.Approvals](p, http.StatusOK, http.MethodGet, "/v1/approvals", "",
		bob...); len(list.Approvals) != 0 {
		t.Errorf("another agent sees %+v", list)
	}
	if page := want[api.Page](p, http.StatusOK, http.MethodGet, batches, "", bob...); len(page.Batches) != 0 {
		t.Errorf("another agent sees %+v", page)
	}
	if r := p.do(http.MethodPost, batches, `{"agent": "alice", "calls": [{"tool": "echo"}]}`,
		bob...); r.status != http.StatusForbidden || !strings.Contains(string(r.body), `"field":"agent"`) {
		t.Errorf("a batch in another agent's name: %s", r)
	}
	// The same id is another batch for another agent.
	if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+
		"?wait=60", `{"id": "b", "calls": [{"tool": "echo", "input": {"text": "mine"}}]}`, bob...); v.Agent != "bob" ||
		v.Results[0].Output != "mine" {
		t.Errorf("bob's batch is %+v", v)
	}
	if r := p.do(http.MethodGet, "/v1/blobs/"+ref, "", alice...); r.status != http.StatusOK {
		t.Errorf("her own result: %s", r)
	}
	if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
		"/b?agent=alice", "", operator...); v.Agent != "alice" || len(v.Results) != 1 {
		t.Errorf("the operator sees %+v", v)
	}
	if list := want[api.Approvals](p, http.StatusOK, http.MethodGet, "/v1/approvals", "",
		operator...); len(list.Approvals) != 1 {
		t.Errorf("the operator sees %+v", list)
	}
	if r := p.do(http.MethodPost, "/v1/approvals/"+approval, `{"decision": "allow"}`,
		alice...); r.status != http.StatusForbidden {
		t.Errorf("an agent that allows its own call: %d %s", r.status, r.body)
	}
	want[api.Decided](p, http.StatusOK, http.MethodPost, "/v1/approvals/"+
		approval, `{"decision": "allow"}`, operator...)
	p.gate <- struct{}{}
	if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
		"/b?wait=60", "", alice...); len(v.Results) != 3 || v.Results[1].Output != "wrote x" {
		t.Errorf("her batch ends as %+v", v)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if r := p.do(http.MethodGet, path, ""); r.status != http.StatusOK {
			t.Errorf("%s needs a token: %s", path, r)
		}
	}
}

// TestNoServerWithoutTokens: nobody can have a server on a network that asks nobody.
func TestNoServerWithoutTokens(t *testing.T) {
	if _, err := api.New(api.Config{}); err == nil {
		t.Error("there is one")
	}
}

// TestOtherSites: a page of another site reaches nothing on this machine, whatever name it found it by.
func TestOtherSites(t *testing.T) {
	p := start(t, nil)
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{nil, 202}, {[]string{"Origin", "http://localhost:3000"}, 202}, {[]string{"Origin", "http://[::1]"}, 202},
		{[]string{"Host", "localhost"}, 202}, {[]string{"Host", "127.0.0.1:1"}, 202},
		{[]string{"Host", "evil.example"}, 403}, {[]string{"Host", "127.0.0.1.evil.example"}, 403},
		{[]string{"Host", "localhost.evil.example:80"}, 403},
		{[]string{"Origin", "https://evil.example"}, 403}, {[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://127.0.0.1.evil.example"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Content-Type", "text/plain"}, 415}, {[]string{"Content-Type", "application/x-www-form-urlencoded"},
			415}, {[]string{"Content-Type", ""}, 415},
		{[]string{"Content-Type", "application/json; charset=utf-8"}, 202},
	} {
		if r := p.do(http.MethodPost, batches, echoes("same", 1), c.headers...); r.status != c.status {
			t.Errorf("%q: %s; want %d", c.headers, r, c.status)
		}
	}
}

// TestBadRequests: what is wrong with a request is said, with the field.
func TestBadRequests(t *testing.T) {
	p := start(t, nil)
	call := `"calls": [{"tool": "echo"}]`
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{http.MethodPost, batches, ``, 415, "Content-Type"},
		{http.MethodPost, batches, ` `, 400, ""},
		{http.MethodPost, batches, `{`, 400, ""},
		{http.MethodPost, batches, `[]`, 400, ""},
		{http.MethodPost, batches, `{}`, 400, "calls"},
		{http.MethodPost, batches, `{"calls": []}`, 400, "calls"},
		{http.MethodPost, batches, `{"calls": {}}`, 400, "calls"},
		{http.MethodPost, batches, `{"calls": [{"input": {}}]}`, 400, "calls[0].tool"},
		{http.MethodPost, batches, `{"calls": [{"tool": "echo", "id": "a"}, {"tool": "echo", "id": "a"}]}`, 400,
			"calls[1].id"},
		{http.MethodPost, batches, `{"calls": [{"tool": "echo", "inptu": {}}]}`, 400, "calls[0].inptu"},
		{http.MethodPost, batches, `{"agent": 1, ` + call + `}`, 400, "agent"},
		{http.MethodPost, batches, `{"agent": "a", "agent": "b", ` + call + `}`, 400, "agent"},
		{http.MethodPost, batches + "?agent=x", `{"agent": "a", ` + call + `}`, 400, "agent"},
		{http.MethodPost, batches + "?agent=%01", `{` + call + `}`, 400, "agent"},
		{http.MethodPost, batches, `{"id": "` + strings.Repeat("i", 129) + `", ` + call + `}`, 400, "id"},
		{http.MethodPost, batches, `{"options": {"partition": "x"}, ` + call + `}`, 400, "options.partition"},
		{http.MethodPost, batches, `{"options": {"allow": ["bash"]}, ` + call + `}`, 400, "options.allow"},
		{http.MethodPost, batches, `{"options": {"max_concurrency": 1001}, ` + call +
			`}`, 400, "options.max_concurrency"},
		{http.MethodPost, batches, `{"anthropic": {}, ` + call + `}`, 400, "calls"},
		{http.MethodPost, batches, `{"anthropic": {}, "openai": []}`, 400, "openai"},
		{http.MethodPost, batches, `{"anthropic": null}`, 400, "anthropic"},
		{http.MethodPost, batches, `{"anthropic": {"role": "assistant", "content": []}}`, 400, "anthropic"},
		{http.MethodPost, batches,
			`{"anthropic": {"role": "assistant", "content": [{"type": "tool_use", "name": "echo", "input": {}}]}}`, 400,
			"anthropic.content[0].id"},
		{http.MethodPost, batches, `{"x": ` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, 400, ""},
		{http.MethodPost, batches + "?wait=-1", `{` + call + `}`, 400, "wait"},
		{http.MethodPost, batches + "?wait=601", `{` + call + `}`, 400, "wait"},
		{http.MethodPost, batches + "?wait=soon", `{` + call + `}`, 400, "wait"},
		{http.MethodPost, batches + "?format=xml", `{` + call + `}`, 400, "format"},
		{http.MethodPost, batches + "?opne=true", `{` + call + `}`, 400, "opne"},
		{http.MethodPost, batches + "?open=perhaps", `{` + call + `}`, 400, "open"},
		{http.MethodGet, batches + "?status=done", ``, 400, "status"},
		{http.MethodGet, batches + "?limit=0", ``, 400, "limit"},
		{http.MethodGet, batches + "?limit=1001", ``, 400, "limit"},
		{http.MethodGet, batches + "?after=-1", ``, 400, "after"},
		{http.MethodGet, batches + "?session=%00", ``, 400, "session"},
		{http.MethodGet, batches + "/" + strings.Repeat("i", 129), ``, 400, "id"},
		{http.MethodGet, batches + "/b%0a", ``, 400, "id"},
		{http.MethodPost, batches + "/b/calls/x/cancel", ``, 400, "index"},
		{http.MethodPost, batches + "/b/calls/-1/cancel", ``, 400, "index"},
		{http.MethodPost, batches + "/b/cancel", `{"raeson": "x"}`, 400, "raeson"},
		{http.MethodPost, batches + "/b/cancel", `{"reason": 1}`, 400, "reason"},
		{http.MethodPost, batches + "/none/cancel", ``, 404, "id"},
		{http.MethodPost, "/v1/sessions/s/interrupt", `{"reason": []}`, 400, "reason"},
		{http.MethodPost, "/v1/sessions/s/interrupt", `{"resolve": "yes"}`, 400, "resolve"},
		{http.MethodGet, "/v1/nothing", ``, 404, ""},
		{http.MethodGet, "/", ``, 404, ""},
		{http.MethodGet, "/v1/stream/anthropic", ``, 405, ""},
		{http.MethodPut, batches, `{` + call + `}`, 405, ""},
		{http.MethodDelete, batches + "/b", ``, 405, ""},
	} {
		r := p.do(c.method, c.path, c.body)
		if problem := decode[api.Problem](p, string(r.body)); r.status != c.status || problem.Field != c.field {
			t.Errorf("%s %.60s %.100s: %.300s; want %d, field %q", c.method, c.path, c.body, r, c.status, c.field)
		}
		if c.status == 405 && r.header.Get("Allow") == "" {
			t.Errorf("%s %s does not say what is allowed", c.method, c.path)
		}
	}
}

// TestOtherMethods: whoever asks a path with a method that it does not take is told those that it takes.
func TestOtherMethods(t *testing.T) {
	p := start(t, nil)
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodPut, batches, "GET, POST"}, {http.MethodHead, batches, "GET, POST"},
		{http.MethodOptions, batches + "/b", "GET"}, {http.MethodHead, batches + "/b/results", "GET"},
		{http.MethodHead, batches + "/b/cancel", "POST"}, {http.MethodGet, "/v1/stream/anthropic", "POST"},
		{http.MethodDelete, "/v1/sessions/s", "GET, POST"}, {http.MethodPost, "/healthz", "GET, HEAD"},
	} {
		res, err := http.DefaultClient.Do(p.request(c.method, c.path, ""))
		must.OK(t, err)
		if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusMethodNotAllowed ||
			res.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, which takes %q; want %q", c.method, c.path, res.StatusCode, res.Header.Get("Allow"),
				c.allow)
		}
	}
	for _, path := range []string{"/v1/approvals/..", "/v1/sessions/s/..", "/v1/nothing/../none"} {
		r := p.do(http.MethodPost, path, "{}")
		if problem := decode[api.Problem](p, string(r.body)); r.status != http.StatusNotFound ||
			problem.Status != http.StatusNotFound {
			t.Errorf("%s, which is no path: %s", path, r)
		}
	}
}

// TestTooLong: bodies and headers past their limits are refused, and what is just within is taken.
func TestTooLong(t *testing.T) {
	p := start(t, nil)
	long := func(n int) string { // one call, with white space around it
		return fmt.Sprintf(`{"id": "long", "calls": [{"tool": "echo", "input": {"text": "x"}}]%s}`,
			strings.Repeat(" ", n))
	}
	if r := p.do(http.MethodPost, batches, long(toolyard.MaxBatchBytes/2)); r.status != http.StatusAccepted {
		t.Errorf("within the limit: %.300s", r)
	}
	if r := p.do(http.MethodPost, batches, long(api.MaxBodyBytes)); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("past the limit: %.300s", r)
	}
	if r := p.do(http.MethodPost, batches+"/long/cancel", `{"reason": "`+strings.Repeat("x", api.MaxSmallBodyBytes)+
		`"}`); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long reason: %.300s", r)
	}
	var calls strings.Builder
	for i := range toolyard.MaxCallsPerBatch + 1 {
		if i > 0 {
			calls.WriteString(",")
		}
		calls.WriteString(`{"tool":"echo"}`)
	}
	r := p.do(http.MethodPost, batches, `{"calls": [`+calls.String()+`]}`)
	if r.status != http.StatusRequestEntityTooLarge || decode[api.Problem](p, string(r.body)).Field != "calls" {
		t.Errorf("too many calls: %.300s", r)
	}
}

// TestALongBodyIsAnswered: a client that sends all of a body that is too long before it reads is told so, and so is one
// that asks first whether it may send it.
func TestALongBodyIsAnswered(t *testing.T) {
	p := start(t, nil)
	const length = 40 << 20
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", batches)
	whole, spaces := fmt.Sprintf("Content-Length: %d\r\n", length), strings.Repeat(" ", length)
	chunk := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", length, spaces)
	for name, says := range map[string]string{
		"a length":    head + whole + "\r\n" + spaces,
		"one chunk":   head + chunk,
		"ask first":   head + whole + "Expect: 100-continue\r\n\r\n",
		"another way": strings.Replace(head, batches, batches+"/b/cancel", 1) + whole + "\r\n" + spaces,
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
		must.OK(t, err)
		must.OK(t, conn.SetDeadline(time.Now().Add(patience)))
		if _, err = io.WriteString(conn, says); err != nil {
			t.Errorf("%s: what is sent is not read: %v", name, err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: status %d", name, res.StatusCode)
		}
	}
}

// TestDocument: the OpenAPI document is whole, and says of each operation what it takes and gives.
func TestDocument(t *testing.T) {
	p := start(t, nil)
	type operation struct {
		OperationID string `json:"operationId"`
		Parameters  []struct{ Name, In string }
		RequestBody *struct {
			Content map[string]struct{ Schema map[string]any }
		} `json:"requestBody"`
		Responses map[string]struct {
			Description string
			Content     map[string]struct{ Schema map[string]any }
		}
	}
	doc := want[struct {
		OpenAPI    string `json:"openapi"`
		Info       struct{ Title, Version string }
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]map[string]any }
	}](p, http.StatusOK, http.MethodGet, "/openapi.json", "")
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Info.Title == "" || doc.Info.Version == "" {
		t.Errorf("it is %q of %+v", doc.OpenAPI, doc.Info)
	}
	ids := map[string]bool{}
	for _, o := range []string{
		"POST /v1/batches", "GET /v1/batches", "GET /v1/batches/{id}", "POST /v1/batches/{id}/calls",
		"POST /v1/batches/{id}/close", "GET /v1/batches/{id}/results",
		"GET /v1/batches/{id}/events", "POST /v1/batches/{id}/cancel", "POST /v1/batches/{id}/calls/{index}/cancel",
		"POST /v1/sessions/{id}/interrupt",
		"GET /v1/approvals", "POST /v1/approvals/{id}", "GET /v1/blobs/{ref}", "POST /v1/stream/{provider}",
		"GET /v1/tools", "GET /v1/workers", "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json",
	} {
		method, path, _ := strings.Cut(o, " ")
		op, ok := doc.Paths[path][strings.ToLower(method)]
		if !ok || op.OperationID == "" || ids[op.OperationID] {
			t.Errorf("%s: there %t, with the id %q", o, ok, op.OperationID)
			continue
		}
		ids[op.OperationID] = true
		for _, part := range strings.Split(path, "/") {
			name, is := strings.CutPrefix(part, "{")
			found := false
			for _, param := range op.Parameters {
				found = found || param.In == "path" && "{"+param.Name+"}" == part
			}
			if is && !found {
				t.Errorf("%s does not describe %s", o, name)
			}
		}
		problem := op.Responses["default"].Content["application/problem+json"]
		if problem.Schema["$ref"] != "#/components/schemas/Problem" {
			t.Errorf("%s does not say how it fails: %+v", o, op.Responses["default"])
		}
		if _, invented := op.Responses["422"]; invented || len(op.Responses) < 2 {
			t.Errorf("%s has the responses %+v", o, op.Responses)
		}
	}
	if len(ids) != 20 {
		t.Errorf("%d operations", len(ids))
	}
	for _, path := range []string{batches, batches + "/{id}/calls", batches + "/{id}/cancel", "/v1/approvals/{id}"} {
		if b := doc.Paths[path]["post"].RequestBody; b == nil || b.Content["application/json"].Schema["$ref"] == nil {
			t.Errorf("%s has no body: %+v", path, b)
		}
	}
	// Every reference leads somewhere.
	raw := p.do(http.MethodGet, "/openapi.json", "").body
	var tree any
	must.OK(t, json.Unmarshal(raw, &tree))
	references := 0
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				references++
				if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); !ok ||
					doc.Components.Schemas[name] == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(tree)
	if references < 20 {
		t.Errorf("%d references", references)
	}
	// Every schema compiles, and what comes is what they promise.
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	must.OK(t, compiler.AddResource("openapi.json", tree))
	schemas := map[string]*jsonschema.Schema{}
	for name := range doc.Components.Schemas {
		var err error
		if schemas[name], err = compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	fits := func(name string, body []byte, good bool) {
		t.Helper()
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		must.OK(t, err)
		if err := schemas[name].Validate(v); (err == nil) != good {
			t.Errorf("%.300s as a %s: %v", body, name, err)
		}
	}
	fits("Submission", []byte(echoes("b", 2)), true)
	fits("Submission", []byte(`{"calls": [], "allow": []}`), false)
	fits("BatchView", p.do(http.MethodPost, batches, echoes("b", 2)).body, true)
	fits("BatchView", p.do(http.MethodPost, batches+"?wait=60",
		`{"calls": [{"tool": "echo"}, {"tool": "none"}, {"tool": "long"}]}`).body, true)
	fits("Page", p.do(http.MethodGet, batches, "").body, true)
	fits("Workers", p.do(http.MethodGet, "/v1/workers", "").body, true)
	fits("Approvals", p.do(http.MethodGet, "/v1/approvals", "").body, true)
	fits("Problem", p.do(http.MethodGet, batches+"/none", "").body, true)
	fits("Session", p.do(http.MethodGet, "/v1/sessions/s", "").body, true)
	for _, format := range []string{"anthropic", "openai", "openai-chat", "gemini", "mcp", "native"} {
		fits("Tools", p.do(http.MethodGet, "/v1/tools?format="+format, "").body, true)
	}
	for format, name := range map[string]string{"anthropic": "AnthropicReply", "gemini": "GeminiReply",
		"openai": "ProviderReply", "openai-chat": "ProviderReply"} {
		body := p.do(http.MethodPost, batches+"?wait=60&format="+format,
			`{"calls": [{"tool": "echo"}, {"tool": "none"}]}`).body
		fits(name, body, true)
		fits("ProviderReply", body, true)
		fits("BatchView", body, false)
	}
	for path, name := range map[string]string{"/b/results?progress=true": "ResultEventData",
		"/b/events?progress=true&end=true": "BatchEventData"} {
		told, _ := doc.Components.Schemas[name]["x-events"].(map[string]any)
		next, done := p.stream(batches+path, "Accept", "text/event-stream")
		got := all(next)
		done()
		if len(got) < 3 {
			t.Errorf("%s has the events %v", path, got)
		}
		for _, e := range got {
			about, _ := told[e.name].(map[string]any)
			ref, _ := about["$ref"].(string)
			data, ok := strings.CutPrefix(ref, "#/components/schemas/")
			if !ok {
				t.Fatalf("the document does not say what an event %q of %s carries", e.name, path)
			}
			fits(data, []byte(e.data), true)
			fits(name, []byte(e.data), true)
		}
	}
	fits("Problem", []byte(`{}`), false)
}

// TestNotReady: a server that cannot reach its system says so to whoever asks, and is alive.
func TestNotReady(t *testing.T) {
	p := start(t, func(c *api.Config) { c.Ready = func() error { return errors.New("not connected to NATS") } })
	if r := p.do(http.MethodGet, "/readyz", ""); r.status != http.StatusServiceUnavailable ||
		r.header.Get("Retry-After") == "" {
		t.Errorf("%s", r)
	}
	if r := p.do(http.MethodGet, "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("%s", r)
	}
}

// TestHeadersAreRead: a HEAD of a stream ends.
func TestHeadersAreRead(t *testing.T) {
	p := start(t, nil)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "wait"}]}`)
	res, err := http.DefaultClient.Do(p.request(http.MethodHead, batches+"/b/results", ""))
	must.OK(t, err)
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.Body.Close() != nil ||
		res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%d %v", res.StatusCode, err)
	}
}

// TestWhoMakesTokens: with an issuer of JWTs the server asks everybody, and whoever is refused is told where the issuer
// is named, which is answered to anybody.
func TestWhoMakesTokens(t *testing.T) {
	i, err := api.NewIssuer(api.IssuerConfig{URL: "https://127.0.0.1:1", Audience: "toolyard", Log: testenv.Log(t)})
	must.OK(t, err)
	p := start(t, func(cfg *api.Config) { cfg.Issuer, cfg.Loopback = i, false })
	for path, resource := range map[string]string{batches: "", "/mcp": "/mcp"} {
		r := p.do(http.MethodGet, path, "")
		at := p.url + "/.well-known/oauth-protected-resource" + resource
		if r.status != http.StatusUnauthorized || !strings.Contains(r.header.Get("WWW-Authenticate"),
			`resource_metadata="`+at+`"`) {
			t.Errorf("%s: %d, %v", path, r.status, r.header)
		}
		found := want[api.Resource](p, http.StatusOK, http.MethodGet, strings.TrimPrefix(at, p.url), "")
		if found.Resource != p.url+resource || len(found.Servers) != 1 || found.Servers[0] != "https://127.0.0.1:1" {
			t.Errorf("%s: %+v", path, found)
		}
	}
	if r := p.do(http.MethodGet, batches, "", "Authorization", "Bearer a.b.c"); r.status !=
		http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("a JWT while the issuer does not answer: %s", r)
	}
	if r := start(t, nil).do(http.MethodGet, "/.well-known/oauth-protected-resource", ""); r.status !=
		http.StatusNotFound {
		t.Errorf("without an issuer: %s", r)
	}
}

// TestRequestsThatMeanSomethingElse: what cannot be read, or only in part, is refused and not guessed.
func TestRequestsThatMeanSomethingElse(t *testing.T) {
	p := start(t, func(c *api.Config) {
		c.CheckOptions = func(o toolyard.Options) error {
			_, err := dispatcher.BatchRules(o)
			return err
		}
	})
	call := `"calls": [{"tool": "echo"}]`
	for _, c := range []struct {
		method, path, body, field, says string
		headers                         []string
	}{
		{http.MethodGet, batches + "?agent=%zz", "", "", "%zz", nil},
		{http.MethodPost, "/v1/sessions/s/interrupt?agent=%zz", "", "", "%zz", nil},
		{http.MethodPost, batches + "?open=tru%zz", `{` + call + `}`, "", "%zz", nil},
		{http.MethodPost, batches + "?wait=1&wait=2", `{` + call + `}`, "wait", "give it once", nil},
		{http.MethodGet, batches + "?limit=1&limit=2", "", "limit", "give it once", nil},
		{http.MethodPost, batches, `{"id": "bad", ` + call + `, "options": {"deny": ["echo("]}}`, "options.deny[0]", "", nil},
		{http.MethodPost, "/v1/stream/anthropic?deny=echo(", over, "options.deny[0]", "",
			[]string{"Content-Type", "text/event-stream"}},
		{http.MethodPost, batches, `{"openai-chat": {}}`, "openai-chat", `did you mean "openai_chat"`, nil},
		{http.MethodPost, batches, `{"role": "assistant", "content": []}`, "content", `"anthropic"`, nil},
		{http.MethodPost, batches, `{` + call + `}`, "Content-Encoding", "gzip", []string{"Content-Encoding", "gzip"}},
	} {
		r := p.do(c.method, c.path, c.body, c.headers...)
		var problem api.Problem
		if err := json.Unmarshal(r.body, &problem); err != nil {
			t.Fatalf("%s %s: %s", c.method, c.path, r)
		}
		if r.status/100 != 4 || problem.Field != c.field || !strings.Contains(problem.Detail, c.says) {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, r)
		}
	}
	if r := p.do(http.MethodGet, batches+"/bad", ""); r.status != http.StatusNotFound { // so its id can be used
		t.Errorf("a batch whose rule cannot be read: %s", r)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, `{"id": "b", `+call+`}`)
	for accept, kind := range map[string]string{
		"":                  "application/x-ndjson",
		"text/event-stream": "text/event-stream",
		"application/x-ndjson, text/event-stream;q=0.1": "application/x-ndjson",
		"text/event-stream;q=0, */*":                    "application/x-ndjson",
		"text/*":                                        "text/event-stream",
		"text/event-stream, application/x-ndjson;q=0.5": "text/event-stream",
	} {
		r := p.do(http.MethodGet, batches+"/b/events?follow=false", "", "Accept", accept)
		if got := r.header.Get("Content-Type"); !strings.HasPrefix(got, kind) {
			t.Errorf("Accept %q is answered with %q", accept, got)
		}
	}
}
