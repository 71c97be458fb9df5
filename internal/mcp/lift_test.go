package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// onCall has questions say that they came on a call's response.
func onCall(call string) func([]byte) []byte {
	return func(message []byte) []byte { return LiftQuestion(message, call) }
}

func TestWhatIsSaidOfTasksIsCarried(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func([]byte) []byte
		in, want string
	}{
		{"a call as a task", LiftRequest,
			`{"id":1,"method":"tools/call","params":{"name":"a","arguments":{"task":1},"task":{"ttl":5}}}`,
			`{"id":1,"method":"tools/call","params":{"name":"a","arguments":{"task":1},"_meta":{"dev.toolyard/task":{"ttl":5}}}}`},
		{"a call with more", LiftRequest,
			`{"method":"tools/call","params":{"_meta":{"progressToken":7},"task":{}}}`,
			`{"method":"tools/call","params":{"_meta":{"progressToken":7,"dev.toolyard/task":{}}}}`},
		{"a listener", LiftRequest,
			`{"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"taskIds":["a"]}}}`,
			`{"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"dev.toolyard/task-ids":["a"]}}}`},
		{"another method", LiftRequest, `{"method":"ping","params":{"task":{}}}`, `{"method":"ping","params":{"task":{}}}`},
		{"a _meta that is none", LiftRequest, `{"method":"tools/call","params":{"_meta":7,"task":{}}}`,
			`{"method":"tools/call","params":{"_meta":7,"task":{}}}`},
		{"a batch", LiftRequest, `[{"method":"tools/call","params":{"task":{}}}]`,
			`[{"method":"tools/call","params":{"task":{}}}]`},
		{"no message", LiftRequest, `"task"`, `"task"`},
		{"a call on its way out", LowerRequest,
			`{"method":"tools/call","params":{"name":"a","_meta":{"dev.toolyard/task":{"ttl":5},"x":1}}}`,
			`{"method":"tools/call","params":{"name":"a","task":{"ttl":5},"_meta":{"x":1}}}`},
		{"what a model says of tasks", LowerRequest,
			`{"method":"tools/call","params":{"arguments":{"_meta":{"dev.toolyard/task":1}}}}`,
			`{"method":"tools/call","params":{"arguments":{"_meta":{"dev.toolyard/task":1}}}}`},
		{"a task of the older revision", LiftResponse, `{"id":1,"result":{"task":{"taskId":"a"}}}`,
			`{"id":1,"result":{"content":[],"_meta":{"dev.toolyard/task":{"taskId":"a"}}}}`},
		{"a task of the newer revision", LiftResponse, `{"id":1,"result":{"resultType":"task","taskId":"a"}}`,
			`{"id":1,"result":{"content":[],"_meta":{"dev.toolyard/task":{"resultType":"task","taskId":"a"}}}}`},
		{"a result that speaks of a task", LiftResponse, `{"result":{"content":[],"task":{"taskId":"a"}}}`,
			`{"result":{"content":[],"task":{"taskId":"a"}}}`},
		{"a list of tools", LiftResponse,
			`{"result":{"tools":[{"name":"a","execution":{"taskSupport":"required"}},{"name":"b"},7]}}`,
			`{"result":{"tools":[{"name":"a","execution":{"taskSupport":"required"},"_meta":{"dev.toolyard/execution":{"taskSupport":"required"}}},{"name":"b"},7]}}`},
		{"a handshake", LiftResponse, `{"result":{"capabilities":{"tools":{},"tasks":{"list":{}}}}}`,
			`{"result":{"capabilities":{"tools":{},"tasks":{"list":{}},"experimental":{"dev.toolyard/tasks":{"list":{}}}}}}`},
		{"a result with an id of 64 bits", LiftResponse,
			`{"id":1,"result":{"structuredContent":{"n":9007199254740993},"_meta":{"x":1}}}`,
			`{"id":1,"result":{"structuredContent":{},"_meta":{"x":1,"dev.toolyard/structured":"{\"n\":9007199254740993}"}}}`},
		{"a result with digits in a text", LiftResponse, `{"result":{"structuredContent":{"n":"9007199254740993\"","m":1.5}}}`,
			`{"result":{"structuredContent":{"n":"9007199254740993\"","m":1.5}}}`},
		{"an answer with an id of 64 bits", LiftRequest,
			`{"id":"q","result":{"action":"accept","content":{"n":9007199254740993},"_meta":{"x":1}}}`,
			`{"id":"q","result":{"action":"accept","content":{"n":9007199254740993},"_meta":{"x":1,"dev.toolyard/content":"{\"n\":9007199254740993}"}}}`},
		{"an answer that loses nothing", LiftRequest, `{"id":"q","result":{"action":"accept","content":{"n":7}}}`,
			`{"id":"q","result":{"action":"accept","content":{"n":7}}}`},
		{"a call that comes again", LiftRequest,
			`{"method":"tools/call","params":{"task":{},"inputResponses":{"a":{"action":"accept","content":{"n":9007199254740993}},"b":7}}}`,
			`{"method":"tools/call","params":{"inputResponses":{"a":{"action":"accept","content":{"n":9007199254740993},"_meta":{"dev.toolyard/content":"{\"n\":9007199254740993}"}},"b":7},"_meta":{"dev.toolyard/task":{}}}}`},
		{"a call whose arguments look like an answer", LiftRequest,
			`{"method":"tools/call","params":{"arguments":{"action":"accept","content":{"n":9007199254740993}}}}`,
			`{"method":"tools/call","params":{"arguments":{"action":"accept","content":{"n":9007199254740993}}}}`},
		{"a question on a call's response", onCall("7"),
			`{"id":"q","method":"elicitation/create","params":{"message":"m"}}`,
			`{"id":"q","method":"elicitation/create","params":{"message":"m","_meta":{"dev.toolyard/call":"7"}}}`},
		{"a question that names a call itself", onCall(""),
			`{"method":"elicitation/create","params":{"_meta":{"dev.toolyard/call":"7","x":1}}}`,
			`{"method":"elicitation/create","params":{"_meta":{"dev.toolyard/call":"","x":1}}}`},
		{"a result that speaks of a question", onCall("7"), `{"result":{"text":"elicitation/create"},"params":{}}`,
			`{"result":{"text":"elicitation/create"},"params":{}}`},
		{"a question without parameters", onCall("7"), `{"method":"elicitation/create"}`,
			`{"method":"elicitation/create"}`},
		{"a notification", LowerNotification,
			`{"method":"notifications/progress","params":{"_meta":{"dev.toolyard/notification":{"method":"m","params":{"a":1}}}}}`,
			`{"method":"m","params":{"a":1}}`},
		{"a result with the words of one", LowerNotification,
			`{"id":1,"result":{"_meta":{"dev.toolyard/notification":{"method":"m","params":{}}}}}`,
			`{"id":1,"result":{"_meta":{"dev.toolyard/notification":{"method":"m","params":{}}}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want any
			out := tt.change([]byte(tt.in))
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			must.OK(t, json.Unmarshal([]byte(tt.want), &want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("got %s\n%s", out, diff)
			}
		})
	}
}

// TestLines: each line is changed, whatever pieces it comes in, and one that is too long passes as it is.
func TestLines(t *testing.T) {
	upper := func(line []byte) []byte { return append([]byte("+"), bytes.ToUpper(line)...) }
	long := strings.Repeat("x", 90_000)
	for in, want := range map[string]string{
		"":                      "",
		"a\nb\r\nc":             "+A\n+B\r\n+C",
		"\n\n":                  "+\n+\n",
		"a\n" + long + "\nb\n":  "+A\n" + long + "\n+B\n",
		long:                    long,
		strings.Repeat("y", 99): "+" + strings.Repeat("Y", 99),
	} {
		for name, from := range map[string]io.Reader{"whole": strings.NewReader(in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(in))} {
			got, err := io.ReadAll(Lines(io.NopCloser(from), 40_000, upper))
			if err != nil || string(got) != want {
				t.Errorf("%s: %.40q becomes %.40q (%v), want %.40q", name, in, got, err, want)
			}
		}
	}
	broken := iotest.TimeoutReader(strings.NewReader("a\nb"))
	if _, err := io.ReadAll(Lines(io.NopCloser(iotest.OneByteReader(broken)), 10, upper)); err == nil {
		t.Error("a stream that breaks ends well")
	}
	events := InEvents(func([]byte) []byte { return []byte("{}") })
	for in, want := range map[string]string{"data: 1": "data: {}", "data:1": "data: {}", "id: 1": "id: 1", "": ""} {
		if got := events([]byte(in)); string(got) != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	got, err := io.ReadAll(Whole(io.NopCloser(strings.NewReader("a\nb")), upper))
	if err != nil || string(got) != "+A\nB" {
		t.Errorf("a whole becomes %q (%v)", got, err)
	}
}

// FuzzLift: whatever a peer sends stays a message if it was one, and what is moved away comes back.
func FuzzLift(f *testing.F) {
	f.Add([]byte(`{"method":"tools/call","params":{"name":"a","task":{"ttl":5},"_meta":{}}}`))
	f.Add([]byte(`{"method":"subscriptions/listen","params":{"notifications":{"taskIds":["a"]}}}`))
	f.Add([]byte(`{"result":{"tools":[{"execution":{"taskSupport":"optional"}}],"capabilities":{"tasks":{}}}}`))
	f.Add([]byte(`{"result":{"resultType":"task","taskId":"a"}}`))
	f.Add([]byte(`{"method":"notifications/progress","params":{"_meta":{"dev.toolyard/notification":{"method":"m","params":{}}}}}`))
	f.Add([]byte(`[{"task"`))
	f.Fuzz(func(t *testing.T, in []byte) {
		was := bytes.Clone(in)
		for name, change := range map[string]func([]byte) []byte{"LiftRequest": LiftRequest,
			"LowerRequest": LowerRequest, "LiftResponse": LiftResponse, "LowerNotification": LowerNotification} {
			out := change(in)
			if json.Valid(in) != json.Valid(out) && !bytes.Equal(in, out) {
				t.Errorf("%s makes %q of %q", name, out, in)
			}
			if !bytes.Equal(was, in) {
				t.Fatalf("%s changes what it is given", name)
			}
		}
		before := objectOf(in)
		if before.text("method") != "tools/call" || objectOf(before["params"])["task"] == nil {
			return
		}
		if objectOf(objectOf(LowerRequest(LiftRequest(in)))["params"])["task"] == nil {
			t.Errorf("the task of %q is lost", in)
		}
	})
}

func TestTasksAreRead(t *testing.T) {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, version := range []string{Session2025, Alone2026} {
		for _, task := range []Task{
			{ID: "a", Status: Working, Created: at, Updated: at.Add(time.Second), TTL: time.Minute, Poll: time.Second},
			{ID: "a", Status: Failed, Message: "why", Created: at, Updated: at},
		} {
			data := must.JSON(t, task.Encode(version))
			got, err := DecodeTask(data, version)
			if diff := cmp.Diff(task, got); err != nil || diff != "" {
				t.Errorf("%s: %s is read as something else (%v)\n%s", version, data, err, diff)
			}
		}
	}
	for _, bad := range []string{`{}`, `7`, `{"taskId":"a"}`, `{"taskId":"a","status":"odd"}`, `{"taskId":1,"status":"working"}`,
		`{"taskId":"` + strings.Repeat("a", MaxTaskIDBytes+1) + `","status":"working"}`} {
		if _, err := DecodeTask([]byte(bad), Alone2026); err == nil {
			t.Errorf("%.60s is taken", bad)
		}
	}
	for ms, want := range map[float64]time.Duration{0: 0, -1: 0, math.NaN(): 0, 1.5: 1500 * time.Microsecond,
		1e300: math.MaxInt64, math.Inf(1): math.MaxInt64} {
		if got := Milliseconds(ms); got != want {
			t.Errorf("%v ms are %s, want %s", ms, got, want)
		}
	}
}
