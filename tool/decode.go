package tool

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
)

// decode reads input that has passed the schema. That it does not fit In is then the author's mistake, and the model is
// told which field. JSON Schema calls 1.0 and 1e3 integers, and models write them; encoding/json does not, nor do types
// that read numbers themselves, such as [big.Int]. So an input that is refused is read once more with such numbers
// written as integers.
func decode[In any](input json.RawMessage) (In, error) {
	var in In
	err := json.Unmarshal(input, &in)
	if err == nil {
		return in, nil
	}
	if whole := wholeNumbers(input); !bytes.Equal(whole, input) {
		var again In
		if err = json.Unmarshal(whole, &again); err == nil {
			return again, nil
		}
	}
	return in, &Error{Code: toolyard.InvalidArguments, Message: "the input does not fit the tool: " + err.Error()}
}

// wholeNumbers is a JSON text with every number that is whole, has a fraction or an exponent, and fits into 64 bits
// written as an integer.
func wholeNumbers(text []byte) []byte {
	var out bytes.Buffer
	for i := 0; i < len(text); {
		from := i
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
			out.Write(text[from:i])
		case c == '-' || c >= '0' && c <= '9':
			for i < len(text) && strings.IndexByte("+-.0123456789eE", text[i]) >= 0 {
				i++
			}
			out.WriteString(whole(string(text[from:i])))
		default:
			i++
			out.WriteByte(c)
		}
	}
	return out.Bytes()
}

// whole is a number as an integer, if it is one of 64 bits; as it was written otherwise.
func whole(number string) string {
	const mostChars, mostExponent = 100, 64 // past them arithmetic costs more than any such integer is long
	at := strings.IndexAny(number, ".eE")
	if at < 0 || len(number) > mostChars {
		return number
	}
	if at = strings.IndexAny(number, "eE"); at >= 0 {
		if exponent, err := strconv.Atoi(number[at+1:]); err != nil || exponent < -mostExponent ||
			exponent > mostExponent {
			return number
		}
	}
	r, ok := new(big.Rat).SetString(number)
	const bits = 64
	if !ok || !r.IsInt() || r.Num().BitLen() > bits {
		return number
	}
	return r.Num().String()
}
