package eventstream

import (
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// maxCutBytes is how much is kept of an input that was cut.
const maxCutBytes = 4 << 10

// Calls are those that have begun, in the order in which they did, until they go out.
type Calls struct {
	open  []*Open
	bytes int
	begun bool
	gone  int // how many went out
}

// Open is a call that has begun.
type Open struct {
	// Call is what is known of it: its id, its tool, and what the provider wants echoed.
	Call toolyard.Call
	text []byte
	whole,
	dropped bool
}

// Begin adds a call behind all others.
func (c *Calls) Begin(call toolyard.Call) (*Open, error) {
	if len(c.open) == MaxOpenCalls {
		return nil, tooLarge("more than %d calls have begun and not ended", MaxOpenCalls)
	}
	o := &Open{Call: call}
	c.open, c.begun = append(c.open, o), true
	return o, nil
}

// Grow adds to the text of a call's input.
func (c *Calls) Grow(o *Open, text string) error {
	if c.bytes += len(text); c.bytes > MaxOpenBytes {
		return tooLarge("the inputs of calls that have begun and not ended are longer than %d bytes", MaxOpenBytes)
	}
	o.text = append(o.text, text...)
	return nil
}

// Text is a call's input so far.
func (o *Open) Text() string { return string(o.text) }

// Whole says what a call is that has ended. Its text counts as long as it has not gone out.
func (c *Calls) Whole(o *Open, call toolyard.Call) { o.Call, o.whole = call, true }

// Drop says that it is none that is answered here.
func (c *Calls) Drop(o *Open) { o.whole, o.dropped = true, true }

// Waiting are the calls that have not ended, in order.
func (c *Calls) Waiting() (out []*Open) {
	for _, o := range c.open {
		if !o.whole {
			out = append(out, o)
		}
	}
	return out
}

// take lets those out that are whole, with all before them.
func (c *Calls) take() (out []toolyard.Call) {
	for len(c.open) > 0 && c.open[0].whole {
		out = c.next(out)
	}
	return out
}

// rest lets all others out when nothing follows. Those that have not ended are marked as cut; their input is the
// beginning of the text that came of it, for who reads the log.
func (c *Calls) rest() (out []toolyard.Call) {
	for len(c.open) > 0 {
		if o := c.open[0]; !o.whole {
			text, err := json.Marshal(string(o.text[:min(len(o.text), maxCutBytes)]))
			if err != nil {
				panic("eventstream: a string does not encode: " + err.Error())
			}
			o.Call.Input, o.Call.Incomplete = text, true
		}
		out = c.next(out)
	}
	return out
}

// forget lets go of those that have not gone out.
func (c *Calls) forget() { c.open, c.bytes = nil, 0 }

func (c *Calls) next(out []toolyard.Call) []toolyard.Call {
	o := c.open[0]
	c.open[0] = nil
	c.open, c.bytes = c.open[1:], c.bytes-len(o.text)
	if o.dropped {
		return out
	}
	c.gone++
	return append(out, o.Call)
}
