package suggest

import (
	"strings"
	"testing"
)

// twin is the definition, without a table.
func twin(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	case a[0] == b[0]:
		return min(twin(a[1:], b[1:]), 1+twin(a[1:], b), 1+twin(a, b[1:]))
	}
	least := min(twin(a[1:], b), twin(a, b[1:]), twin(a[1:], b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, twin(a[2:], b[2:]))
	}
	return 1 + least
}

func TestDistanceAgreesWithItsDefinition(t *testing.T) {
	var words []string
	for n := range 4 * 4 * 4 * 4 {
		var w strings.Builder
		for ; n > 0; n /= 4 {
			w.WriteByte("?abc"[n%4])
		}
		words = append(words, strings.ReplaceAll(w.String(), "?", ""))
	}
	for i := 0; i < len(words); i += 7 {
		for j := 0; j < len(words); j += 5 {
			a, b := words[i], words[j]
			if got, want := distance([]byte(a), []byte(b)), twin(a, b); got != want {
				t.Fatalf("distance(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}
