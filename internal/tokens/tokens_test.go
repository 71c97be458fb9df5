package tokens

import (
	"strings"
	"sync"
	"testing"
)

// TestCount: the counts are those of js-tiktoken 1.0.21 for o200k_base, in all goroutines at a time.
func TestCount(t *testing.T) {
	count := New()
	var all sync.WaitGroup
	for text, want := range map[string]int{"": 0, "hello world": 2, "tiktoken is great!": 6, "\n\n\n": 1,
		"func main() {\n\tfmt.Println(\"hi\")\n}\n": 10, strings.Repeat("a", 64): 8, "お誕生日おめでとう": 8, "<|endoftext|>": 7,
		"The year 2026 isn't over: 12,345.67 €\r\n": 16, "    if x == nil { return }": 8, strings.Repeat("=", 300): 5,
		strings.Repeat(" ", 1000) + "x": 10, "𝕏 naïve façade 漢字仮名交じり": 15,
	} {
		all.Go(func() {
			if got := count(text); got != want {
				t.Errorf("%q has %d tokens, want %d", text, got, want)
			}
		})
	}
	all.Wait()
}

// FuzzCount: no text has more tokens than bytes, which is what callers rely on who do not count short texts.
func FuzzCount(f *testing.F) {
	for _, text := range []string{"", "a", "漢字", "\xff\xfe", "a\xc3", strings.Repeat(" ", 300), "'s 'T \r\n\u2028"} {
		f.Add(text)
	}
	count := New()
	f.Fuzz(func(t *testing.T, text string) {
		if n := count(text); n > len(text) || n == 0 && text != "" {
			t.Errorf("%q has %d tokens in %d bytes", text, n, len(text))
		}
	})
}
