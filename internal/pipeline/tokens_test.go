package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/tokens"
)

// TestTokens: with a limit in tokens, what has more is stored, and its preview has at most as many, with both ends of
// the text and the reference. The fact names the tokenizer. A tool without a limit has none in tokens either.
func TestTokens(t *testing.T) {
	const most = 300
	count := tokens.New()
	var code strings.Builder
	for i := range 200 {
		fmt.Fprintf(&code, "func f%d() int { return %d }\n", i, i)
	}
	for name, tt := range map[string]struct {
		text string
		max  int // in characters
		cut  bool
	}{
		"few characters of many tokens":    {strings.Repeat("漢", 1_500), 0, true},
		"many characters of few tokens":    {strings.Repeat("=", 5_000), 0, false},
		"code":                             {code.String(), 0, true},
		"past the limit in characters":     {strings.Repeat("=", 5_000), 1_000, true},
		"past both limits":                 {strings.Repeat("0f3a9c ", 20_000), 10_000, true},
		"no more bytes than tokens":        {strings.Repeat("漢", most/3), 0, false},
		"a tool that has no limit":         {strings.Repeat("漢", 1_500), -1, false},
		"past the hard cap, of few tokens": {strings.Repeat(" ", MaxOutputBytes+1), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(returns(tt.text, nil), maxChars(tt.max), func(r *rig) {
				r.Tokens = &Tokens{Name: tokens.Name, Count: count, Max: most}
			})
			res := r.result(t)
			n := count(res.Output)
			said := slices.ContainsFunc(res.Phases, func(f toolyard.Fact) bool {
				return f.Phase == toolyard.PhasePersistResult && strings.Contains(f.Detail,
					fmt.Sprintf("%d tokens of o200k_base go to the model, of at most 300", n))
			})
			whole := len(tt.text) > MaxOutputBytes // of which only a preview is kept, in the error's result
			if res.Truncated != tt.cut || !whole && said != tt.cut || !utf8.ValidString(res.Output) {
				t.Fatalf("truncated %t, told %t: %+v", res.Truncated, said, res)
			}
			if !tt.cut {
				return
			}
			if n > most || n < most/2 && len(tt.text) < MaxOutputBytes && tt.max == 0 {
				t.Errorf("the preview has %d tokens, want nearly %d", n, most)
			}
			if !whole && (!strings.Contains(res.Output, `ref "ref-1"`) || r.stored[0] != tt.text ||
				!strings.HasPrefix(res.Output, tt.text[:9]) ||
				!strings.HasSuffix(res.Output, tt.text[len(tt.text)-9:])) {
				t.Errorf("the preview is %s", res.Output)
			}
		})
	}
}
