package display

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestUnseen: characters that a screen leaves out are marked or stripped, and those that a reader needs stay.
func TestUnseen(t *testing.T) {
	for _, tt := range []struct {
		name, text, marked, stripped string
		found                        map[string]int
	}{
		{"plain", "héllo, wörld\n\t日本語", "", "", nil},
		{"tags", "a\U000e0049\U000e0067b", "a⟨U+E0049 tag⟩⟨U+E0067 tag⟩b", "ab", map[string]int{"tag": 2}},
		{"zero width", "pass\u200b\u200b\u2060word", "pass⟨2×U+200B zero width⟩⟨U+2060 zero width⟩word", "password",
			map[string]int{"zero width": 3}},
		{"bidi", "a\u202eb\u2066c", "a⟨U+202E bidi⟩b⟨U+2066 bidi⟩c", "abc", map[string]int{"bidi": 2}},
		{"a soft hyphen", "co\u00adop", "co⟨U+00AD⟩op", "coop", map[string]int{"format": 1}},
		{"selectors that carry bytes", "a\U000e0101\U000e0102",
			"a⟨U+E0101 variation selector⟩⟨U+E0102 variation selector⟩", "a",
			map[string]int{"variation selector": 2}},
		{"an empty letter", "a\u3164b", "a⟨U+3164 blank⟩b", "ab", map[string]int{"blank": 1}},
		{"a byte order mark", "\ufeffa\ufeff", "\ufeffa⟨U+FEFF zero width⟩", "\ufeffa",
			map[string]int{"zero width": 1}},
		{"a heart", "I ❤\ufe0f it, 1\ufe0f⃣", "", "", nil},
		{"a heart with too much", "❤\ufe0f\ufe0f", "❤\ufe0f⟨U+FE0F variation selector⟩", "❤\ufe0f",
			map[string]int{"variation selector": 1}},
		{"a selector behind a letter", "a\ufe0f", "a⟨U+FE0F variation selector⟩", "a",
			map[string]int{"variation selector": 1}},
		{"a family", "👨\u200d👩\u200d👧, 👩🏽\u200d💻, 🏳\ufe0f\u200d🌈", "", "", nil},
		{"a joiner in a word", "pass\u200dword", "pass⟨U+200D zero width⟩word", "password",
			map[string]int{"zero width": 1}},
		{"Persian", "می\u200cخواهم", "", "", nil},
		{"Hindi", "क\u094d\u200dष", "", "", nil},
		{"broken bytes", "a\xff\u200b", "a\ufffd⟨U+200B zero width⟩", "a\ufffd", map[string]int{"zero width": 1}},
	} {
		if tt.found == nil {
			tt.marked, tt.stripped = tt.text, tt.text
		}
		for strip, want := range map[bool]string{false: tt.marked, true: tt.stripped} {
			if got, found := Unseen(tt.text, strip); got != want || !reflect.DeepEqual(found, tt.found) {
				t.Errorf("%s: %q %v, want %q %v", tt.name, got, found, want, tt.found)
			}
		}
	}
}

// FuzzUnseen: what is left has nothing more to find, what can be seen stays, and a mark names what [Text] names.
func FuzzUnseen(f *testing.F) {
	for _, s := range []string{"", "a\u200b", "👩🏽\u200d💻", "\ufeff\ufeff", "می\u200cخ", "\U000e0041", "⟨U+200B⟩",
		"\xff\u200d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		marked, found := Unseen(text, false)
		stripped, again := Unseen(text, true)
		if none := found == nil; !reflect.DeepEqual(found, again) || none != (stripped == text) ||
			none != (marked == text) {
			t.Fatalf("%q: %q %v, %q %v", text, marked, found, stripped, again)
		}
		if _, more := Unseen(marked, false); more != nil {
			t.Fatalf("%q is marked as %q, which has %v", text, marked, more)
		}
		if _, more := Unseen(stripped, true); more != nil {
			t.Fatalf("%q is stripped to %q, which has %v", text, stripped, more)
		}
		visible := func(s string) string {
			return strings.Map(func(r rune) rune {
				if ignorable(r) {
					return -1
				}
				return r
			}, strings.ToValidUTF8(s, "\ufffd"))
		}
		if found != nil && !utf8.ValidString(stripped) ||
			utf8.ValidString(text) && visible(stripped) != visible(text) {
			t.Fatalf("%q is stripped to %q", text, stripped)
		}
		n := 0
		for _, count := range found {
			n += count
		}
		if gone := len([]rune(text)) - len([]rune(stripped)); gone != n {
			t.Fatalf("%q: %d are gone, %d were found", text, gone, n)
		}
	})
}
