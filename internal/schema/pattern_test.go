package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

const evil = `^(?=(a+)+$)(a|aa)+$` // no regular one, and exponential

func evilValue(n int) string { return strings.Repeat("a", n) + "!" }

// TestPatternsOutOfTime: a check that takes too long is refused, in bounded time, wherever the pattern is.
func TestPatternsOutOfTime(t *testing.T) {
	field := `{"type":"string","pattern":"` + evil + `"}`
	for name, schema := range map[string]string{
		"a pattern": `{"type":"object","properties":{"v":` + field + `}}`,
		"not":       `{"type":"object","properties":{"v":{"not":` + field + `}}}`,
		"a choice":  `{"type":"object","properties":{"v":{"anyOf":[` + field + `,{"type":"string"}]}}}`,
		"a name":    `{"type":"object","patternProperties":{"` + evil + `":{}}}`,
		"many patterns": `{"type":"object","additionalProperties":{"allOf":[` + strings.Repeat(field+",", 50) + field +
			`]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := CompileInput(json.RawMessage(schema))
			must.OK(t, err)
			input := map[string]any{"v": evilValue(60), evilValue(60): 1}
			if strings.Contains(schema, `"properties"`) {
				delete(input, evilValue(60))
			}
			if name == "many patterns" {
				delete(input, evilValue(60))
				for i := range 500 {
					input[fmt.Sprintf("v%d", i)] = evilValue(17) // each a little slow
				}
			}
			raw := must.JSON(t, input)
			began := time.Now()
			err = s.Validate(raw)
			if err == nil || name != "many patterns" &&
				!strings.Contains(err.Error(),
					"could not be checked within 1s against the pattern ^(?=(a+)+$)(a|aa)+$") {
				t.Errorf("%v", err)
			}
			// far more than a busy machine needs, far less than it would take
			if took := time.Since(began); took > 20*PatternTime {
				t.Errorf("took %s", took)
			}
			// The schema still works.
			if err := s.Validate(json.RawMessage(`{}`)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRegularPatternsAreLinear: a regular pattern takes time in proportion to its text, and needs no clock.
func TestRegularPatternsAreLinear(t *testing.T) {
	for _, source := range []string{`^(a+)+$`, `^(a|a)*$`, `^([a-zA-Z]+)*$`, `(x+x+)+y`, `^(?:.|\n)*$`, `^[\s\S]*$`,
		`^(([a-z])+.)+[A-Z]([a-z])+$`} {
		p, err := readPattern(source)
		if err != nil || p.linear == nil {
			t.Errorf("%s: not linear, %v", source, err)
			continue
		}
		p.budget = &budget{left: time.Hour}
		p.MatchString(strings.Repeat("a", 100_000) + "!")
	}
}

// TestAnAllowance: many slow checks take no longer than it, and a moment each; what is not slow is checked all the
// same.
func TestAnAllowance(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"v":{"type":"string","pattern":"` + evil +
		`"}}}`))
	must.OK(t, err)
	slow, err := Parse(json.RawMessage(`{"v":"` + evilValue(60) + `"}`))
	must.OK(t, err)
	quick, err := Parse(json.RawMessage(`{"v":"aaaa"}`))
	must.OK(t, err)
	allowance := NewAllowance(100 * time.Millisecond)
	began := time.Now()
	for range 30 {
		if err := s.CheckWithin(slow, allowance); err == nil ||
			!strings.Contains(err.Error(), "could not be checked within") {
			t.Fatal(err)
		}
		if err := s.CheckWithin(quick, allowance); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > 15*PatternTime { // each for itself would take 30
		t.Errorf("took %s", took)
	}
}

