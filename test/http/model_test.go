package http

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/events"
)

// badNames are names that a model may write for a tool and that no tool can have.
var badNames = map[string]string{"empty": "", "long": strings.Repeat("x", 200), "control": "ec\x00ho",
	"replacement": "a\ufffdb", "unknown": "nope"}

func quote(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// codes are the codes of results, by the calls' ids.
func codes(results []toolyard.Result) string {
	var out []string
	for _, r := range results {
		out = append(out, r.CallID+":"+string(r.Code))
	}
	return strings.Join(out, " ")
}

// TestOneBadNameInAStream: whatever name a model gives a tool, that call alone ends as unknown_tool, and those
// behind it run.
func TestOneBadNameInAStream(t *testing.T) {
	p := start(t, nil)
	stream := map[string]func(name string) string{
		"anthropic": func(name string) string {
			bad := strings.Replace(use(1, "b", "NAME", `{"text":"y"}`), `"NAME"`, quote(name), 1)
			return use(0, "a", "echo", `{"text":"x"}`) + bad + use(2, "c", "echo", `{"text":"z"}`) + over
		},
		"openai": func(name string) (s string) {
			for i, n := range []string{"echo", name, "echo"} {
				item := fmt.Sprintf(`{"type":"function_call","call_id":"%c","name":%s,"arguments":"{\"text\":\"x\"}","status":"completed"}`, 'a'+i, quote(n))
				s += fmt.Sprintf("data: {\"type\":\"response.output_item.done\",\"output_index\":%d,\"item\":%s}\n\n",
					i, item)
			}
			return s + "data: {\"type\":\"response.completed\",\"response\":{}}\n\n"
		},
		"openai-chat": func(name string) (s string) {
			for i, n := range []string{"echo", name, "echo"} {
				s += fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":\"%c\",\"type\":\"function\",\"function\":{\"name\":%s,\"arguments\":\"{\\\"text\\\":\\\"x\\\"}\"}}]}}]}\n\n",
					i, 'a'+i, quote(n))
			}
			return s + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n"
		},
	}
	for form, write := range stream {
		for what, name := range badNames {
			f := p.feed(http.DefaultClient, "/v1/stream/"+form)
			f.write(write(name))
			f.end()
			var results []toolyard.Result
			reply := ""
			for _, e := range all(f.next) {
				switch e.name {
				case "result":
					results = append(results, decode[toolyard.Result](p, e.data))
				case "reply":
					reply = e.data
				}
			}
			if got := codes(results); got != "a: b:unknown_tool c:" || !strings.Contains(reply, `"b"`) {
				t.Errorf("%s, a name that is %s: %s; the reply is %s", form, what, got, reply)
			}
			for _, r := range results {
				if toolyard.CheckName("tool", r.Tool) != nil {
					t.Errorf("%s, a name that is %s: the result is of %q", form, what, r.Tool)
				}
			}
		}
	}
}

