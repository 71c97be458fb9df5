package openaichat

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// NewStream reads the chunks of a Chat Completions stream. The form has no event for the end of a call: a call is
// complete when the next has begun and its arguments are a complete object, or else with the finish_reason. [Decode]
// then reads it as if it had come in a completion. Chunks of open calls may interleave. A chunk for a call that was
// already emitted breaks the stream, because the call ran without it.
//
// Only the choice that has the first call may have calls, and the stream ends with that choice. While none has, another
// may still begin one: then the stream is whole when its bytes end and all choices have finished. Several calls with
// the same index are accepted if each has its own id, as some servers send them.
func NewStream() *eventstream.Decoder {
	s := &stream{byIndex: map[int64]*openCall{}, finished: map[int64]bool{}}
	s.Handle = s.event
	return &s.Decoder
}

type stream struct {
	eventstream.Decoder
	byIndex map[int64]*openCall // the latest call of each index
	open    []*openCall         // incomplete calls
	begun   bool
	choice  int64 // the choice with calls, after one has begun
	last    int64 // the index of the latest call
	// finished says of each choice whether it has had its finish_reason, as long as no call has begun; unended is how
	// many have not.
	finished map[int64]bool
	unended  int
}

// manyChoices is how many choices are kept track of: more than anybody asks a model for.
const manyChoices = 128

// openCall is an open tool call.
type openCall struct {
	id, kind string // kind is "function" or "custom"
	item     strictjson.Object
	function strictjson.Object
	open     *eventstream.Open
	shape    shape
	out      bool
}

func (s *stream) event(e strictjson.Object) error {
	if e.Given("error") {
		o, err := e.Object("error")
		if err != nil {
			return eventstream.Failed("", e.Text("error"))
		}
		return eventstream.Failed(o.Text("type"), o.Text("message"))
	}
	if !e.Given("choices") {
		return nil
	}
	choices, err := e.Array("choices")
	if err != nil {
		return err
	}
	for i, raw := range choices {
		choice, err := strictjson.ReadObject(strictjson.Item(e.At("choices"), i), raw)
		if err != nil {
			return err
		}
		if err := s.chunk(choice); err != nil {
			return err
		}
	}
	return nil
}

// chunk handles one chunk of a choice.
func (s *stream) chunk(choice strictjson.Object) error {
	n, err := choice.OptionalInt("index", 32)
	if err != nil {
		return err
	}
	if choice.Given("delta") {
		delta, err := choice.Object("delta")
		if err != nil {
			return err
		}
		if err := s.delta(delta, n); err != nil {
			return err
		}
	}
	reason, err := choice.OptionalString("finish_reason")
	switch {
	case err != nil:
		return err
	case !s.begun:
		s.withoutCalls(n, reason != "")
		return nil
	case reason == "" || n != s.choice:
		return nil
	}
	s.Finish()
	return s.end(s.open, reason)
}

// withoutCalls notes a chunk of a choice while no call has begun.
func (s *stream) withoutCalls(choice int64, finished bool) {
	before, known := s.finished[choice]
	switch {
	case !known && len(s.finished) == manyChoices:
		return
	case !known && !finished:
		s.unended++
	case known && !before && finished:
		s.unended--
	}
	s.finished[choice] = before || finished
	s.MayEnd(s.unended == 0)
}

func (s *stream) delta(delta strictjson.Object, choice int64) error {
	if !delta.Given("tool_calls") {
		return nil
	}
	items, err := delta.Array("tool_calls")
	if err != nil {
		return err
	}
	for i, raw := range items {
		item, err := strictjson.ReadObject(strictjson.Item(delta.At("tool_calls"), i), raw)
		if err != nil {
			return err
		}
		if s.begun && choice != s.choice {
			return strictjson.Errorf(item.Path(), "is a call, and choice %d has some; ask the model for one choice",
				s.choice)
		}
		if !s.begun {
			s.begun, s.choice, s.finished = true, choice, nil
			s.MayEnd(false)
		}
		if err := s.piece(item); err != nil {
			return err
		}
	}
	return nil
}

