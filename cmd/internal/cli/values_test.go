package cli

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "8589934592": 8 << 30, "8GiB": 8 << 30, "8 gib": 8 << 30, "1.5MiB": 3 << 19, "64KiB": 64 << 10,
		"2TiB": 2 << 40, "5GB": 5e9, "7B": 7, "9223372036854775807": math.MaxInt64, "9007199254740993": 1<<53 + 1,
	} {
		if n, err := ParseBytes(s); err != nil || n != want {
			t.Errorf("%q is %d, %v, want %d", s, n, err, want)
		}
	}
	for _, s := range []string{"", "GiB", "-1", "-1GiB", "8GiX", "1e9", "9223372036854775808", "99999EiB", "0x10",
		"1,5GiB", "1,024", "1.5"} {
		if n, err := ParseBytes(s); err == nil {
			t.Errorf("%q is read as %d", s, n)
		}
	}
}

// TestAWrongValue: the error names the flag and the value, and says how it is written, without functions of Go.
func TestAWrongValue(t *testing.T) {
	for _, tt := range []struct{ arg, want string }{
		{"--count=x", `--count "x": write a whole number`},
		{"--count=99999999999999999999", `--count "99999999999999999999": the number is too large`},
		{"--after=-1", `--after "-1": write a whole number`},
		{"--for=10", `--for "10": write a number with its unit, like 10s or 5m`},
		{"--yes=maybe", `--yes "maybe": write true or false`},
		{"--size=4GX", `--size "4GX": ` + howBytes},
	} {
		var size int64
		var said strings.Builder
		root := &cobra.Command{Use: "prog", RunE: func(*cobra.Command, []string) error { return nil }}
		root.Flags().Int("count", 0, "")
		root.Flags().Uint64("after", 0, "")
		root.Flags().Duration("for", 0, "")
		root.Flags().Bool("yes", false, "")
		BytesVar(root.Flags(), &size, "size", "")
		root.SetOut(io.Discard)
		status := Main(root, []string{tt.arg}, &said)
		if want := "prog: " + tt.want + "; see prog --help\n"; status != ExitUsage || said.String() != want {
			t.Errorf("%s: status %d, %q, want %q", tt.arg, status, said.String(), want)
		}
	}
}
