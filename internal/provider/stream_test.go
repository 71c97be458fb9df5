package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/eventstream/streamtest"
	"github.com/toolyard/toolyard/internal/provider/openai"
)

// feed reads a stream in pieces that next says the size of, and returns its calls and why it is not whole.
func feed(t *testing.T, format Format, data []byte, next func() int) (calls []toolyard.Call, cut error) {
	t.Helper()
	d, err := Stream(format)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := min(max(next(), 1), len(data))
		whole, err := d.Feed(data[:n])
		calls, data = append(calls, whole...), data[n:]
		if len(whole) > 0 && !d.Begun() {
			t.Fatal("calls went out and none has begun")
		}
		if err != nil {
			if !d.Over() {
				t.Fatalf("%v, and it is not over", err)
			}
			break
		}
	}
	rest, cut := d.End()
	if again, _ := d.End(); len(again) != 0 {
		t.Fatalf("calls came twice: %s", again)
	}
	return append(calls, rest...), cut
}

func whole() int { return 1 << 30 }

// events writes events with names, as the providers do.
func events(list ...string) []byte {
	var b bytes.Buffer
	for _, data := range list {
		var e struct{ Type string }
		if json.Unmarshal([]byte(data), &e) == nil && e.Type != "" {
			fmt.Fprintf(&b, "event: %s\n", e.Type)
		}
		fmt.Fprintf(&b, "data: %s\n\n", data)
	}
	return b.Bytes()
}

// TestStreamsAreWholeMessages: whatever a response says, however its bytes are cut, and however its blocks interleave,
// the calls of its stream are those of the whole message, in order.
func TestStreamsAreWholeMessages(t *testing.T) {
	for _, format := range StreamFormats {
		t.Run(string(format), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			seen := 0
			for range 300 {
				message, stream := streamtest.Writers[string(format)](random, streamtest.Random(random))
				want, _, err := Decode([]byte(message), format)
				if err != nil && !strings.Contains(err.Error(), "no tool calls") &&
					!strings.Contains(err.Error(), "no calls") {
					t.Fatalf("%s: %v", message, err)
				}
				data := events(stream...)
				if random.IntN(3) == 0 {
					data = append(data, "data: [DONE]\n\n"...)
				}
				newline := []string{"\n", "\r\n", "\r"}[random.IntN(3)]
				data = bytes.ReplaceAll(data, []byte("\n"), []byte(newline))
				size := 1 + random.IntN(200)
				got, cut := feed(t, format, data, func() int { return 1 + random.IntN(size) })
				if cut != nil || len(got) != len(want.Calls) || len(got) > 0 && !reflect.DeepEqual(got, want.Calls) {
					t.Fatalf("%v\n got %s\nwant %s\n%s", cut, got, want.Calls, data)
				}
				seen += len(got)
			}
			if seen < 300 {
				t.Errorf("only %d calls in all", seen)
			}
		})
	}
}

// TestCutStreams: a stream that stops anywhere gives the calls that were whole by then and, for each that had begun and
// was not, one that says so; each call once, in order, and none that the whole stream has not.
func TestCutStreams(t *testing.T) {
	for _, format := range StreamFormats {
		t.Run(string(format), func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			incomplete := 0
			for range 10 {
				_, stream := streamtest.Writers[string(format)](random, streamtest.Random(random))
				data := events(stream...)
				all, _ := feed(t, format, data, whole)
				for at := 0; at < len(data); at += 1 + random.IntN(300) {
					got, cut := feed(t, format, data[:at], whole)
					if cut != nil && !errors.Is(cut, ErrCut) {
						t.Fatalf("%v\n%s", cut, data[:at])
					}
					if cut == nil && len(got) != len(all) || len(got) > len(all) {
						t.Fatalf("not cut, and %d of %d calls\n%s", len(got), len(all), data[:at])
					}
					for i, c := range got {
						if c.ID != all[i].ID || c.Tool != all[i].Tool || !json.Valid(c.Input) || !c.Incomplete &&
							!reflect.DeepEqual(c, all[i]) {
							t.Fatalf("call %d is %s and was %s\n%s", i, c, all[i], data[:at])
						}
						if c.Incomplete {
							incomplete++
						}
					}
				}
			}
			if incomplete == 0 {
				t.Error("no call was cut")
			}
		})
	}
}

