package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/quota"
	"github.com/toolyard/toolyard/internal/submission"
)

// TestDescribedBodies: the fields that the document promises are those that the decoders take.
func TestDescribedBodies(t *testing.T) {
	names := func(v any) (out []string) {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
		slices.Sort(out)
		return out
	}
	forms := []string{"anthropic", "gemini", "openai", "openai_chat"}
	if got, want := names(Submission{}), append(append([]string{}, forms...),
		names(toolyard.Batch{})...); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("a submission is described with %v, and read with %v", got, want)
	}
	if got, want := names(MoreCalls{}), append([]string{"calls"}, forms...); !slices.Equal(got,
		slices.Sorted(slices.Values(want))) {
		t.Errorf("more calls are described with %v", got)
	}
	if got, want := names(BatchOptions{}), names(toolyard.Options{}); !slices.Equal(got, want) {
		t.Errorf("options are described with %v, and read with %v", got, want)
	}
	if got, want := names(Call{}), names(toolyard.Call{}); !slices.Equal(got, want) {
		t.Errorf("a call is described with %v, and read with %v", got, want)
	}
	if _, err := decodeDecision([]byte(`{"decision": "allow", "reason": "r", "input": {}, "input_sha256": "00", "remember": "session"}`)); err != nil || len(names(Decision{})) != 5 {
		t.Errorf("a decision is described with %v, and is read: %v", names(Decision{}), err)
	}
	if reason, err := decodeReason([]byte(`{"reason": "r"}`)); err != nil || reason != "r" ||
		len(names(Reason{})) != 1 {
		t.Errorf("a reason is described with %v, and is read: %q, %v", names(Reason{}), reason, err)
	}
	if how, err := decodeInterruption([]byte(`{"reason": "r", "resolve": true}`)); err != nil || how.Reason != "r" ||
		!how.Resolve || len(names(how)) != 2 {
		t.Errorf("an interruption is described with %v, and is read: %+v, %v", names(how), how, err)
	}
}

// TestFieldsThatAreNone: what is wrong with a small body is said with what may be there.
func TestFieldsThatAreNone(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{nil, "x: is not a field here; send an empty object, or nothing"},
		{[]string{"a", "b"}, "x: is not a field here; the fields are a, b"},
	} {
		if _, err := object([]byte(`{"x": 1}`), c.fields...); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v", c.fields, err)
		}
	}
}

// TestLimitsInTags: the limits that the library reads from tags are the named ones.
func TestLimitsInTags(t *testing.T) {
	for _, c := range []struct {
		in         any
		field, tag string
		want       int
	}{
		{AnswerParams{}, "Wait", "maximum", int(MaxWait.Seconds())}, {listInput{}, "Limit", "maximum", MaxPage},
		{listInput{}, "Limit", "default", DefaultPage},
		{blobInput{}, "Limit", "maximum", MaxBlobBytes}, {blobInput{}, "Limit", "default", DefaultBlobBytes},
		{Call{}, "ID", "maxLength", toolyard.MaxNameBytes},
		{Submission{}, "Calls", "maxItems", toolyard.MaxCallsPerBatch},
		{Submission{}, "ID", "maxLength", toolyard.MaxNameBytes},
		{BatchOptions{}, "MaxConcurrency", "maximum", toolyard.MaxConcurrency},
		{Reason{}, "Reason", "maxLength", client.MaxReasonBytes},
		{Decision{}, "Reason", "maxLength", client.MaxReasonBytes},
	} {
		f, ok := reflect.TypeOf(c.in).FieldByName(c.field)
		if got := f.Tag.Get(c.tag); !ok || got != strconv.Itoa(c.want) {
			t.Errorf("%T.%s has the %s %q, want %d", c.in, c.field, c.tag, got, c.want)
		}
	}
}

