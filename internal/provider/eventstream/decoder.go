package eventstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/sse"
)

// Decoder reads one response's event stream. It is not safe for concurrent use.
type Decoder struct {
	// Calls are those that have begun; Handle, which is the leaf's, begins and ends them.
	Calls Calls
	// Handle takes an event's data. An error breaks the stream.
	Handle func(event strictjson.Object) error

	parser sse.Parser
	bytes  int64
	events int
	over   bool
	broken error
	out    []toolyard.Call // went out before the response began anew
	anew   int
	notes  []Note
}

// Note is a part of a response that looks like a call and is none that is answered here.
type Note struct {
	Type   string `json:"type" doc:"What the provider calls it."`
	ID     string `json:"id,omitempty" doc:"The item's own id."`
	CallID string `json:"call_id,omitempty" doc:"What an output of it is paired by."`
	// Open says that the response has no output of it, and that whoever sent the request has to give one.
	Open bool `json:"open" doc:"The response has no output of it: the provider wants one from you, beside the reply."`
}

// Note is for Handle: the response has such a part.
func (d *Decoder) Note(n Note) { d.notes = append(d.notes, n) }

// Answered is for Handle: the response has the output of a part that was noted.
func (d *Decoder) Answered(callID string) {
	for i := range d.notes {
		if d.notes[i].CallID == callID {
			d.notes[i].Open = false
		}
	}
}

// Notes are the parts that were noted so far.
func (d *Decoder) Notes() []Note { return slices.Clone(d.notes) }

// Restart is for Handle: the response begins anew. What was whole goes out, and nothing else of it counts.
func (d *Decoder) Restart() {
	d.out = append(d.out, d.Calls.take()...)
	d.Calls.forget()
	d.anew, d.notes = d.Calls.gone, nil
}

// Anew is how many calls had gone out when the response began anew for the last time: they are none of the response as
// it ended. It is 0 when it did not.
func (d *Decoder) Anew() int { return d.anew }

// ErrCut is wrapped by [Decoder.End] for a stream that stopped before its last event.
var ErrCut = errors.New("the model's stream was cut before its end")

// ErrProvider is wrapped for a stream in which the provider says that it failed.
var ErrProvider = errors.New("the provider's stream says that it failed")

// Failed is the error of a stream in which the provider says that it failed.
func Failed(words string) error { return fmt.Errorf("%w: %s", ErrProvider, strictjson.Quote(words)) }

// Feed takes the next bytes and returns the calls that went out by them, in order. An error is a
// [*toolyard.InputError], or wraps [ErrProvider]: the stream is broken, the calls that are returned beside it are
// whole, nothing more is read, and [Decoder.End] has the rest. What comes behind the response's last event is not
// looked at.
func (d *Decoder) Feed(chunk []byte) ([]toolyard.Call, error) {
	if d.over || d.broken != nil {
		return nil, d.broken
	}
	d.broken = d.read(chunk)
	out := append(d.out, d.Calls.take()...)
	d.out = nil
	return out, d.broken
}

// End says that no bytes follow. It returns the calls that had begun and not gone out: those that were cut are marked
// [toolyard.Call.Incomplete]. Its error says why the stream is not whole: what broke it, or [ErrCut]; nil when it is.
func (d *Decoder) End() ([]toolyard.Call, error) {
	if d.broken == nil && !d.over {
		d.broken = ErrCut
	}
	return d.Calls.rest(), d.broken
}

// Over reports whether the response's last event was seen, or the stream is broken: nothing follows that matters.
func (d *Decoder) Over() bool { return d.over || d.broken != nil }

// Begun reports whether any call has begun.
func (d *Decoder) Begun() bool { return d.Calls.begun }

// Finish is for Handle: the event was the response's last.
func (d *Decoder) Finish() { d.over = true }

func (d *Decoder) read(chunk []byte) error {
	if d.bytes += int64(len(chunk)); d.bytes > MaxStreamBytes {
		return tooLarge("the stream is longer than %d bytes", MaxStreamBytes)
	}
	d.parser.MaxEventBytes = MaxEventBytes
	err := d.parser.Feed(chunk, d.event)
	if errors.Is(err, sse.ErrTooLong) {
		return tooLarge("an event is longer than %d bytes", MaxEventBytes)
	}
	return err
}

func tooLarge(format string, args ...any) error {
	return &toolyard.InputError{TooLarge: true, Problem: fmt.Sprintf(format, args...)}
}

// event takes an event. Its name does not count: every provider repeats it in the data.
func (d *Decoder) event(e sse.Event) error {
	data := e.Data
	at := strictjson.Item("events", d.events)
	d.events++
	if d.over {
		return nil
	}
	if string(data) == "[DONE]" { // how OpenAI's forms end, behind their last event
		return ErrCut
	}
	data, err := strictjson.Mend(data)
	if err != nil {
		return Inside(at, "", err)
	}
	event, err := strictjson.ReadObject(at, data)
	if err != nil {
		return err
	}
	return d.Handle(event)
}

// Inside gives an error in a document that was made of a part of an event its place in the stream: inner, the path of
// the part in that document, becomes at.
func Inside(at, inner string, err error) error {
	in, ok := errors.AsType[*toolyard.InputError](err)
	if !ok {
		return err
	}
	field := strings.TrimPrefix(in.Field, inner)
	if field != "" && field[0] != '.' && field[0] != '[' {
		field = "." + field
	}
	return &toolyard.InputError{Field: at + field, Problem: in.Problem, TooLarge: in.TooLarge}
}
