package scan

import (
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/redact"
)

func TestParse(t *testing.T) {
	got, err := Parse([]string{"invisible=mark", "secrets=withhold"})
	want := []Rule{{Invisible, toolyard.Mark}, {Secrets, toolyard.Withhold}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                               "write SCANNER=ACTION",
		"invisible":                      "write SCANNER=ACTION",
		"viruses=strip":                  "write SCANNER=ACTION",
		"invisible=eat":                  `can do one of ["mark" "strip" "withhold"]`,
		"secrets=mark":                   `can do one of ["strip" "withhold"]`,
		"invisible=":                     "can do one of",
		strings.Repeat("x", 1000) + "=y": `"xxx`,
	} {
		_, err := Parse([]string{text})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.50q: %v", text, err)
		}
	}
	if _, err := Parse([]string{"secrets=strip", "secrets=withhold"}); err == nil ||
		!strings.Contains(err.Error(), "named twice") {
		t.Error(err)
	}
}

func TestText(t *testing.T) {
	clean := redact.New([]redact.Secret{{Name: "KEY", Value: "hunter2hunter2"}}).Redact
	for _, tt := range []struct {
		rule, text, want string
		found            map[string]int
	}{
		{"invisible=mark", "a\u200bb", "a⟨U+200B zero width⟩b", map[string]int{"zero width": 1}},
		{"invisible=strip", "a\u200bb", "ab", map[string]int{"zero width": 1}},
		{"invisible=withhold", "a\u200bb", "ab", map[string]int{"zero width": 1}},
		{"secrets=strip", "hunter2hunter2, hunter2hunter2", "[redacted: KEY], [redacted: KEY]",
			map[string]int{"secret": 2}},
		{"secrets=strip", "[redacted: KEY]", "[redacted: KEY]", nil},
		{"secrets=withhold", "nothing", "nothing", nil},
	} {
		rules, err := Parse([]string{tt.rule})
		if err != nil {
			t.Fatal(err)
		}
		if got, found := rules[0].Text(tt.text, clean); got != tt.want || !reflect.DeepEqual(found, tt.found) {
			t.Errorf("%s of %q: %q %v", tt.rule, tt.text, got, found)
		}
	}
	got, found := (Rule{Secrets, toolyard.Strip}).Text("hunter2hunter2", nil)
	if got != "hunter2hunter2" || found != nil {
		t.Errorf("without a redactor: %q %v", got, found)
	}
}

// FuzzParse: what is accepted is written as it is read, and nothing else is.
func FuzzParse(f *testing.F) {
	f.Add("invisible=mark")
	f.Add("secrets=")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse([]string{text})
		if err == nil && (len(rules) != 1 || rules[0].String() != text) {
			t.Fatalf("%q: %v", text, rules)
		}
	})
}
