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
	// Calls has the calls that have begun. Handle, which the provider's package sets, begins and ends them.
	Calls Calls
	// Handle handles an event's data. An error breaks the stream.
	Handle func(event strictjson.Object) error

	parser sse.Parser
	bytes  int64
	events int
	over   bool
	mayEnd bool
	broken error
	out    []toolyard.Call // emitted, and not yet returned
	anew   int
	notes  []Note
}

// Note is a part of a response that looks like a call but is not executed here.
type Note struct {
	Type   string `json:"type" doc:"What the provider calls it."`
	ID     string `json:"id,omitempty" doc:"The item's own id."`
	CallID string `json:"call_id,omitempty" doc:"What an output of it is paired by."`
	// Open says that the response has no output for it, and that the client must provide one.
	Open bool `json:"open" doc:"The response has no output of it: the provider wants one from you, beside the reply."`
}

// Note is for Handle: it records such a part of the response.
func (d *Decoder) Note(n Note) error {
	if len(d.notes) == MaxNotes {
		return tooLarge("more than %d parts look like calls and are not executed here", MaxNotes)
	}
	d.notes = append(d.notes, n)
	return nil
}

// Answered is for Handle: the response has the output of a recorded part.
func (d *Decoder) Answered(callID string) {
	for i := range d.notes {
		if d.notes[i].CallID == callID {
			d.notes[i].Open = false
		}
	}
}

// Notes returns the parts that were recorded so far.
func (d *Decoder) Notes() []Note { return slices.Clone(d.notes) }

// Restart is for Handle: the response restarts. Complete calls are emitted, and the rest is dropped.
func (d *Decoder) Restart() {
	d.out = append(d.out, d.Calls.takeComplete()...)
	d.Calls.reset()
	d.anew, d.notes = d.Calls.gone, nil
}

// Anew is the number of calls that were emitted before the last restart: they do not belong to the final response. It
// is 0 if there was no restart.
func (d *Decoder) Anew() int { return d.anew }

// ErrCut is wrapped by [Decoder.End] if the stream stopped before its last event.
var ErrCut = errors.New("the model's stream was cut before its end")

// ErrProvider is wrapped if the provider reports in the stream that it failed.
var ErrProvider = errors.New("the provider's stream says that it failed")

// Failed is the error of a stream in which the provider reports that it failed, with what it gives as its reason: each
// of kind and message may be empty.
func Failed(kind, message string) error {
	given := slices.DeleteFunc([]string{kind, message}, func(s string) bool { return s == "" })
	if len(given) == 0 {
		return fmt.Errorf("%w, and gives no reason", ErrProvider)
	}
	return fmt.Errorf("%w: %s", ErrProvider, strictjson.Quote(strings.Join(given, ": ")))
}

// Feed takes the next bytes and returns the calls that they complete, in order. An error is a [*toolyard.InputError],
// or wraps [ErrProvider]: the stream is broken, the calls returned with it are complete, nothing more is read, and
// [Decoder.End] returns the rest. Bytes after the response's last event are ignored.
func (d *Decoder) Feed(chunk []byte) ([]toolyard.Call, error) {
	if d.over || d.broken != nil {
		return nil, d.broken
	}
	d.broken = d.read(chunk)
	out := d.out
	d.out = nil
	return out, d.broken
}

// End says that no bytes follow. It returns the calls that had begun and were not emitted: those that were cut are
// marked [toolyard.Call.Incomplete]. Its error says why the stream is incomplete: what broke it, or [ErrCut]; nil if it
// is complete.
func (d *Decoder) End() ([]toolyard.Call, error) {
	if d.broken == nil && !d.over && !d.mayEnd {
		d.broken = ErrCut
	}
	return d.Calls.takeRest(), d.broken
}

// Over reports whether the response's last event was seen, or the stream is broken, so that no further bytes matter.
func (d *Decoder) Over() bool { return d.over || d.broken != nil }

// Begun reports whether any call has begun.
func (d *Decoder) Begun() bool { return d.Calls.begun }

// Finish is for Handle: the event was the last one of the response.
func (d *Decoder) Finish() { d.over = true }

// MayEnd is for Handle: it says whether the response is whole if nothing follows the event.
func (d *Decoder) MayEnd(may bool) { d.mayEnd = may }

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

// event handles an event. It ignores the event's name, because every provider repeats it in the data.
func (d *Decoder) event(e sse.Event) error {
	data := e.Data
	at := strictjson.Item("events", d.events)
	d.events++
	if d.over {
		return nil
	}
	if string(data) == "[DONE]" { // OpenAI's forms end with it, after their last event
		if d.mayEnd {
			d.Finish()
			return nil
		}
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
	err = d.Handle(event)
	d.out = append(d.out, d.Calls.takeComplete()...)
	return err
}

// Inside gives an error its place in the stream, if it comes from a document that was made from a part of an event:
// inner, the path of the part in that document, becomes at.
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
