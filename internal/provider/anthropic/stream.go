package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// NewStream reads the event stream of a Messages response. A tool_use block is complete at its content_block_stop.
// [Decode] then reads it as if it had come in a message: broken JSON becomes its input as a string. Deltas and ends of
// blocks may interleave; blocks that are not calls are skipped.
//
// A call without any input, or with broken JSON, is held until the next event, which says whether the model wrote it so
// or was stopped first. A stop_reason after the end of any other call does not cut it: text that is a complete object
// is complete whatever the model stopped for, since no prefix of an object is an object.
//
// A second message_start restarts the response; a proxy that has asked again sends one. What was incomplete by then is
// dropped.
func NewStream() *eventstream.Decoder {
	s := &stream{open: map[int64]*toolBlock{}, last: -1}
	s.Handle = s.event
	return &s.Decoder
}

type stream struct {
	eventstream.Decoder
	open map[int64]*toolBlock // tool_use blocks by index
	last int64                // the index of the latest block
	held *toolBlock           // ended without a whole input
	// begun says that there was a message_start, or a block: another message_start restarts the response.
	begun bool
}

// toolBlock is an open tool_use block.
type toolBlock struct {
	call  *eventstream.Open
	start strictjson.Object
	at    string
}

func (s *stream) event(e strictjson.Object) error {
	kind, err := e.String("type")
	if err != nil {
		return err
	}
	switch kind {
	case "message_start":
		if s.begun {
			s.Restart()
			s.open, s.last, s.held = map[int64]*toolBlock{}, -1, nil
		}
		s.begun = true
	case "content_block_start":
		s.begun = true
		return s.start(e)
	case "content_block_delta":
		return s.delta(e)
	case "content_block_stop":
		return s.stop(e)
	case "message_delta":
		return s.messageDelta(e)
	case "message_stop":
		s.Finish()
		return s.release("")
	case "error":
		return failure(e)
	}
	return nil
}

func failure(e strictjson.Object) error {
	o, err := e.Object("error")
	if err != nil {
		return eventstream.Failed("", "")
	}
	return eventstream.Failed(o.Text("type"), o.Text("message"))
}

func index(e strictjson.Object) (int64, error) {
	if !e.Given("index") {
		return 0, strictjson.Errorf(e.At("index"), "want a whole number, got %s", e.Kind("index"))
	}
	return e.OptionalInt("index", 32)
}

func (s *stream) start(e strictjson.Object) error {
	i, err := index(e)
	if err != nil {
		return err
	}
	if i <= s.last {
		return strictjson.Errorf(e.At("index"), "is %d behind %d; blocks begin in their order", i, s.last)
	}
	s.last = i
	if err := s.release(""); err != nil {
		return err
	}
	o, err := e.Object("content_block")
	if err != nil {
		return err
	}
	switch kind := o.Text("type"); {
	case kind == "tool_use":
	case strings.HasSuffix(kind, "_tool_use"): // the provider's own
		return s.Note(eventstream.Note{Type: kind, ID: o.Text("id")})
	default:
		return nil
	}
	b := &toolBlock{start: o, at: o.Path()}
	begun, err := b.decode("")
	if err != nil {
		return err
	}
	if b.call, err = s.Calls.Begin(begun); err != nil {
		return err
	}
	s.open[i] = b
	return nil
}

func (s *stream) delta(e strictjson.Object) error {
	i, err := index(e)
	if err != nil {
		return err
	}
	b, ok := s.open[i]
	if !ok {
		return nil
	}
	d, err := e.Object("delta")
	if err != nil || d.Text("type") != "input_json_delta" {
		return err
	}
	if _, err := d.String("partial_json"); err != nil {
		return err
	}
	return s.Calls.Grow(b.call, d.Value("partial_json"))
}

func (s *stream) stop(e strictjson.Object) error {
	i, err := index(e)
	if err != nil {
		return err
	}
	b, ok := s.open[i]
	if !ok {
		return nil
	}
	delete(s.open, i)
	if i == s.last && !b.call.IsWhole() {
		s.held = b
		return nil
	}
	return s.end(b, "")
}

func (s *stream) messageDelta(e strictjson.Object) error {
	d, err := e.Object("delta")
	if err != nil {
		return err
	}
	reason, err := d.OptionalString("stop_reason")
	if err != nil || reason == "" {
		return err
	}
	return s.release(reason)
}

// release ends the held call: a block follows it, or the message stops for a reason.
func (s *stream) release(reason string) error {
	b := s.held
	if b == nil {
		return nil
	}
	s.held = nil
	return s.end(b, reason)
}

func (s *stream) end(b *toolBlock, reason string) error {
	call, err := b.decode(reason)
	if err != nil {
		return err
	}
	return s.Calls.Whole(b.call, call)
}

// decode reads the block as that of a message which stopped for a reason. Without text its input is that of its start.
func (b *toolBlock) decode(reason string) (toolyard.Call, error) {
	set := map[string]json.RawMessage{}
	switch {
	case b.call == nil || b.call.Text() == "":
	case b.call.IsWhole():
		set["input"] = json.RawMessage(b.call.Text())
	default:
		set["input"] = b.call.Token()
	}
	calls, err := Decode(eventstream.Object(map[string]json.RawMessage{
		"stop_reason": eventstream.Text(reason), "content": eventstream.Array(eventstream.With(b.start, set)),
	}))
	if err != nil {
		return toolyard.Call{}, eventstream.Inside(b.at, "content[0]", err)
	}
	return calls[0], nil
}
