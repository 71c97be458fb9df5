//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// foldEvents reads what --events wrote, with the CloudEvents SDK, and folds it.
func foldEvents(t *testing.T, path string) batch.State {
	t.Helper()
	f, err := os.Open(path)
	must.OK(t, err)
	defer f.Close() // it was only read
	var s batch.State
	ids := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for n := uint64(1); lines.Scan(); n++ {
		var e event.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("line %d is no CloudEvent: %v\n%s", n, err, lines.Text())
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("line %d is no valid CloudEvent: %v", n, err)
		}
		if e.SpecVersion() != "1.0" || !strings.HasPrefix(e.Type(), "dev.toolyard.") || e.Time().IsZero() ||
			e.Extensions()["partitionkey"] == nil || ids[e.ID()] {
			t.Errorf("line %d has not the attributes that it should: %s", n, lines.Text())
		}
		ids[e.ID()] = true
		_, body, err := events.Decode(e)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		r := batch.Record{Seq: n, Time: e.Time(), Body: body}
		switch b := body.(type) {
		case events.Submitted:
			r.Chain = batch.ChainSubmission
		case events.Canceled:
			r.Chain = batch.ChainControl
		case events.Claimed, events.AttemptFailed, events.Finished:
			r.Chain = batch.ChainItem
			if r.Index, err = strconv.Atoi(e.Subject()[strings.LastIndexByte(e.Subject(), '/')+1:]); err != nil {
				t.Fatalf("line %d: the subject %q has no call: %v", n, e.Subject(), err)
			}
		case events.Reply:
			r.Chain, r.Index = batch.ChainReply, b.Results[0].Index
			if seq := e.Extensions()["sequence"]; seq != fmt.Sprintf("%08d", r.Index) {
				t.Errorf("line %d: a reply from call %d on has the sequence %v", n, r.Index, seq)
			}
		default:
			r.Chain = batch.ChainBatch
		}
		if err := s.Apply(r); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
	}
	must.OK(t, lines.Err())
	return s
}

// documentedBatch is the batch object, written from the text of the contract and not from the code.
type documentedBatch struct {
	ID        string             `json:"id"`
	Agent     string             `json:"agent"`
	Session   string             `json:"session"`
	Workspace string             `json:"workspace"`
	Status    string             `json:"status"`
	Surface   string             `json:"surface"`
	Groups    [][]int            `json:"groups"`
	Results   []documentedResult `json:"results"`
}

type documentedResult struct {
	Index         int               `json:"index"`
	CallID        string            `json:"call_id"`
	Tool          string            `json:"tool"`
	IsError       bool              `json:"is_error"`
	Code          string            `json:"code"`
	Output        string            `json:"output"`
	Error         string            `json:"error"`
	Retryable     bool              `json:"retryable"`
	RetryAfterMS  int64             `json:"retry_after_ms"`
	Class         string            `json:"concurrency_class"`
	WasConcurrent bool              `json:"was_concurrent"`
	DurationMS    float64           `json:"duration_ms"`
	ExecuteMS     float64           `json:"execute_ms"`
	QueueMS       float64           `json:"queue_ms"`
	ApprovalMS    float64           `json:"approval_wait_ms"`
	Attempts      int               `json:"attempts"`
	Worker        string            `json:"worker"`
	Truncated     bool              `json:"truncated"`
	Blob          string            `json:"blob"`
	Isolation     string            `json:"isolation"`
	Phases        []documentedPhase `json:"phases"`
	// An addition to the contract, for operators.
	Detail string `json:"detail"`
}