// TestStreamEvents: what single events do.
func TestStreamEvents(t *testing.T) {
	use := func(i int, id string) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":"t","input":{}}}`, i, id)
	}
	text := func(i int, s string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, i, string(eventstream.Text(s)))
	}
	stop := func(i int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i) }
	item := func(i int, kind, more string) string {
		return fmt.Sprintf(`{"type":"response.output_item.%s","output_index":%d,"item":{"type":"function_call","call_id":"c%d","name":"t"%s}}`, kind, i, i, more)
	}
	chunk := func(choice int, call, finish string) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"tool_calls":[%s]},"finish_reason":%s}]}`, choice, call,
			finish)
	}
	const begin = `{"type":"message_start","message":{"id":"m"}}`
	const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, c := range []struct {
		name   string
		format Format
		stream []string
		calls  string
		cut    string
	}{
		{"out of order ends come in order", Anthropic, []string{use(0, "a"), use(1, "b"), text(1, `{"x":1}`), stop(1),
			text(0, `{}`), stop(0), `{"type":"message_stop"}`},
			`a {} b {"x":1}`, ""},
		{"no input, and another block", Anthropic, []string{use(0, "a"), stop(0),
			`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`}, "a {}",
			"cut before its end"},
		{"no input, then the end", Anthropic, []string{use(0, "a"), stop(0)}, `a "" incomplete`, "cut before its end"},
		{"no input, for want of tokens", Anthropic, []string{use(0, "a"), stop(0),
			`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, `{"type":"message_stop"}`}, `a "{"`, ""},
		{"whole input, for want of tokens", Anthropic, []string{use(0, "a"), text(0, "{}"), stop(0),
			`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, `{"type":"message_stop"}`}, `a {}`, ""},
		{"half an input, for want of tokens", Anthropic,
			[]string{use(0, "a"), text(0, `{"x`), stop(0),
				`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, `{"type":"message_stop"}`}, `a "{\"x,"`,
			""},
		{"never ended", Anthropic, []string{use(0, "a"), text(0, `{"x`), `{"type":"message_stop"}`},
			`a "{\"x" incomplete`, ""},
		{"the provider fails", Anthropic, []string{use(0, "a"), text(0, `{}`), stop(0), use(1, "b"), overloaded,
			use(2, "c")}, `a {} b "" incomplete`, `it failed: "overloaded_error: Overloaded"`},
		{"input at the start", Anthropic,
			[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"t","input":{"x":1}}}`, stop(0), `{"type":"message_stop"}`}, `a {"x":1}`, ""},
		{"servers' tools are skipped", Anthropic,
			[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`, text(0, "{}"), stop(0), `{"type":"message_stop"}`}, ``, ""},
		{"blocks backwards", Anthropic, []string{use(1, "a"), use(0, "b")}, `a "" incomplete`,
			"events[1].index: is 0 behind 1; blocks begin in their order"},
		{"no id", Anthropic,
			[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"t"}}`}, ``,
			"events[0].content_block.id: want string, got nothing"},
		{"no index", Anthropic, []string{`{"type":"content_block_stop"}`}, ``,
			"events[0].index: want a whole number, got nothing"},
		{"no JSON", Anthropic, []string{use(0, "a"), `{"type":`}, `a "" incomplete`,
			"events[1]: the input is not JSON"},
		{"no object", OpenAIChat, []string{`[]`}, ``, "events[0]: want object, got array"},
		{"done without an end", Anthropic, []string{use(0, "a"), `[DONE]`, text(0, "{}")}, `a "" incomplete`,
			"cut before its end"},

		{"done and not added", OpenAI, []string{item(0, "done", `,"arguments":"{}"`), `{"type":"response.completed"}`},
			`c0 {}`, ""},
		{"added and not done", OpenAI, []string{item(0, "added", ""), item(1, "added", ""),
			item(1, "done", `,"arguments":"{}"`), `{"type":"response.incomplete"}`}, `c0 "" incomplete c1 {}`, ""},
		{"done twice", OpenAI, []string{item(0, "added", ""), item(0, "done", `,"arguments":"{}"`),
			item(0, "done", `,"arguments":"{}"`), `{"type":"response.completed"}`}, `c0 {}`, ""},
		{"it fails", OpenAI, []string{item(0, "added", ""),
			`{"type":"response.failed","response":{"error":{"code":"server_error","message":"Sorry"}}}`},
			`c0 "" incomplete`, `it failed: "server_error: Sorry"`},
		{"an error", OpenAI, []string{`{"type":"error","code":"rate","message":"slow down"}`}, ``,
			`it failed: "rate: slow down"`},
		{"an error without a code", OpenAI, []string{
			`{"type":"response.failed","response":{"error":{"message":"overloaded"}}}`}, ``, `it failed: "overloaded"`},
		{"an error without a reason", OpenAI, []string{`{"type":"response.failed","response":{}}`}, ``,
			`it failed, and gives no reason`},
		{"no status and no arguments, for want of tokens", OpenAI, []string{item(0, "added", ""),
			item(0, "done", `,"arguments":""`), `{"type":"response.incomplete"}`}, `c0 ""`, ""},
		{"no status and half an input, for want of tokens", OpenAI, []string{item(0, "added", ""),
			item(0, "done", `,"arguments":"{\"x\":1"`), `{"type":"response.incomplete"}`}, `c0 "{\"x\":1,"`, ""},
		{"no status and no arguments, and another item", OpenAI, []string{item(0, "done", `,"arguments":""`),
			item(1, "added", "")}, `c0 {} c1 "" incomplete`, "cut before its end"},
		{"no status and no arguments, and an item that is no call", OpenAI, []string{item(0, "done", `,"arguments":""`),
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"message"}}`,
			`{"type":"response.incomplete"}`}, `c0 {}`, ""},
		{"no status and no arguments, then the end", OpenAI, []string{item(0, "done", `,"arguments":""`),
			`{"type":"response.completed"}`}, `c0 {}`, ""},
		{"cut arguments", OpenAI, []string{item(0, "added", ""),
			item(0, "done", `,"arguments":"","status":"incomplete"`), `{"type":"response.incomplete"}`}, `c0 ""`, ""},
		{"a call of another kind", OpenAI, []string{item(0, "done", `,"arguments":"{}"`),
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"shell_call","call_id":"s"}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"shell_call","call_id":"s"}}`,
			item(2, "done", `,"arguments":"{}"`), `{"type":"response.completed"}`}, `c0 {} c2 {}`, ""},
		{"a second beginning", Anthropic, []string{begin, use(0, "a"), text(0, `{}`), stop(0), use(1, "b"),
			text(1, `{"x`), begin, use(0, "c"), text(0, `{"x":1}`), stop(0), `{"type":"message_stop"}`},
			`a {} c {"x":1}`, ""},
		{"a second beginning at once", Anthropic, []string{begin, begin, use(0, "a"), stop(0), begin, use(0, "c"),
			stop(0), begin, use(0, "d"), stop(0), `{"type":"message_stop"}`}, `d {}`, ""},
		{"no input anywhere", Anthropic,
			[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":""}}`,
				stop(0), `{"type":"message_stop"}`}, `a ""`, ""},
		{"an input with a key twice", Anthropic,
			[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"t","input":{"x":1,"x":2}}}`, stop(0), `{"type":"message_stop"}`},
			`a "{\"x\":1,\"x\":2}"`, ""},
		{"no output index", OpenAI, []string{`{"type":"response.output_item.done","item":{}}`}, ``,
			"events[0].output_index: want a whole number, got nothing"},

		{"one index for all", OpenAIChat, []string{chunk(0,
			`{"index":0,"id":"a","type":"function","function":{"name":"t","arguments":"{}"}},{"index":0,"id":"b","type":"function","function":{"name":"t","arguments":"{}"}}`, `"tool_calls"`)},
			`a {} b {}`, ""},
		{"it goes on behind its end", OpenAIChat, []string{chunk(0,
			`{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"t"}}`, "null"), chunk(0, `{"index":0,"function":{"arguments":"{}"}}`, "null")},
			`a {} b "" incomplete`, `events[1].choices[0].delta.tool_calls[0]: goes on with a call that was whole`},
		{"two choices", OpenAIChat, []string{chunk(0, `{"index":0,"id":"a","function":{"name":"t"}}`, "null"),
			chunk(1, `{"index":0,"id":"b","function":{"name":"t"}}`, "null")},
			`a "" incomplete`, `choice 0 has some; ask the model for one choice`},
		{"free text", OpenAIChat,
			[]string{chunk(0, `{"index":0,"id":"a","type":"custom","custom":{"name":"t","input":""}}`, "null"),
				chunk(0, `{"index":0,"custom":{"input":"SELECT 1"}}`, "null"), chunk(0, ``, `"tool_calls"`)},
			`a "SELECT 1"`, ""},
		{"no arguments, for want of tokens", OpenAIChat,
			[]string{chunk(0,
				`{"index":0,"id":"a","function":{"name":"t"}},{"index":1,"id":"b","function":{"name":"t"}}`,
				`"length"`)}, `a {} b ""`, ""},
		{"a choice without calls ends first", OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"so"},"finish_reason":"stop"}]}`,
			chunk(1, `{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}`, "null"),
			chunk(1, ``, `"tool_calls"`)}, `a {}`, ""},
		{"a choice without calls ends, and another is cut", OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"so"},"finish_reason":"stop"}]}`,
			chunk(1, `{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}`, "null"), `[DONE]`},
			`a "{}" incomplete`, "cut before its end"},
		{"all choices without calls", OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"so"},"finish_reason":"stop"}]}`,
			`{"choices":[{"index":1,"delta":{"content":"so"},"finish_reason":"stop"}]}`, `[DONE]`}, ``, ""},
		{"two choices without calls, one of them cut", OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"so"}},{"index":1,"delta":{"content":"so"}}]}`,
			`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`}, ``, "cut before its end"},
		{"an error behind a choice without calls", OpenAIChat, []string{
			`{"choices":[{"index":0,"delta":{"content":"so"},"finish_reason":"stop"}]}`,
			`{"error":{"type":"server_error","message":"Sorry"}}`}, ``, `it failed: "server_error: Sorry"`},
		{"an error in a chunk", OpenAIChat, []string{`{"error":{"type":"server_error","message":"Sorry"}}`}, ``,
			`it failed: "server_error: Sorry"`},
		{"calls backwards", OpenAIChat, []string{chunk(0,
			`{"index":1,"id":"a","function":{"name":"t"}},{"index":0,"id":"b","function":{"name":"t"}}`, "null")},
			`a "" incomplete`, "is 0 behind 1"},
		{"no name", OpenAIChat, []string{chunk(0, `{"index":0,"id":"a","function":{}}`, "null")}, ``,
			"events[0].choices[0].delta.tool_calls[0].function.name: want string, got nothing"},
	} {
		t.Run(string(c.format)+"/"+c.name, func(t *testing.T) {
			calls, cut := feed(t, c.format, events(c.stream...), whole)
			var got []string
			for _, call := range calls {
				got = append(got, call.ID, string(call.Input))
				if call.Incomplete {
					got = append(got, "incomplete")
				}
			}
			if strings.Join(got, " ") != c.calls {
				t.Errorf("\n got %s\nwant %s", strings.Join(got, " "), c.calls)
			}
			if (cut == nil) != (c.cut == "") || cut != nil && !strings.Contains(cut.Error(), c.cut) {
				t.Errorf("\n got %v\nwant %s", cut, c.cut)
			}
		})
	}
}

// TestStreamLimits: a stream without end, an event without end and calls without end are cut there.
func TestStreamLimits(t *testing.T) {
	begin := func(i int) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"c%d","name":"t","input":{}}}`, i, i)
	}
	var many []string
	for i := range eventstream.MaxOpenCalls + 1 {
		many = append(many, begin(i))
	}
	// The first call is never done, so the others, which are, wait behind it.
	waiting := []string{`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c0","name":"t"}}`}
	arguments := eventstream.Text(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	for i := 1; i <= 3*eventstream.MaxOpenBytes>>20; i++ {
		waiting = append(waiting, fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":{"type":"function_call","call_id":"c%d","name":"t","arguments":%s}}`, i, i, arguments))
	}
	d := openai.NewStream()
	_, cut := d.Feed(events(waiting...))
	in, ok := errors.AsType[*toolyard.InputError](cut)
	if rest, _ := d.End(); !ok || !in.TooLarge || len(rest) > eventstream.MaxOpenBytes>>20+1 || !rest[0].Incomplete {
		t.Errorf("%d calls of a MiB each waited behind one that is open: %v", len(rest)-1, cut)
	}
	for name, c := range map[string]struct {
		data  []byte
		calls int
		cut   string
	}{
		"calls": {events(many...), eventstream.MaxOpenCalls, "more than 1000 calls have begun"},
		"event": {append(events(begin(0)), "data: "+strings.Repeat("x", eventstream.MaxEventBytes)...), 1,
			"an event is longer than 16777216 bytes"},
		"stream": {bytes.Repeat([]byte(":"+strings.Repeat("x", 1<<20-2)+"\n"), eventstream.MaxStreamBytes>>20+1), 0,
			"the stream is longer than 268435456 bytes"},
	} {
		calls, cut := feed(t, Anthropic, c.data, func() int { return 1 << 20 })
		in, ok := errors.AsType[*toolyard.InputError](cut)
		if len(calls) != c.calls || !ok || !in.TooLarge || !strings.Contains(cut.Error(), c.cut) {
			t.Errorf("%s: %d calls, %v", name, len(calls), cut)
		}
		for _, call := range calls {
			if !call.Incomplete || len(call.Input) > 5_000 {
				t.Errorf("%s: a call of %d bytes, incomplete %t", name, len(call.Input), call.Incomplete)
			}
		}
	}
}

// FuzzStream hands bytes in as each provider's stream, at once and one by one. Nothing panics, the calls are the same,
// and each of them could be handed in.
func FuzzStream(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for i, format := range StreamFormats {
		for range 8 {
			_, stream := streamtest.Writers[string(format)](random, streamtest.Random(random))
			f.Add(uint8(i), events(stream...))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		format := StreamFormats[int(which)%len(StreamFormats)]
		calls, cut := feed(t, format, data, whole)
		single, cutSingle := feed(t, format, data, func() int { return 1 })
		if !reflect.DeepEqual(calls, single) || fmt.Sprint(cut) != fmt.Sprint(cutSingle) {
			t.Fatalf("at once %s, %v\none by one %s, %v", calls, cut, single, cutSingle)
		}
		for _, c := range calls {
			if c.ID == "" || !json.Valid(c.Input) {
				t.Fatalf("no call: %s", c)
			}
		}
	})
}
