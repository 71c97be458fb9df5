// Package streamtest makes random model responses, each as a whole message and as the provider's event stream, for
// tests that compare the two.
package streamtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// quoted returns a text as JSON.
func quoted(text string) string { return string(eventstream.Text(text)) }

// Said is one part of a test response: a call, or text.
type Said struct {
	Words    bool
	ID, Tool string
	Text     string // of the input
}

// Response is a whole response, in two forms that must mean the same.
type Response struct {
	Said    []Said
	Stopped bool // at the token limit
}

// Inputs are texts that models write for inputs, good and bad.
var Inputs = []string{`{}`, `{"a": 1}`, `{"path":"a b","n":[1,2,{"x":"}{"}]}`,
	`{"t":"<ä\u00e9 \\ \" \n>","u":"\ud83d\ude00"}`, ``, ` {"a":1} `, `{"a":1,"a":2}`, `{"a":`, `[1]`, `"{\"a\":1}"`,
	`"x"`, `null`, `{"a":1}{"b":2}`, `{"a":1}}`, `{"a":01}`, "{\"a\":\"\x01\"}", strings.Repeat("[", 520), `{"big":"` +
		strings.Repeat("x", 700) + `"}`, `}`, `12`}

// Random makes a response.
func Random(random *rand.Rand) (r Response) {
	for n := random.IntN(6); n > 0; n-- {
		r.Said = append(r.Said, Said{
			Words: random.IntN(4) == 0, ID: fmt.Sprint("id_", n), Tool: []string{"read_file", "grep"}[random.IntN(2)],
			Text: Inputs[random.IntN(len(Inputs))],
		})
	}
	r.Stopped = random.IntN(4) == 0
	return r
}

// pieces cuts a text as a stream might: anywhere between characters.
func pieces(random *rand.Rand, text string) (out []string) {
	runes := []rune(text)
	for len(runes) > 0 {
		n := 1 + random.IntN(len(runes))
		out, runes = append(out, string(runes[:n])), runes[n:]
	}
	return out
}

// Writer writes a response as a whole and as a stream.
type Writer func(random *rand.Rand, r Response) (whole string, stream []string)