type documentedPhase struct {
	Phase   string  `json:"phase"`
	Outcome string  `json:"outcome"`
	MS      float64 `json:"ms"`
	// Additions to the contract.
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// additions may be left out when they are empty; everything else is always there.
var additions = []string{"detail", "code"}

// keys are the fields of an object in JSON.
func keys(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	must.OK(t, json.Unmarshal(raw, &m))
	return m
}

func TestJSONIsTheDocumentedObject(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "in.json": `{"agent":"agent-1","session":"s-1","workspace":"w-1","id":"b-1","calls":[
		{"id":"toolu_01","tool":"read_file","input":{"file_path":"a.txt"}},{"id":"toolu_02","tool":"glob","input":{"pattern":"*"}},
		{"id":"toolu_03","tool":"write_file","input":{"file_path":"b.txt","content":"x"}},{"id":"toolu_04","tool":"nope"}]}`})
	out := p.ok(nil, "run", "--json", "in.json")
	var v documentedBatch
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("the output is not one documented object: %v\n%s", err, out)
	}
	has := func(what string, have map[string]json.RawMessage, like any) {
		t.Helper()
		raw := must.JSON(t, like)
		for k := range keys(t, raw) {
			if have[k] == nil && !(slices.Contains(additions, k) && !(k == "code" && what == "a result")) {
				t.Errorf("%s has no field %q", what, k)
			} else if string(have[k]) == "null" {
				t.Errorf("%s has null in %q", what, k)
			}
		}
	}
	doc := keys(t, json.RawMessage(out))
	has("the batch", doc, documentedBatch{})
	var results []json.RawMessage
	must.OK(t, json.Unmarshal(doc["results"], &results))
	for _, raw := range results {
		r := keys(t, raw)
		has("a result", r, documentedResult{})
		var phases []json.RawMessage
		if err := json.Unmarshal(r["phases"], &phases); err != nil || len(phases) == 0 {
			t.Errorf("phases %s: %v", r["phases"], err)
		}
		for _, f := range phases {
			has("a phase", keys(t, f), documentedPhase{})
		}
	}
	if v.ID != "b-1" || v.Agent != "agent-1" || v.Session != "s-1" || v.Workspace != "w-1" || v.Status != "completed" ||
		len(v.Surface) != 64 {
		t.Errorf("the batch object: %+v", v)
	}
	if d := cmp.Diff([][]int{{0, 1}, {2}, {3}}, v.Groups); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	for i, want := range []struct {
		code, class string
		concurrent  bool
		attempts    int
	}{{"", "READ_ONLY", true, 1}, {"", "READ_ONLY", true, 1}, {"permission_denied", "WRITE_EXCLUSIVE", false, 0},
		{"unknown_tool", "UNSAFE", false, 0}} {
		r := v.Results[i]
		if r.Index != i || r.CallID != fmt.Sprintf("toolu_%02d", i+1) || r.Code != want.code || r.Class != want.class ||
			r.WasConcurrent != want.concurrent || r.Attempts != want.attempts {
			t.Errorf("result %d: %+v, want %+v", i, r, want)
		}
		if (r.Output != "") != (want.code == "") || (r.Error != "") != (want.code != "") ||
			r.IsError != (want.code != "") {
			t.Errorf("result %d: %+v", i, r)
		}
	}
}

// exampleFiles are the examples, and the files that they look at.
func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string]string{"README.md": "# Toolyard\n", "ARCHITECTURE.md": "# Architecture\n"}
	for _, pattern := range []string{"examples/*.json", "go.mod", "limits.go", "cmd/*/main.go"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			content := must.Read(t, name)
			rel, err := filepath.Rel(root, name)
			must.OK(t, err)
			files[filepath.ToSlash(rel)] = string(content)
		}
	}
	return files
}

// isolated stands in tables for how a command ends that the sandbox allows: well, where there is one.
const isolated toolyard.Code = "as commandCode says"

// commandCode is how a command ends here: an error only where the machine can isolate none.
func commandCode(t *testing.T) toolyard.Code {
	t.Helper()
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	if _, err := box.Probe(t.Context()); err != nil {
		t.Log(err)
		return toolyard.SetupRequired
	}
	return toolyard.OK
}

// exampleCodes are how the calls of each example end, in default mode.
var exampleCodes = map[string][]toolyard.Code{
	"explore.json": {"", "", "", isolated, isolated, toolyard.PermissionDenied, toolyard.InvalidArguments,
		toolyard.InvalidArguments, toolyard.UnknownTool, ""},
	"escape.json": {toolyard.ExecutionFailed, toolyard.PermissionDenied, toolyard.PermissionDenied,
		toolyard.PermissionDenied, toolyard.PermissionDenied,
		toolyard.PermissionDenied, toolyard.ExecutionFailed, toolyard.PermissionDenied, toolyard.PermissionDenied,
		toolyard.PermissionDenied},
	"anthropic-message.json":      {"", "", toolyard.SchemaValidationFailed, ""},
	"openai-response.json":        {"", "", toolyard.SchemaValidationFailed, ""},
	"openai-chat-completion.json": {"", toolyard.SchemaValidationFailed, ""},
	"gemini-response.json":        {"", "", toolyard.SchemaValidationFailed, ""},
	"script.json":                 {toolyard.UnknownTool}, // it needs --run-code
	// its tools come with --tools examples/tools.yaml
	"tools.json": {toolyard.UnknownTool, toolyard.UnknownTool, toolyard.UnknownTool},
}