// TestOneBadCallInAMessage: what a model wrote wrong in one call of a message is that call's result, in every
// form.
func TestOneBadCallInAMessage(t *testing.T) {
	p := start(t, nil)
	deep := strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)
	deeper := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	forms := map[string]func(name, input string) string{
		"calls": func(name, input string) string {
			return fmt.Sprintf(`[{"id":"a","tool":"echo","input":{"text":"x"}},{"id":"b","tool":%s%s},{"id":"c","tool":"echo","input":{"text":"x"}}]`, name, in(`,"input":`, input))
		},
		"anthropic": func(name, input string) string {
			return fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"echo","input":{"text":"x"}},`+
				`{"type":"tool_use","id":"b","name":%s%s},{"type":"tool_use","id":"c","name":"echo","input":{"text":"x"}}]}`, name, in(`,"input":`, input))
		},
		"openai": func(name, input string) string {
			return fmt.Sprintf(`[{"type":"function_call","call_id":"a","name":"echo","arguments":"{\"text\":\"x\"}"},`+
				`{"type":"function_call","call_id":"b","name":%s%s},{"type":"function_call","call_id":"c","name":"echo","arguments":"{\"text\":\"x\"}"}]`, name, in(`,"arguments":`, input))
		},
		"openai_chat": func(name, input string) string {
			return fmt.Sprintf(`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"echo","arguments":"{\"text\":\"x\"}"}},`+
				`{"id":"b","type":"function","function":{"name":%s%s}},{"id":"c","type":"function","function":{"name":"echo","arguments":"{\"text\":\"x\"}"}}]}`, name, in(`,"arguments":`, input))
		},
		"gemini": func(name, input string) string {
			return fmt.Sprintf(`{"role":"model","parts":[{"functionCall":{"id":"a","name":"echo","args":{"text":"x"}}},`+
				`{"functionCall":{"id":"b","name":%s%s}},{"functionCall":{"id":"c","name":"echo","args":{"text":"x"}}}]}`, name, in(`,"args":`, input))
		},
	}
	for form, write := range forms {
		check := func(what, name, input, code string) {
			r := p.do(http.MethodPost, "/v1/batches?wait=30", `{"`+form+`":`+write(name, input)+`}`)
			if r.status != http.StatusOK {
				t.Errorf("%s, %s: %d %.200s", form, what, r.status, r.body)
				return
			}
			if got := codes(decode[toolyard.BatchView](p, string(r.body)).Results); got != "a: b:"+code+" c:" {
				t.Errorf("%s, %s: %s", form, what, got)
			}
		}
		for what, name := range badNames {
			check("a name that is "+what, quote(name), `{"text":"y"}`, "unknown_tool")
		}
		check("a key twice", `"echo"`, `{"text":"y","text":"z"}`, "schema_validation_failed")
		if form != "calls" && form != "gemini" { // where leaving it out means an empty one
			check("no input", `"echo"`, "", "schema_validation_failed")
		}
		check("600 levels", `"echo"`, deep, "schema_validation_failed")
		check("20,000 levels", `"echo"`, deeper, "schema_validation_failed")
		check("an array", `"echo"`, "[1]", "schema_validation_failed")
	}
}

func in(field, input string) string {
	if input == "" {
		return ""
	}
	return field + input
}

// TestProvidersItemsInAStream: items that are the provider's or that nobody here can answer cut nothing: the
// calls beside them run, and an event tells of the rest.
func TestProvidersItemsInAStream(t *testing.T) {
	p := start(t, nil)
	items := []string{
		`{"type":"web_search_call","id":"ws_1","status":"completed"}`,
		`{"type":"function_call","call_id":"a","name":"echo","arguments":"{\"text\":\"x\"}"}`,
		`{"type":"shell_call","id":"sh_1","call_id":"s1","action":{"commands":["ls"]}}`,
		`{"type":"shell_call_output","id":"sho_1","call_id":"s1","output":[]}`,
		`{"type":"local_shell_call","id":"ls_1","call_id":"s2","action":{"type":"exec"}}`,
		`{"type":"apply_patch_call","id":"ap_1","call_id":"s3","operation":{}}`,
		`{"type":"code_interpreter_call","id":"ci_1","code":"1"}`,
		`{"type":"computer_call","id":"cu_1","call_id":"s4"}`,
		`{"type":"function_call","call_id":"b","name":"echo","arguments":"{\"text\":\"y\"}"}`,
	}
	body := ""
	for i, item := range items {
		body += fmt.Sprintf("data: {\"type\":\"response.output_item.added\",\"output_index\":%d,\"item\":%s}\n\n", i,
			item)
		body += fmt.Sprintf("data: {\"type\":\"response.output_item.done\",\"output_index\":%d,\"item\":%s}\n\n", i,
			item)
	}
	f := p.feed(http.DefaultClient, "/v1/stream/openai")
	f.write(body, "data: {\"type\":\"response.completed\",\"response\":{}}\n\n")
	f.end()
	seen := map[string]string{}
	for _, e := range all(f.next) {
		seen[e.name+e.id] = e.data
	}
	if seen["cut"] != "" || seen["problem"] != "" || !strings.Contains(seen["result0"], `"output":"x"`) ||
		!strings.Contains(seen["result1"], `"output":"y"`) {
		t.Errorf("there are %v", seen)
	}
	note := decode[api.Noted](p, seen["note"])
	var open []string
	for _, i := range note.Items {
		if i.Open {
			open = append(open, i.Type+" "+i.CallID)
		}
	}
	if len(note.Items) != 6 || fmt.Sprint(open) != "[local_shell_call s2 apply_patch_call s3 computer_call s4]" {
		t.Errorf("noted are %+v", note)
	}
}

// TestASecondMessageStart: a response that begins anew is read anew. What goes back is about the calls of the
// last one alone.
func TestASecondMessageStart(t *testing.T) {
	p := start(t, nil)
	const begin = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\n"
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic")
	f.write(begin, use(0, "a", "echo", `{"text":"x"}`), begins(1, "b", "write"), part(1, `{"te`),
		begin, use(0, "c", "echo", `{"text":"y"}`), use(1, "a", "echo", `{"text":"x"}`), over)
	f.end()
	seen := map[string]string{}
	for _, e := range all(f.next) {
		seen[e.name+e.id] = e.data
	}
	for _, name := range []string{"cut", "problem"} {
		if seen[name] != "" {
			t.Errorf("%s: %s", name, seen[name])
		}
	}
	reply := seen["reply"]
	if c, a := strings.Index(reply, `"tool_use_id":"c"`), strings.Index(reply, `"tool_use_id":"a"`); c < 0 || a < c ||
		strings.Contains(reply, `"tool_use_id":"b"`) {
		t.Errorf("the reply is %s; events %v", reply, seen)
	}
	// A call that went out and is not in the second message has a result, and no answer.
	f = p.feed(http.DefaultClient, "/v1/stream/anthropic")
	f.write(begin, use(0, "a", "echo", `{"text":"x"}`), begin, use(0, "c", "echo", `{"text":"y"}`), over)
	f.end()
	seen = map[string]string{}
	for _, e := range all(f.next) {
		seen[e.name+e.id] = e.data
	}
	if reply := seen["reply"]; strings.Contains(reply, `"a"`) || !strings.Contains(reply, `"c"`) ||
		seen["completed2"] == "" {
		t.Errorf("there are %v", seen)
	}
}

