package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBytes: at no length is half a character left, and no more is cut than that.
func TestBytes(t *testing.T) {
	for _, text := range []string{"", "plain", "é", "aé", "日本", "a🙂b", strings.Repeat("🙂é", 9)} {
		for most := range len(text) + 3 {
			got := Bytes(text, most)
			if !strings.HasPrefix(text, got) || !utf8.ValidString(got) || len(got) > most ||
				len(got) <= most-utf8.UTFMax && got != text {
				t.Errorf("%q at %d bytes is %q", text, most, got)
			}
		}
	}
	const broken = "ab\x80\x80\x80\x80\x80\x80"
	if got := Bytes(broken, 7); got != broken[:7] {
		t.Errorf("what is no UTF-8 is cut to %q", got)
	}
	if got := Bytes("é", -1); got != "" {
		t.Errorf("less than nothing is %q", got)
	}
}

// TestMark: a mark says that something was cut.
func TestMark(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "as long as this": "as long …", "éééééé": "éééé…"} {
		if got := Mark(text, 11); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