func TestExamples(t *testing.T) {
	t.Parallel()
	files := exampleFiles(t)
	p := newPlace(t, files)
	seen := 0
	for name := range files {
		example, ok := strings.CutPrefix(name, "examples/")
		if !ok {
			continue
		}
		seen++
		want, ok := exampleCodes[example]
		for i, code := range want {
			if command := commandCode(t); code == isolated || example == "escape.json" && command != toolyard.OK {
				want[i] = command
			}
		}
		if !ok {
			t.Errorf("%s is not in the table", example)
			continue
		}
		var got []toolyard.Code
		for _, r := range p.view(name).Results {
			got = append(got, r.Code)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", example, d)
		}
	}
	if seen != len(exampleCodes) {
		t.Errorf("%d examples are there, the table has %d", seen, len(exampleCodes))
	}
	if out := p.ok(nil, "run", "examples/gemini-response.json"); !strings.Contains(out,
		"group 1 · 2 calls together\n") || !strings.HasSuffix(out, "completed: 3 results, 1 error\n") {
		t.Errorf("for a person:\n%s", out)
	}
	// The first command of a reader: edits are allowed, so that the notes are written and read.
	v := p.view("--permission-mode", "accept_edits", "examples/explore.json")
	for i, code := range []toolyard.Code{"", "", "", commandCode(t), commandCode(t), "", "", "", toolyard.UnknownTool,
		""} {
		if v.Results[i].Code != code {
			t.Errorf("explore.json, call %d: %q %s", i, v.Results[i].Code, v.Results[i].Error)
		}
	}
	if d := cmp.Diff([][]int{{0, 1, 2, 3, 4}, {5}, {6, 7}, {8}, {9}}, v.Groups); d != "" {
		t.Errorf("explore.json, groups (-want +got):\n%s", d)
	}
	if !strings.Contains(v.Results[7].Output, "TODO") {
		t.Errorf("what was written was not found: %s", v.Results[7].Output)
	}
}

// TestEscapes: a model that tries to get out is told each time what held it, and the next call runs as if nothing had
// been.
func TestEscapes(t *testing.T) {
	t.Parallel()
	p := newPlace(t, exampleFiles(t))
	v := p.view("--permission-mode", "bypass", "examples/escape.json")
	for i, want := range []struct {
		code toolyard.Code
		says string
	}{
		{toolyard.ExecutionFailed, "/etc/shadow: No such file"}, {toolyard.ExecutionFailed, "Network is unreachable"},
		{toolyard.ExecutionFailed, "Connection refused"},
		{toolyard.ExecutionFailed, "no git repository"}, {toolyard.SandboxViolation, ".vscode"},
		{toolyard.Timeout, "nothing that it started runs on"},
		{toolyard.ExecutionFailed, "more than 512 MiB of memory"},
		{toolyard.ExecutionFailed, "wrote more than 1048576 bytes"}, {toolyard.Timeout, "after 1s"},
		{toolyard.OK, "nobody writes any more"},
	} {
		if commandCode(t) != toolyard.OK {
			want.code, want.says = toolyard.SetupRequired, "cannot isolate"
		}
		r := v.Results[i]
		if r.Code != want.code || !strings.Contains(r.Error+r.Output, want.says) {
			t.Errorf("%s: %q %s%s", r.CallID, r.Code, r.Error, r.Output)
		}
		if want.code != toolyard.SetupRequired && r.Isolation != sandbox.Native && r.Isolation != sandbox.Bwrap {
			t.Errorf("%s: isolation %q", r.CallID, r.Isolation)
		}
	}
}