func TestChecksShareASchema(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"v":{"pattern":"^(?!x)(['\"])a*\\1$"}}}`))
	must.OK(t, err)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 200 {
				if err := s.Validate(json.RawMessage(`{"v":"'aaaa'"}`)); err != nil {
					t.Error(i, err)
				}
				if s.Validate(json.RawMessage(`{"v":"'aaaa"}`)) == nil {
					t.Error(i, "fits")
				}
			}
		})
	}
	all.Wait()
}

func TestUncheckedIsSaid(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"(a"},"b":{"pattern":"(a"},"c":{"pattern":"` + strings.Repeat("a", MaxPatternBytes+1) + `"}}}`))
	must.OK(t, err)
	got := s.Unchecked()
	if len(got) != 2 ||
		got[0] != "the pattern (a is not checked: it is no regular expression of ECMA-262, Go or Python" ||
		!strings.Contains(got[1], "at most 8192 are checked") {
		t.Errorf("%q", got)
	}
	if s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"a","format":"date"}}}`)); err != nil || len(s.Unchecked()) != 0 {
		t.Errorf("%v, %v", s.Unchecked(), err)
	}
}

// TestLinearMeansTheSame compares the two engines, construct by construct.
func TestLinearMeansTheSame(t *testing.T) {
	texts := []string{"", "a", "b", "ab", "aab", "a\n", "\n", "\r", "\u2028", "a-b", "-", "]", "[", "^", "$", "\\", "é",
		"😀", "_", "0", "9", " ", "\u00a0", "\ufeff", "\v", "\b", "\x00",
		"{", "}", "a{2}", "a{,2}", "aa", "α", "Ω", "А", "/", "A", "Z", "p{L}", "u{61}", "\x1a", "K", "\u0131", "ſ",
		"a\u0301", "\u180e", "\u0085", "x41"}
	for _, source := range []string{`a`, `^a$`, `.`, `^.$`, `a|b`, `^(?:a|b)+$`, `(a)(b)`, `(?<n>a)b`, `a*`, `a+?b`,
		`a{2}`, `a{2,}`, `a{0,2}b`, `^\d$`, `^\D$`, `^\w$`, `^\W$`, `^\s$`, `^\S$`,
		`\bab\b`, `a\B`, `^[abc]$`, `^[^abc]$`, `^[]$`, `^[^]$`, `^[\d-]$`, `^[a\-b]$`, `^[\w-.]$`, `^[a-c-e]$`,
		`^[\s\S]$`, `^[^\s\S]$`, `^[\b]$`, `^[\]\[]$`, `^[^\]]$`, `^\x41$`, `^\u0041$`, `^\u{1F600}$`,
		`^\uD83D\uDE00$`, `^\p{L}$`, `^\P{Lu}$`, `^\p{Script=Greek}$`, `^[\p{L}\d]$`, `^[^\p{L}]$`, `^\0$`, `^\/$`,
		`^\-$`, `^\$$`, `^\n$`, `^{$`, `^}$`, `^]$`, `a{,2}`, `^a{$`, `^[\W]$`, `^[^\D]$`, `^\t|\v|\f|\r$`,
		`a||b`, `()`, `(|a)b`, `(?:)*a`, `^[a-]$`, `^[-a]$`, `^[--0]$`, `^[\x00-\x1f]$`, `^[😀-😂]$`, `^[^😀]$`} {
		for _, d := range dialects[:2] {
			re, err := regexp2.Compile(source, d.options)
			if err != nil || !d.unicode && foreign.MatchString(source) {
				continue
			}
			goes, _, ok := linear(source, d.unicode)
			if !ok {
				t.Logf("%s: backtracks", source)
				continue
			}
			for _, text := range texts {
				want, err := re.MatchString(text)
				must.OK(t, err)
				if got := goes.MatchString(text); got != want {
					t.Errorf("%s (unicode %t) of %q: %t, want %t: %s", source, d.unicode, text, got, want, goes)
				}
			}
		}
	}
}

// TestPatternsOfGoAreMeasured: the work of a pattern of Go's or Python's is bounded by its instructions as well, of
// which a short text may make many.
func TestPatternsOfGoAreMeasured(t *testing.T) {
	for source, least := range map[string]int{`(?P<n>ab)`: 4, `(?P<n>x){500}`: 1_500,
		`(?P<n>x)` + strings.Repeat(`[ab]{1000}`, 9): 9_000} {
		p, err := readPattern(source)
		if err != nil || p.linear == nil || p.size < least {
			t.Errorf("%.40s: %v, %v; it has at least %d instructions", source, p, err, least)
		}
	}
	p, err := readPattern(`(?P<n>x)` + strings.Repeat(`[ab]{1000}`, 11))
	if err != nil || p.linear != nil {
		t.Errorf("a pattern of more than %d instructions: %.40v, %v", maxProgram, p, err)
	}
}

// FuzzPattern: any pattern is read or refused, and where both engines can match it they say the same.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{`^(?=a)\1[^\]-]*$`, `\p{Script=Greek}+|[\w-.]{2,}?`, `(?<n>\d)\k<n>`, `[^]`,
		`\A(?P<n>x)\z`, `^\u{1F600}\cA\0{,3}$`, `(?i:a)`, `[😀-😂]\s`} {
		f.Add(s, "aα😀 -2")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		if len(source) > 200 || len(text) > 200 {
			return
		}
		p, err := readPattern(source)
		if err != nil {
			return
		}
		text = strings.ToValidUTF8(text, "\ufffd") // as JSON is read
		p.budget = &budget{left: time.Hour}
		if p.linear == nil || !ecma(source) {
			return
		}
		p.backtracks.MatchTimeout = time.Second
		want, err := p.backtracks.MatchString(text)
		if err != nil {
			return
		}
		if got := p.MatchString(text); got != want {
			t.Fatalf("%q of %q: %t, and %t by the engine that backtracks; %s", source, text, got, want, p.linear)
		}
	})
}

// ecma reports whether the pattern was read as one of ECMA-262.
func ecma(source string) bool {
	for _, d := range dialects[:2] {
		if !d.unicode && foreign.MatchString(source) {
			continue
		}
		if _, err := regexp2.Compile(source, d.options); err == nil {
			return true
		}
	}
	return false
}