func TestTokenFiles(t *testing.T) {
	good, err := ParseTokens([]byte("# comment\n\n  abc-._~+/0= alice  \r\nother\tbob\nmore alice\nroot *\n"))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"abc-._~+/0=": "alice", "other": "bob", "more": "alice",
		"root": Operator, "": "", "abc": "", "OTHER": "", "#": "", "comment": ""} {
		e, ok := good.find(token)
		if agent := e.agent; agent != want || ok != (want != "") {
			t.Errorf("%q is %q's, %t; want %q", token, agent, ok, want)
		}
	}
	for file, says := range map[string]string{
		"": "no token", "# only\n": "no token", "alone\n": "line 1 has 1 words",
		"a b c\n": "line 1: word 3 is no KEY=VALUE", "ok a\nsame b\nsame c\n": "line 3 has the token of line 2",
		"sécret a\n": "line 1: the token", "=== a\n": "line 1: the token", "tok a\x01b\n": "line 1: the agent", "tok " +
			strings.Repeat("a", 129) + "\n": "129 bytes",
		strings.Repeat("x", MaxTokenFileBytes+1): "longer than",
	} {
		_, err := ParseTokens([]byte(file))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v; want %q", file, err, says)
		} else if strings.Contains(err.Error(), "sécret") || strings.Contains(err.Error(), "same") {
			t.Errorf("%.40q: %v shows a token", file, err)
		}
	}
	for _, e := range *good.entries.Load() {
		if bytes.Contains(e.sum[:], []byte("abc")) || bytes.Contains(e.sum[:], []byte("other")) {
			t.Error("a token is kept as it is")
		}
	}
}

func TestLoopbackHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:80": true, "localhost.": true, "127.0.0.1": true, "127.8.9.1:8080": true,
		"[::1]": true, "[::1]:80": true, "::1": true,
		"": false, ":8080": false, "0.0.0.0:8080": false, "[::]:80": false, "10.0.0.1": false, "example.com": false,
		"localhost.example.com": false, "127.0.0.1.nip.io": false, "127.1": false,
	} {
		if got := IsLoopbackHost(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

// TestEnter: whoever may be anybody is bounded with all others only, and a token may have a bound of its own.
func TestEnter(t *testing.T) {
	q := quota.New(5, 2)
	for _, c := range []struct {
		who   caller
		count int
	}{
		// five in all
		{caller{any: true}, 3}, {caller{agent: "a", grant: grant{streams: 1}}, 1}, {caller{agent: "b"}, 1},
	} {
		for range c.count {
			if _, err := enter(q, c.who); err != nil {
				t.Fatalf("%+v: %v", c.who, err)
			}
		}
		if c.who.any {
			continue
		}
		if _, err := enter(q, c.who); err == nil {
			t.Errorf("%+v: there is room", c.who)
		}
	}
}

// FuzzBodies: whatever a body holds, it is taken, or refused as the client's mistake; and what is taken can be handed
// in.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		`{"id": "b", "calls": [{"id": "c", "tool": "t", "input": {"a": 1}}], "options": {"deny": ["bash"]}}`,
		`{"anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "t", "input": {}}]}, "session": "s"}`,
		`{"openai": [{"type": "function_call", "call_id": "u", "name": "t", "arguments": "{}"}]}`,
		`{"openai_chat": {"role": "assistant", "tool_calls": [{"id": "u", "type": "function", "function": {"name": "t", "arguments": "{"}}]}}`,
		`{"gemini": {"parts": [{"functionCall": {"name": "t", "args": {}}}]}, "open": true}`,
		`{"decision": "allow", "input": {}, "remember": "session"}`, `{"reason": "r"}`, `{}`, `null`, `[`, "\xff",
		`{"calls": null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mistake := func(err error) {
			if _, ok := errors.AsType[*toolyard.InputError](err); err != nil && !ok {
				t.Errorf("%v is no mistake of the client's", err)
			}
		}
		if b, err := decodeBatch(data); err == nil {
			b.Normalize("made")
			err = b.Validate()
			if mistake(err); err == nil {
				if _, err := json.Marshal(b); err != nil {
					t.Errorf("a batch cannot be stored: %v", err)
				}
			}
		} else {
			mistake(err)
		}
		calls, _, err := decodeCalls(data)
		if mistake(err); err == nil {
			if len(calls) == 0 {
				t.Error("there are no calls to append")
			}
			_, err := new(submission.Input).Fit(calls)
			mistake(err)
		}
		_, err = decodeDecision(data)
		mistake(err)
		_, err = decodeReason(data)
		mistake(err)
		_, err = decodeInterruption(data)
		mistake(err)
	})
}