// TestFormats: what goes back to a provider answers its own calls, each once, by the provider's id, in order.
func TestFormats(t *testing.T) {
	t.Parallel()
	p := newPlace(t, exampleFiles(t))
	for _, c := range []struct {
		example, format string
		read            func(t *testing.T, out []byte) (ids []string, failed []bool)
		want            []string
	}{
		{"anthropic-message.json", "anthropic", func(t *testing.T, out []byte) (ids []string, failed []bool) {
			var m struct {
				Role    string
				Content []struct {
					Type      string
					ToolUseID string `json:"tool_use_id"`
					IsError   bool   `json:"is_error"`
					Content   json.RawMessage
				}
			}
			decode(t, out, &m)
			for _, b := range m.Content {
				if m.Role != "user" || b.Type != "tool_result" || len(b.Content) < 10 {
					t.Errorf("%s block %s in a message of %s", b.Type, b.Content, m.Role)
				}
				ids, failed = append(ids, b.ToolUseID), append(failed, b.IsError)
			}
			return ids, failed
		}, []string{"toolu_01A7pVbTsq5dKxRnYw3CmJ8e", "toolu_01BvN9hXqGz4LwUe6TrS2kPd",
			"toolu_01CrM3yEfJ8uQaHt5WzD7nVx", "toolu_01DkT6sLcB2mPgXi9FvY4oRj"}},
		{"openai-response.json", "openai", func(t *testing.T, out []byte) (ids []string, failed []bool) {
			var items []struct {
				Type, Output string
				CallID       string `json:"call_id"`
			}
			decode(t, out, &items)
			for _, i := range items {
				if i.Type != "function_call_output" || i.Output == "" {
					t.Errorf("item %+v", i)
				}
				ids, failed = append(ids, i.CallID), append(failed, strings.Contains(i.Output, "InputValidationError"))
			}
			return ids, failed
		}, []string{"call_7GkQx2LmWnRt5YvBz8HdCsPe", "call_Jw4ZpVf9TqKs3NyXb6MgUaRh", "call_Dc8RtEo1LiFu6QwHk3SmVxNz",
			"call_Ub5XnGy7PjCv2ZaOd9TrLeKw"}},
		{"openai-chat-completion.json", "openai-chat", func(t *testing.T, out []byte) (ids []string, failed []bool) {
			var messages []struct {
				Role, Content string
				ToolCallID    string `json:"tool_call_id"`
			}
			decode(t, out, &messages)
			for _, m := range messages {
				if m.Role != "tool" || m.Content == "" {
					t.Errorf("message %+v", m)
				}
				ids, failed = append(ids, m.ToolCallID),
					append(failed, strings.Contains(m.Content, "InputValidationError"))
			}
			return ids, failed
		}, []string{"call_v5KdRmXw8ZtHqPyNc3LgSbJa", "call_f2TnQeYo6UiVrBkMx9WzDhCl", "call_p7GsAjLu4FwEtXdOv1RyKnZm"}},
		// these calls have no ids: the order pairs them
		{"gemini-response.json", "gemini", func(t *testing.T, out []byte) (ids []string, failed []bool) {
			var m struct {
				Role  string
				Parts []struct {
					FunctionResponse struct {
						ID, Name string
						Response map[string]string
					}
				}
			}
			decode(t, out, &m)
			for _, part := range m.Parts {
				r := part.FunctionResponse
				if m.Role != "user" || r.ID != "" || len(r.Response) != 1 {
					t.Errorf("part %+v in a content of %s", r, m.Role)
				}
				ids, failed = append(ids, r.Name), append(failed, r.Response["error"] != "")
			}
			return ids, failed
		}, []string{"read_file", "grep", "read_file", "glob"}},
	} {
		out := p.ok(nil, "run", "--format", c.format, "examples/"+c.example)
		ids, failed := c.read(t, []byte(out))
		if d := cmp.Diff(c.want, ids); d != "" {
			t.Errorf("%s: the answers are of other calls (-want +got):\n%s", c.example, d)
		}
		for i, code := range exampleCodes[c.example] {
			if failed[i] != (code != "") {
				t.Errorf("%s: call %d: failed is %t\n%s", c.example, i, failed[i], out)
			}
		}
	}
}