// piece handles a part of a call.
func (s *stream) piece(item strictjson.Object) error {
	i, err := item.OptionalInt("index", 32)
	if err != nil {
		return err
	}
	id, err := item.OptionalString("id")
	if err != nil {
		return err
	}
	c := s.byIndex[i]
	if c == nil || id != "" && id != c.id {
		if i < s.last {
			return strictjson.Errorf(item.At("index"), "is %d behind %d; calls begin in their order", i, s.last)
		}
		if c, err = s.begin(item, id); err != nil {
			return err
		}
		s.byIndex[i], s.last = c, i
	}
	if !item.Given(c.kind) {
		return nil
	}
	o, err := item.Object(c.kind)
	if err != nil {
		return err
	}
	text, err := o.OptionalString(textField(c.kind))
	if err != nil {
		return err
	}
	if c.out && strings.Trim(text, " \t\r\n") != "" {
		return strictjson.Errorf(item.Path(), "goes on with a call that was whole; it runs without that")
	}
	if c.out {
		return nil
	}
	if text == "" {
		return nil
	}
	c.shape.grow(text)
	return s.Calls.Grow(c.open, o.Value(textField(c.kind)))
}

// textField is the input's field of a kind of call.
func textField(kind string) string {
	if kind == "custom" {
		return "input"
	}
	return "arguments"
}

// begin adds a call, and ends the earlier ones that are complete objects.
func (s *stream) begin(item strictjson.Object, id string) (*openCall, error) {
	for _, before := range slices.Clone(s.open) {
		if before.kind == "function" && before.shape.closed && !before.shape.broken {
			if !strictjson.Valid([]byte(strings.Trim(before.open.Text(), " \t\r\n")), strictjson.MaxInputDepth) {
				before.shape.broken = true
				continue
			}
			if err := s.end([]*openCall{before}, ""); err != nil {
				return nil, err
			}
		}
	}
	c := &openCall{id: id, kind: "function", item: item}
	if item.Text("type") == "custom" {
		c.kind = "custom"
	}
	var err error
	if c.function, err = item.Object(c.kind); err != nil {
		return nil, err
	}
	begun, err := c.decode(eventstream.Text(""), "", item.Path())
	if err != nil {
		return nil, err
	}
	if c.open, err = s.Calls.Begin(begun); err != nil {
		return nil, err
	}
	s.open = append(s.open, c)
	return c, nil
}

// end ends calls with a finish_reason, which is about the last of them.
func (s *stream) end(calls []*openCall, reason string) error {
	for i, c := range calls {
		of := ""
		if i == len(calls)-1 {
			of = reason
		}
		whole, err := c.decode(c.open.Token(), of, c.item.Path())
		if err != nil {
			return err
		}
		if err := s.Calls.Whole(c.open, whole); err != nil {
			return err
		}
		*c = openCall{id: c.id, kind: c.kind, out: true} // what it was made of is not kept
	}
	s.open = slices.DeleteFunc(slices.Clone(s.open), func(c *openCall) bool { return c.out })
	return nil
}

// decode reads the call as that of a completion which finished for a reason.
func (c *openCall) decode(text json.RawMessage, reason, at string) (toolyard.Call, error) {
	item := eventstream.With(c.item, map[string]json.RawMessage{
		c.kind: eventstream.With(c.function, map[string]json.RawMessage{textField(c.kind): text}),
	})
	calls, err := Decode(eventstream.Object(map[string]json.RawMessage{
		"choices": eventstream.Array(eventstream.Object(map[string]json.RawMessage{
			"finish_reason": eventstream.Text(reason),
			"message":       eventstream.Object(map[string]json.RawMessage{"tool_calls": eventstream.Array(item)}),
		}))}))
	if err != nil {
		return toolyard.Call{}, eventstream.Inside(at, "choices[0].message.tool_calls[0]", err)
	}
	return calls[0], nil
}

// shape tracks the braces of a growing text, so that the text is read only once.
type shape struct {
	depth           int
	quoted, escaped bool
	closed          bool // an object or an array has ended
	broken          bool // there is something before or after it, or it is not JSON
}

func (s *shape) grow(text string) {
	for i := range len(text) {
		switch c := text[i]; {
		case s.broken:
			return
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.escaped, s.quoted = c == '\\', c != '"'
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case s.closed:
			s.broken = true
		case c == '{' || c == '[':
			s.depth++
		case s.depth == 0:
			s.broken = true
		case c == '"':
			s.quoted = true
		case c == '}' || c == ']':
			s.depth--
			s.closed = s.depth == 0
		}
	}
}
