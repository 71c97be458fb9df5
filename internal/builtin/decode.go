package builtin

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/tool"
)

// decode reads input that has passed the schema. encoding/json would silently replace invalid UTF-8 and half surrogate
// pairs with U+FFFD, and a tool would then act on another path, or write another text, than requested. decode refuses
// both.
func decode[In any](input json.RawMessage) (In, error) {
	var in In
	switch {
	case !utf8.Valid(input):
		return in, tool.Invalid("the input is not valid UTF-8; send text as UTF-8")
	case strictjson.HalfSurrogate(input):
		return in, tool.Invalid("the input holds half of a surrogate pair (\\uD800 to \\uDFFF alone), which is no " +
			"character; send both halves or the character itself")
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return in, tool.Invalid("the input does not fit the tool: %v", err)
	}
	return in, nil
}

// whole is an integer in the input. JSON Schema also calls 5.0 and 5e0 integers, and models write them.
type whole int64

// UnmarshalJSON reads any JSON number without a fraction.
func (w *whole) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*w = whole(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return fmt.Errorf("%s is not a whole number that can be counted", b)
	}
	*w = whole(f)
	return nil
}

// between returns the number, or def if the call has none. Past the bounds it returns an error that names them.
func (w *whole) between(field string, def, least, most int64) (int64, error) {
	if w == nil {
		return def, nil
	}
	if n := int64(*w); n < least || n > most {
		return 0, tool.Invalid("%s is %d; give a number from %d to %d", field, n, least, most)
	}
	return int64(*w), nil
}