func decode(t *testing.T, data []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

// sameData compares outputs as data by what they say: a printed document has them indented, and escapes what a screen
// hides.
var sameData = cmp.Transformer("JSON", func(raw json.RawMessage) (v any) {
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return v
})

func TestEventsFoldToTheSame(t *testing.T) {
	t.Parallel()
	p := newPlace(t, exampleFiles(t))
	path := filepath.Join(t.TempDir(), "events.jsonl")
	v := p.view("--events", path, "--permission-mode", "accept_edits", "examples/explore.json")
	s := foldEvents(t, path)
	if d := cmp.Diff(v, s.View(), sameData); d != "" {
		t.Errorf("the fold differs from the batch object (-object +fold):\n%s", d)
	}
	if !s.Completed || s.Replied != len(v.Results) || s.Takeovers != 0 {
		t.Errorf("state %+v", s)
	}
	// A second run's events take the place of the first's.
	w := p.view("--events", path, "examples/anthropic-message.json")
	if s := foldEvents(t, path); s.Key.ID != w.ID {
		t.Errorf("the file has the events of %s", s.Key)
	}
}

func TestPartitionStrategies(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "in.json": `{"calls":[{"id":"r1","tool":"read_file","input":{"file_path":"a.txt"}},
		{"id":"w1","tool":"write_file","input":{"file_path":"b.txt","content":"two"}},{"id":"r2","tool":"read_file","input":{"file_path":"b.txt"}},
		{"id":"bad","tool":"read_file","input":{"file_path":"missing.txt"}},{"id":"w2","tool":"write_file","input":{"file_path":"c.txt","content":"three"}},
		{"id":"r3","tool":"read_file","input":{"file_path":"a.txt"}}]}`})
	const invalid, skipped = toolyard.InvalidArguments, toolyard.Skipped
	for strategy, want := range map[string]struct {
		groups [][]int
		codes  []toolyard.Code
	}{
		"consecutive":  {[][]int{{0}, {1}, {2, 3}, {4}, {5}}, []toolyard.Code{"", "", "", invalid, "", ""}},
		"safe_first":   {[][]int{{0, 2, 3, 5}, {1}, {4}}, []toolyard.Code{"", "", invalid, invalid, "", ""}},
		"sequential":   {[][]int{{0}, {1}, {2}, {3}, {4}, {5}}, []toolyard.Code{"", "", "", invalid, "", ""}},
		"ordered_halt": {[][]int{{0}, {1}, {2}, {3}, {4}, {5}}, []toolyard.Code{"", "", "", invalid, skipped, skipped}},
	} {
		must.OK(t, os.RemoveAll(filepath.Join(p.dir, "b.txt")))
		v := p.view("--permission-mode", "accept_edits", "--partition", strategy, "in.json")
		var codes []toolyard.Code
		for i, r := range v.Results {
			codes = append(codes, r.Code)
			if r.Index != i {
				t.Errorf("%q: in place %d is the result of call %d", strategy, i, r.Index)
			}
		}
		if d := cmp.Diff(want.groups, v.Groups) + cmp.Diff(want.codes, codes); d != "" {
			t.Errorf("%q: groups, codes (-want +got):\n%s", strategy, d)
		}
	}
}

// permissionCalls need each another permission.
const permissionCalls = `{"calls":[{"id":"read","tool":"read_file","input":{"file_path":"a.txt"}},{"id":"secret","tool":"read_file","input":{"file_path":"secret/key"}},
	{"id":"write","tool":"write_file","input":{"file_path":"docs/out.txt","content":"x"}},{"id":"hook","tool":"write_file","input":{"file_path":".git/hooks/pre-commit","content":"x"}},
	{"id":"fetch","tool":"web_fetch","input":{"url":"http://127.0.0.1:9/"}},{"id":"bash","tool":"bash","input":{"command":"ls"}}]}`

