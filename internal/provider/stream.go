package provider

import (
	"errors"
	"fmt"
	"io"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/provider/eventstream"
	"github.com/toolyard/toolyard/internal/provider/openai"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
)

// StreamFormats lists the formats whose event streams are read.
var StreamFormats = []Format{Anthropic, OpenAI, OpenAIChat}

// The errors of incomplete streams. An invalid event is a [*toolyard.InputError].
var (
	ErrCut      = eventstream.ErrCut
	ErrProvider = eventstream.ErrProvider
)

// Stream reads the raw event stream of one response in a format. It returns the calls that [Decode] would read from the
// whole response, each as soon as its input is complete. For an unknown format the error is a [*toolyard.InputError]
// that lists the others.
func Stream(format Format) (*eventstream.Decoder, error) {
	switch format {
	case Anthropic:
		return anthropic.NewStream(), nil
	case OpenAI:
		return openai.NewStream(), nil
	case OpenAIChat:
		return openaichat.NewStream(), nil
	}
	return nil, &toolyard.InputError{Problem: fmt.Sprintf("%q is not a format of event streams; use one of %q", format,
		StreamFormats)}
}

// pumpBytes is the size of one read from a stream.
const pumpBytes = 16 << 10

// Sink receives the calls of a stream.
type Sink struct {
	// Begin is called once, before anything else, when the first call has begun: its input is still to come.
	Begin func() error
	// Append receives calls, in order.
	Append func([]toolyard.Call) error
	// Anew says that the response has restarted: the calls so far do not belong to it. Nil: not called.
	Anew func()
	// Close says that no calls follow, and why the stream is incomplete, if it is. It is called once, also if no call
	// has begun.
	Close func(cut error) error
}

// Pump reads a stream to its end and passes its calls on. cut says why the stream is incomplete, or is nil; its calls
// have then been passed on too, and those that were cut are marked [toolyard.Call.Incomplete]. err is an error of the
// sink, which ends the reading. Bytes after the response's last event are read and ignored.
func Pump(d *eventstream.Decoder, r io.Reader, to Sink) (cut, err error) {
	begun, closed := false, false
	handed, anew := 0, 0
	give := func(calls []toolyard.Call) error {
		handed += len(calls)
		if len(calls) == 0 {
			return nil
		}
		err := to.Append(calls)
		if _, bad := errors.AsType[*toolyard.InputError](err); !bad || len(calls) == 1 {
			return err
		}
		for i := range calls { // the calls before an invalid one run, however the bytes were split
			if err := to.Append(calls[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	hand := func(calls []toolyard.Call) error {
		if d.Begun() && !begun {
			if err := to.Begin(); err != nil {
				return err
			}
			begun = true
		}
		if at := d.Anew(); at > anew {
			before := calls[:at-handed]
			calls, anew = calls[len(before):], at
			if err := give(before); err != nil {
				return err
			}
			if to.Anew != nil {
				to.Anew()
			}
		}
		return give(calls)
	}
	end := func(lost error) error {
		closed = true
		rest, why := d.End()
		if cut = why; errors.Is(why, ErrCut) && lost != nil {
			cut = fmt.Errorf("%w: %w", ErrCut, lost)
		}
		if err := hand(rest); err != nil {
			return err
		}
		return to.Close(cut)
	}
	buffer := make([]byte, pumpBytes)
	for total := 0; total <= eventstream.MaxStreamBytes; {
		n, lost := r.Read(buffer)
		total += n
		if !closed && n > 0 {
			calls, _ := d.Feed(buffer[:n]) // End returns the error
			if err := hand(calls); err != nil {
				return cut, err
			}
			if d.Over() {
				if err := end(nil); err != nil {
					return cut, err
				}
			}
		}
		if lost == nil {
			continue
		}
		if lost == io.EOF {
			lost = nil
		}
		if !closed {
			return cut, end(lost)
		}
		return cut, nil
	}
	return cut, nil
}