// interleave mixes lists and keeps the order within each; their first items keep their order.
func interleave(random *rand.Rand, lists [][]string) (out []string) {
	begun := 0
	for {
		var ready []int
		for i := range lists {
			if len(lists[i]) > 0 && (i < begun || i == begun) {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			return out
		}
		i := ready[random.IntN(len(ready))]
		if i == begun {
			begun++
		}
		out, lists[i] = append(out, lists[i][0]), lists[i][1:]
	}
}

// Writers has a writer for each provider whose streams are read, by the name of its format.
var Writers = map[string]Writer{
	"anthropic": func(random *rand.Rand, r Response) (string, []string) {
		var blocks []string
		lists := make([][]string, len(r.Said))
		for i, s := range r.Said {
			on := func(kind, rest string) {
				lists[i] = append(lists[i], fmt.Sprintf(`{"type":"content_block_%s","index":%d%s}`, kind, i, rest))
			}
			if s.Words {
				blocks = append(blocks, `{"type":"text","text":"words"}`)
				on("start", `,"content_block":{"type":"text","text":""}`)
				on("delta", `,"delta":{"type":"text_delta","text":"words"}`)
				on("stop", "")
				continue
			}
			// A message has its inputs as values. Invalid JSON is there as a string, as clients write it that repair
			// nothing.
			value := s.Text
			switch {
			case value == "":
				value = "{}"
			case !json.Valid([]byte(value)) || strictjson.Check([]byte(value)) != nil:
				value = quoted(value)
			}
			head := fmt.Sprintf(`"type":"tool_use","id":%q,"name":%q,"input":`, s.ID, s.Tool)
			blocks = append(blocks, "{"+head+value+"}")
			on("start", `,"content_block":{`+head+`{}}`)
			on("delta", `,"delta":{"type":"input_json_delta","partial_json":""}`)
			for _, p := range pieces(random, s.Text) {
				on("delta", `,"delta":{"type":"input_json_delta","partial_json":`+quoted(p)+`}`)
			}
			on("stop", "")
		}
		reason := "tool_use"
		// see anthropic.NewStream about other ends
		if n := len(r.Said); r.Stopped && (n == 0 || r.Said[n-1].Words || r.Said[n-1].Text == "") {
			reason = "max_tokens"
		}
		stream := append([]string{`{"type":"message_start","message":{"id":"msg_1","content":[]}}`, `{"type":"ping"}`},
			interleave(random, lists)...)
		return fmt.Sprintf(`{"type":"message","role":"assistant","stop_reason":%q,"content":[%s]}`, reason,
				strings.Join(blocks, ",")),
			append(stream, fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q},"usage":{}}`, reason),
				`{"type":"message_stop"}`)
	},
	"openai": func(random *rand.Rand, r Response) (string, []string) {
		var items []string
		lists := make([][]string, len(r.Said))
		for i, s := range r.Said {
			on := func(kind, rest string) {
				lists[i] = append(lists[i], fmt.Sprintf(`{"type":"response.%s","output_index":%d,%s}`, kind, i, rest))
			}
			item := func(arguments, status string) string {
				return fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":%q,"name":%q,"arguments":%s,"status":%q}`, i, s.ID, s.Tool, quoted(arguments), status)
			}
			if s.Words {
				items = append(items, `{"type":"message","role":"assistant","content":[]}`)
				on("output_item.added", `"item":`+items[i])
				on("output_item.done", `"item":`+items[i])
				continue
			}
			status := "completed"
			if r.Stopped && i == len(r.Said)-1 {
				status = "incomplete"
			}
			items = append(items, item(s.Text, status))
			on("output_item.added", `"item":`+item("", "in_progress"))
			for _, p := range pieces(random, s.Text) {
				on("function_call_arguments.delta", fmt.Sprintf(`"item_id":"fc_%d","delta":%s`, i, quoted(p)))
			}
			on("function_call_arguments.done", fmt.Sprintf(`"item_id":"fc_%d","arguments":%s`, i, quoted(s.Text)))
			on("output_item.done", `"item":`+items[i])
		}
		output := strings.Join(items, ",")
		end := `{"type":"response.completed","response":{"output":[` + output + `]}}`
		if r.Stopped {
			end = `{"type":"response.incomplete","response":{"output":[` + output +
				`],"incomplete_details":{"reason":"max_output_tokens"}}}`
		}
		stream := append([]string{`{"type":"response.created","response":{"output":[]}}`}, interleave(random, lists)...)
		return `{"object":"response","output":[` + output + `]}`, append(stream, end)
	},
	"openai-chat": func(random *rand.Rand, r Response) (string, []string) {
		var calls []string
		var lists [][]string
		for _, s := range r.Said {
			if s.Words {
				continue
			}
			i := len(lists)
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, s.ID,
				s.Tool, quoted(s.Text)))
			chunk := func(call string) string {
				return fmt.Sprintf(`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,%s}]},"finish_reason":null}]}`, i, call)
			}
			list := []string{chunk(fmt.Sprintf(`"id":%q,"type":"function","function":{"name":%q,"arguments":""}`, s.ID,
				s.Tool))}
			for _, p := range pieces(random, s.Text) {
				list = append(list, chunk(`"function":{"arguments":`+quoted(p)+`}`))
			}
			lists = append(lists, list)
		}
		// A call that is emitted when the next begins must not continue. Only in order can a test tell broken ones from
		// those.
		var mixed []string
		if random.IntN(2) == 0 && !slices.ContainsFunc(r.Said,
			func(s Said) bool { return strings.Contains(s.Text, "}{") || strings.HasSuffix(s.Text, "}}") }) {
			mixed = interleave(random, lists)
		} else {
			mixed = slices.Concat(lists...)
		}
		finish := "tool_calls"
		if r.Stopped {
			finish = "length"
		}
		stream := append([]string{`{"choices":[{"index":0,"delta":{"role":"assistant","content":"words"},"finish_reason":null}]}`}, mixed...)
		stream = append(stream, fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, finish),
			`{"choices":[],"usage":{}}`)
		return fmt.Sprintf(`{"object":"chat.completion","choices":[{"finish_reason":%q,"message":{"role":"assistant","tool_calls":[%s]}}]}`, finish, strings.Join(calls, ",")), stream
	},
}