func TestPermissions(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"a.txt": "one\n", "secret/key": "hidden", "in.json": permissionCalls})
	const denied, blocked = toolyard.PermissionDenied, toolyard.BlockedTool
	setup := commandCode(t) // of a command that only reads
	// web_fetch finds nobody on the discard port, when it may try at all: which is enough to see here.
	const tried = toolyard.DependencyUnavailable
	for _, c := range []struct {
		args  []string
		codes []toolyard.Code
	}{
		{nil, []toolyard.Code{"", "", denied, denied, denied, setup}},
		{[]string{"--permission-mode", "accept_edits"}, []toolyard.Code{"", "", "", denied, denied, setup}},
		{[]string{"--permission-mode", "plan", "--allow", "write_file"},
			[]toolyard.Code{"", "", denied, denied, denied, setup}},
		{[]string{"--permission-mode", "dont_ask", "--allow", "write_file(docs/**)", "--allow",
			"web_fetch(domain:example.com)"}, []toolyard.Code{"", "", "", denied, denied, setup}},
		// .git is protected
		{[]string{"--permission-mode", "bypass"}, []toolyard.Code{"", "", "", denied, tried, setup}},
		{[]string{"--permission-mode", "bypass", "--allow", "write_file(.git/**)"},
			[]toolyard.Code{"", "", "", "", tried, setup}},
		{[]string{"--permission-mode", "bypass", "--deny", "write_file", "--ask", "web_fetch"},
			[]toolyard.Code{"", "", blocked, blocked, denied, setup}},
		{[]string{"--deny", "read_file"}, []toolyard.Code{blocked, blocked, denied, denied, denied, setup}},
		{[]string{"--deny", "read_file(secret/**)", "--allow", "read_file"},
			[]toolyard.Code{"", denied, denied, denied, denied, setup}},
		{[]string{"--ask", "read_file"}, []toolyard.Code{denied, denied, denied, denied, denied, setup}},
		{[]string{"--allow", "web_fetch(domain:127.0.0.1)"}, []toolyard.Code{"", "", denied, denied, tried, setup}},
	} {
		v := p.view(append(c.args, "--web-allow-private", "127.0.0.1", "in.json")...)
		for i, r := range v.Results {
			if r.Code != c.codes[i] {
				t.Errorf("%q: %s ended as %q, want %q: %s%s", c.args, r.CallID, r.Code, c.codes[i], r.Error, r.Output)
			}
			if r.Code == denied && (r.Retryable || r.Attempts != 0 || len(r.Error) < 80) {
				t.Errorf("%q: %s is denied with %+v", c.args, r.CallID, r)
			}
			if strings.Contains(r.Error, "hidden") || r.Code != "" && r.Output != "" {
				t.Errorf("%q: %s tells %q", c.args, r.CallID, r.Error+r.Output)
			}
		}
	}
	r := p.view("in.json").Results
	says := map[int][]string{2: {"nobody could be asked", "ask the user"}}
	if setup != toolyard.OK {
		says[5] = []string{"operator", "read_file, glob, grep"}
	}
	for i, want := range says {
		for _, w := range want {
			if !strings.Contains(r[i].Error, w) {
				t.Errorf("%s does not tell the model %q: %s", r[i].CallID, w, r[i].Error)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, ".git", "hooks", "pre-commit")); err != nil {
		t.Errorf("who names the place does not write: %v", err)
	}
}

// TestOffloaded: an output past its limit is a preview with a reference, and the whole can be read by its agent alone.
func TestOffloaded(t *testing.T) {
	t.Parallel()
	var big strings.Builder
	for n := range 900 {
		fmt.Fprintf(&big, "line %03d é %s\n", n, strings.Repeat("x", 90))
	}
	p := newPlace(t, map[string]string{"big.txt": big.String(),
		"in.json": `{"agent":"first","calls":[{"tool":"grep","input":{"pattern":"line","path":"big.txt"}}]}`})
	if r := p.view("in.json").Results[0]; r.IsError || !r.Truncated || r.Blob == "" {
		t.Errorf("run alone: %q, truncated %t, blob %q", r.Code, r.Truncated, r.Blob)
	}
	d := dispatcher(t, "--with-worker", "--workspace", "default="+p.dir)
	submit := func(b toolyard.Batch) toolyard.Result {
		t.Helper()
		return viewOf(t, p.ok(nil, "submit", "--json", "--nats", d.says["nats"], batchFile(t, b))).Results[0]
	}
	first := viewOf(t, p.ok(nil, "submit", "--json", "--nats", d.says["nats"], "in.json")).Results[0]
	if first.IsError || !first.Truncated || first.Blob == "" || len(first.Output) > 20_000 ||
		!strings.Contains(first.Output, first.Blob) || !strings.Contains(first.Output, "read_result") {
		t.Fatalf("the preview: %+v", first)
	}
	read := func(agent toolyard.Agent, offset int) toolyard.Result {
		return submit(toolyard.Batch{Agent: agent, Calls: []toolyard.Call{{Tool: "read_result",
			Input: input(map[string]any{"ref": first.Blob, "offset": offset, "limit": 40_000})}}})
	}
	var whole strings.Builder
	for offset := 0; ; offset += 40_000 {
		r := read("first", offset)
		if r.IsError || r.Truncated {
			t.Fatalf("read_result from %d on: %+v", offset, r)
		}
		at := strings.LastIndex(r.Output, "\n[characters ")
		if at < 0 {
			t.Fatalf("a page does not say where it ends: %.100s", r.Output)
		}
		whole.WriteString(r.Output[:at])
		if strings.HasSuffix(r.Output, "it ends here]") {
			break
		}
	}
	want := strings.Split(strings.TrimSuffix(big.String(), "\n"), "\n")
	got := strings.Split(strings.TrimSuffix(whole.String(), "\n"), "\n")
	for n := range want {
		if line := fmt.Sprintf("big.txt:%d:%s", n+1, want[n]); n >= len(got) || got[n] != line {
			t.Fatalf("line %d of %d read back is not %q", n, len(got), line)
		}
	}
	if r := read("second", 0); r.Code != toolyard.InvalidArguments || strings.Contains(r.Error+r.Output, "line 0") {
		t.Errorf("another agent reads the result: %+v", r)
	}
}

