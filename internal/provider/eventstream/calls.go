package eventstream

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// maxCutBytes is how much of a cut input is kept.
const maxCutBytes = 4 << 10

// Calls has the calls that have begun, in that order, until they are emitted.
type Calls struct {
	open  []*Open
	bytes int
	begun bool
	gone  int // number of emitted calls
}

// Open is a call that has begun.
type Open struct {
	// Call is what is known about it: its id, its tool, and the provider's echo.
	Call toolyard.Call
	// text is the input so far as the inside of a JSON string: the two halves of a surrogate pair may come apart.
	text []byte
	size int // bytes that count towards the limit
	whole,
	dropped bool
}

// Begin adds a call after all others.
func (c *Calls) Begin(call toolyard.Call) (*Open, error) {
	if len(c.open) == MaxOpenCalls {
		return nil, tooLarge("more than %d calls have begun and not ended", MaxOpenCalls)
	}
	o := &Open{Call: call}
	c.open, c.begun = append(c.open, o), true
	return o, c.resize(o, len(call.Input))
}

// resize says how long what is kept of a call's input is now.
func (c *Calls) resize(o *Open, size int) error {
	c.bytes, o.size = c.bytes+size-o.size, size
	if c.bytes > MaxOpenBytes {
		return tooLarge("the inputs of calls that have begun and not ended are longer than %d bytes", MaxOpenBytes)
	}
	return nil
}

// Grow appends a JSON string to the text of a call's input.
func (c *Calls) Grow(o *Open, piece json.RawMessage) error {
	inside := piece[1 : len(piece)-1]
	if err := c.resize(o, o.size+len(inside)); err != nil {
		return err
	}
	o.text = append(o.text, inside...)
	return nil
}

// Text is a call's input so far.
func (o *Open) Text() (text string) {
	if err := json.Unmarshal(o.quoted(), &text); err != nil {
		panic("eventstream: strings together are no string: " + err.Error())
	}
	return text
}

// Token is the text as a JSON string. Half of a surrogate pair stays in it.
func (o *Open) Token() json.RawMessage {
	if token := o.quoted(); strictjson.HalfSurrogate(token) {
		return token
	}
	return Text(o.Text())
}

// IsWhole reports whether the text is JSON.
func (o *Open) IsWhole() bool {
	return strictjson.Valid([]byte(o.Text()), strictjson.MaxInputDepth) && !strictjson.HalfSurrogate(o.quoted())
}

func (o *Open) quoted() json.RawMessage { return slices.Concat([]byte{'"'}, o.text, []byte{'"'}) }

// Whole ends a call. Its input counts towards the limit until the call is emitted, which a call before it may delay.
func (c *Calls) Whole(o *Open, call toolyard.Call) error {
	o.Call, o.whole, o.text = call, true, nil
	if o == c.open[0] {
		return c.resize(o, 0) // it is emitted now
	}
	return c.resize(o, len(call.Input))
}

// Drop ends a call that is not executed here.
func (c *Calls) Drop(o *Open) { o.whole, o.dropped = true, true }

// Waiting returns the calls that have not ended, in order.
func (c *Calls) Waiting() (out []*Open) {
	for _, o := range c.open {
		if !o.whole {
			out = append(out, o)
		}
	}
	return out
}

// takeComplete emits the leading calls that are complete.
func (c *Calls) takeComplete() (out []toolyard.Call) {
	for len(c.open) > 0 && c.open[0].whole {
		out = c.next(out)
	}
	return out
}

// takeRest emits all other calls at the end of the stream. Those that have not ended are marked as cut. Their input is
// the beginning of their text, for readers of the log.
func (c *Calls) takeRest() (out []toolyard.Call) {
	for len(c.open) > 0 {
		if o := c.open[0]; !o.whole {
			text := o.Text()
			text = strings.ToValidUTF8(text[:min(len(text), maxCutBytes)], "")
			o.Call.Input, o.Call.Incomplete = Text(text), true
		}
		out = c.next(out)
	}
	return out
}

// reset drops the calls that were not emitted.
func (c *Calls) reset() { c.open, c.bytes = nil, 0 }

func (c *Calls) next(out []toolyard.Call) []toolyard.Call {
	o := c.open[0]
	c.open[0] = nil
	c.open, c.bytes = c.open[1:], c.bytes-o.size
	if o.dropped {
		return out
	}
	c.gone++
	return append(out, o.Call)
}
