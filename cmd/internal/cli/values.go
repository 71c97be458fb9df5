package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
)

// howBytes says how a number of bytes is written.
const howBytes = "write bytes, like 8589934592, or a number with its unit, like 8GiB"

// ParseBytes reads a number of bytes: digits alone, or a number with its unit (8GiB, 512 MiB, 1.5GB).
func ParseBytes(s string) (int64, error) {
	if strings.Contains(s, ",") { // the library drops it: 1,5GiB would be 15 GiB
		return 0, errors.New(howBytes)
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 || strings.Contains(s, ".") && strings.Trim(s, "0123456789.") == "" {
		return 0, errors.New(howBytes)
	}
	return int64(n), nil
}

// bytesValue is the value of a flag that takes a number of bytes.
type bytesValue int64

// BytesVar defines a flag whose value is 0 at first, and which [ParseBytes] reads.
func BytesVar(f *pflag.FlagSet, p *int64, name, usage string) { f.Var((*bytesValue)(p), name, usage) }

// Set implements [pflag.Value].
func (v *bytesValue) Set(s string) error {
	n, err := ParseBytes(s)
	if err == nil {
		*v = bytesValue(n)
	}
	return err
}

// String implements [pflag.Value].
func (v *bytesValue) String() string { return strconv.FormatInt(int64(*v), 10) }

// Type implements [pflag.Value].
func (*bytesValue) Type() string { return "bytes" }

// wholeNumber says how a whole number is written that cannot be read. The flag library does not tell why.
func wholeNumber[T any](_ T, err error) string {
	if errors.Is(err, strconv.ErrRange) {
		return "the number is too large"
	}
	return "write a whole number"
}

// explain says in place of the flag library how the value of a flag is written. Its own error names functions of Go.
func explain(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	how := errors.Unwrap(bad).Error()
	switch bad.GetFlag().Value.Type() {
	case "duration":
		how = "write a number with its unit, like 10s or 5m"
	case "int", "int64":
		how = wholeNumber(strconv.ParseInt(bad.GetValue(), 0, 64))
	case "uint64":
		how = wholeNumber(strconv.ParseUint(bad.GetValue(), 0, 64))
	case "bool":
		how = "write true or false"
	}
	return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), how)
}