// planned is the plan in a file of events.
func planned(t *testing.T, path string) events.Planned {
	t.Helper()
	s := foldEvents(t, path)
	return *s.Plan
}

func TestSettingsPrecedence(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{
		"a.txt":      "one\n",
		"in.json":    `{"calls":[{"tool":"read_file","input":{"file_path":"a.txt"}}],"options":{"max_concurrency":2,"partition":"sequential"}}`,
		"plain.json": fine, "settings.yaml": "max-concurrency: 3\npartition: safe_first\ndeny:\n  - " +
			"read_file\nread-slots: 2\nnats: nats://127.0.0.1:1\n",
	})
	path := filepath.Join(t.TempDir(), "events.jsonl")
	config := []string{"--config", "settings.yaml"}
	for _, c := range []struct {
		name       string
		env, args  []string
		concurrent int
		partition  toolyard.Strategy
		code       toolyard.Code
	}{
		{"the file's own", nil, []string{"in.json"}, 2, toolyard.Sequential, ""},
		{"settings over the file's own", nil, append(config, "in.json"), 3, toolyard.SafeFirst, toolyard.BlockedTool},
		{"settings named in the environment", []string{"TOOLYARD_CONFIG=settings.yaml"}, []string{"plain.json"}, 3,
			toolyard.SafeFirst, toolyard.BlockedTool},
		{"the flag over the environment for the settings", []string{"TOOLYARD_CONFIG=missing.yaml"},
			append(config, "plain.json"), 3, toolyard.SafeFirst, toolyard.BlockedTool},
		{"environment over settings", []string{"TOOLYARD_MAX_CONCURRENCY=5", "TOOLYARD_DENY=grep\nglob"},
			append(config, "plain.json"), 5, toolyard.SafeFirst, ""},
		{"flag over all", []string{"TOOLYARD_MAX_CONCURRENCY=5", "TOOLYARD_PARTITION=ordered_halt"},
			append(config, "--max-concurrency", "7", "--deny", "grep", "plain.json"), 7, toolyard.OrderedHalt, ""},
		{"empty list in the environment", []string{"TOOLYARD_DENY="}, append(config, "plain.json"), 3,
			toolyard.SafeFirst, ""},
	} {
		v := viewOf(t, p.ok(c.env, append([]string{"run", "--json", "--events", path}, c.args...)...))
		plan := planned(t, path)
		if plan.MaxConcurrency != c.concurrent || plan.Partition != c.partition || v.Results[0].Code != c.code {
			t.Errorf("%s: max_concurrency %d, %s, %q; want %d, %s, %q", c.name, plan.MaxConcurrency, plan.Partition,
				v.Results[0].Code, c.concurrent, c.partition, c.code)
		}
	}
}

// TestServedCap: a served system's cap comes from its own environment, and holds for batches that name none.
func TestServedCap(t *testing.T) {
	t.Setenv("TOOLYARD_MAX_CONCURRENCY", "4")
	p := newPlace(t, map[string]string{"a.txt": "one\n", "plain.json": fine, "in.json": fine[:len(fine)-1] +
		`,"options":{"max_concurrency":2}}`})
	path := filepath.Join(t.TempDir(), "events.jsonl")
	d := dispatcher(t, "--with-worker", "--workspace", "default="+p.dir)
	for file, want := range map[string]int{"plain.json": 4, "in.json": 2} {
		p.ok(nil, "submit", "--nats", d.says["nats"], "--events", path, file)
		if got := planned(t, path).MaxConcurrency; got != want {
			t.Errorf("%s on a served system: max_concurrency %d, want %d", file, got, want)
		}
	}
}
