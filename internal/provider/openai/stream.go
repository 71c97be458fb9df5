package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// NewStream reads the event stream of a Responses response. A call is complete with its response.output_item.done,
// which has the item with all its arguments. [Decode] then reads it as if it had come in an output. The deltas before
// it repeat its content and are ignored; they may interleave. An item that began and was never done is cut, whatever
// the response ended with.
//
// A done item without a status is held until the next item or the end, if its call depends on whether the model was
// stopped in it: only an incomplete response says so, behind it.
//
// Unlike an output, a stream cannot know that a call is answered further down, so the call runs. Items that the
// provider executes, or that nobody here can answer, are recorded as notes with their response.output_item.done and do
// not end the stream.
func NewStream() *eventstream.Decoder {
	s := &stream{open: map[int64]*eventstream.Open{}, noted: map[int64]bool{}, last: -1}
	s.Handle = s.event
	return &s.Decoder
}

type stream struct {
	eventstream.Decoder
	open  map[int64]*eventstream.Open // calls by output_index
	noted map[int64]bool              // items that are not our calls, by output_index
	last  int64                       // the output_index of the latest item
	held  *heldItem                   // done, and the last one so far
}

// heldItem is a done item whose call is another one if the response stops here.
type heldItem struct {
	call *eventstream.Open
	item strictjson.Object
}

func (s *stream) event(e strictjson.Object) error {
	kind, err := e.String("type")
	if err != nil {
		return err
	}
	switch kind {
	case "response.output_item.added":
		return s.added(e)
	case "response.output_item.done":
		return s.done(e)
	case "response.completed", "response.incomplete":
		s.Finish()
		return s.release(kind == "response.incomplete")
	case "response.failed":
		return failure(e)
	case "error":
		return eventstream.Failed(e.Text("code"), e.Text("message"))
	}
	return nil
}

func failure(e strictjson.Object) error {
	response, err := e.Object("response")
	if err != nil {
		return eventstream.Failed("", "")
	}
	o, err := response.Object("error")
	if err != nil {
		return eventstream.Failed("", "")
	}
	return eventstream.Failed(o.Text("code"), o.Text("message"))
}

// itemOf returns an event's item, and its position in the output.
func itemOf(e strictjson.Object) (o strictjson.Object, at int64, err error) {
	if !e.Given("output_index") {
		return o, 0, strictjson.Errorf(e.At("output_index"), "want a whole number, got %s", e.Kind("output_index"))
	}
	if at, err = e.OptionalInt("output_index", 32); err != nil {
		return o, 0, err
	}
	o, err = e.Object("item")
	return o, at, err
}

// inputs are the fields with the inputs of items. A new item may lack the field.
var inputs = map[string]string{"function_call": "arguments", customToolCall: "input"}

// added begins a call. Its arguments are not known yet.
func (s *stream) added(e strictjson.Object) error {
	o, at, err := itemOf(e)
	if err != nil {
		return err
	}
	if at <= s.last {
		return strictjson.Errorf(e.At("output_index"), "is %d behind %d; items begin in their order", at, s.last)
	}
	s.last = at
	if err := s.release(false); err != nil {
		return err
	}
	if readers[o.Text("type")] == nil {
		return nil
	}
	set := map[string]json.RawMessage{}
	if field, ok := inputs[o.Text("type")]; ok && !o.Given(field) {
		set[field] = eventstream.Text("")
	}
	call, ok, err := decodeItem(o, set, false)
	if err != nil || !ok {
		return err
	}
	s.open[at], err = s.Calls.Begin(call)
	return err
}

// done ends a call, and begins it first if no event has.
func (s *stream) done(e strictjson.Object) error {
	o, at, err := itemOf(e)
	if err != nil {
		return err
	}
	if kind := o.Text("type"); readers[kind] == nil {
		if at > s.last {
			s.last = at
			if err := s.release(false); err != nil {
				return err
			}
		}
		return s.note(o, kind, at)
	}
	begun, open := s.open[at]
	if !open {
		if at <= s.last {
			return nil // not a call, or already done
		}
		if err := s.added(e); err != nil {
			return err
		}
		if begun, open = s.open[at]; !open {
			return nil
		}
	}
	delete(s.open, at)
	call, ok, err := decodeItem(o, nil, false)
	if err != nil {
		return err
	}
	if !ok {
		s.Calls.Drop(begun)
		return nil
	}
	if at == s.last {
		cut, _, err := decodeItem(o, nil, true)
		if err != nil {
			return err
		}
		if !bytes.Equal(call.Input, cut.Input) {
			s.held = &heldItem{begun, o}
			return nil
		}
	}
	return s.Calls.Whole(begun, call)
}

// release ends the held call: an item follows it, or the response ends; stopped says that it is incomplete.
func (s *stream) release(stopped bool) error {
	h := s.held
	if h == nil {
		return nil
	}
	s.held = nil
	call, _, err := decodeItem(h.item, nil, stopped)
	if err != nil {
		return err
	}
	return s.Calls.Whole(h.call, call)
}

// note records an item that is not a call of ours. If it has a call_id, and no output in the same response, the client
// must answer it.
func (s *stream) note(o strictjson.Object, kind string, at int64) error {
	id := o.Text("call_id")
	switch {
	case strings.HasSuffix(kind, "_output") && id != "":
		s.Answered(id)
	case strings.HasSuffix(kind, "_call") && !s.noted[at]:
		s.noted[at] = true
		return s.Note(eventstream.Note{Type: kind, ID: o.Text("id"), CallID: id, Open: id != "" &&
			o.Text("execution") != "server"})
	}
	return nil
}

// decodeItem reads an item, with some of its fields set, as the last item of an output; ok is false if it is not a
// call. stopped says that the response is incomplete.
func decodeItem(o strictjson.Object, set map[string]json.RawMessage, stopped bool) (call toolyard.Call, ok bool,
	err error) {
	response := map[string]json.RawMessage{"output": eventstream.Array(eventstream.With(o, set))}
	if stopped {
		response["status"] = eventstream.Text("incomplete")
	}
	calls, err := Decode(eventstream.Object(response))
	if err != nil {
		return call, false, eventstream.Inside(o.Path(), "output[0]", err)
	}
	if len(calls) == 0 {
		return call, false, nil
	}
	return calls[0], true, nil
}