// TestACutStreamAgain: a stream that was cut shows its results when it is sent again, as it was or whole, and
// adds nothing to the log. What came too late to run is answered all the same.
func TestACutStreamAgain(t *testing.T) {
	p := start(t, nil)
	head := use(0, "a", "echo", `{"text":"x"}`) + begins(1, "b", "echo") + part(1, `{"text":`)
	rest := part(1, `"y"}`) + ends(1) + use(2, "c", "echo", `{"text":"z"}`) + over
	closed := func() int {
		n := 0
		for _, kind := range want2lines(p, p.do(http.MethodGet, batches+"/cut/events?follow=false", "")) {
			if kind == events.BatchClosed {
				n++
			}
		}
		return n
	}
	for i, c := range []struct{ body, codes string }{
		{head, "a: b:incomplete_call"}, {head, "a: b:incomplete_call"}, {head + part(1, `"yy`), "a: b:incomplete_call"},
		{head + rest, "a: b:incomplete_call"}, {use(0, "a", "echo", `{"text":"x"}`), "a: b:incomplete_call"},
	} {
		f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=cut")
		f.write(c.body)
		f.end()
		var results []toolyard.Result
		var names []string
		reply := ""
		for _, e := range all(f.next) {
			names = append(names, e.name)
			if e.name == "result" {
				results = append(results, decode[toolyard.Result](p, e.data))
			}
			if e.name == "reply" {
				reply = e.data
			}
		}
		if got := codes(results); got != c.codes || slices.Contains(names, "problem") ||
			!slices.Contains(names, "completed") {
			t.Errorf("%d: %s, events %v", i, got, names)
		}
		if strings.Contains(c.body, `"id":"c"`) != strings.Contains(reply, `"tool_use_id":"c"`) {
			t.Errorf("%d: the reply is %s", i, reply)
		}
	}
	if n := closed(); n != 1 {
		t.Errorf("the log says %d times that the batch was closed", n)
	}
	for range 3 {
		p.do(http.MethodPost, batches+"/cut/close", "{}")
	}
	if n := closed(); n != 1 {
		t.Errorf("closed again, the log says it %d times", n)
	}
}
