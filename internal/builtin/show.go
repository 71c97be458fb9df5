package builtin

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// show renders a path for a line of output. A name may contain a line break that would fake a line, a terminal escape
// sequence, or invalid text: such a path is shown as a quoted Go string.
func show(path string) string {
	if path == "" || !utf8.ValidString(path) || strings.ContainsFunc(path, hidden) || path[0] == '"' ||
		path != strings.TrimSpace(path) {
		return strconv.QuoteToGraphic(path)
	}
	return path
}

// hidden reports whether a rune in a name is invisible or changes how its neighbours are shown.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}

// count renders a number of things: "1 line", "2 lines".
func count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// bytesWhole renders a size in bytes, with a rounded form beside a large one: "5368709120 bytes (5.0 GiB)".
func bytesWhole(n int64) string {
	s := count(n, "byte")
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size {
			return fmt.Sprintf("%s (%.1f %s)", s, float64(n)/float64(unit.size), unit.name)
		}
	}
	return s
}
