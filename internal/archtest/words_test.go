package archtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// bannedWords are expressions that are always wrong in the comments and documents of this project, each with what to
// write instead. A word that is sometimes right does not belong here: the check must have no false alarms.
var bannedWords = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(he|his|him|himself)\b`), "repeat the noun; a process is no person"},
	{regexp.MustCompile(`(?i)\bin doubt,? (it|he|they|all|strictly)\b`), `"true on error", or "matches or may match"`},
	{regexp.MustCompile(`(?i)\bthat which\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\bhopeless\b`), "permanent"},
	{regexp.MustCompile(`(?i)\blobby\b`), "admission queue"},
	{regexp.MustCompile(`(?i)\blightens?\b`), "drops the payload"},
}

// bannedIn returns the problems of one text, which is at a place.
func bannedIn(place, text string) (problems []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, w := range bannedWords {
		if found := w.pattern.FindString(text); found != "" {
			problems = append(problems, fmt.Sprintf("%s has the words %q; write instead: %s", place, found, w.instead))
		}
	}
	return problems
}

// checkWords: no comment and no document has a banned word.
func checkWords(t *tree) (problems []string) {
	for _, p := range t.pkgs {
		for _, f := range p.files {
			for _, group := range f.syntax.Comments {
				problems = append(problems, bannedIn(f.at(group.Pos()), group.Text())...)
			}
		}
	}
	for _, doc := range t.documents() {
		problems = append(problems, bannedIn(doc, t.prose(doc))...)
	}
	return problems
}

func TestWords(t *testing.T) {
	holds(t, checkWords)
	with := func(comment string) map[string]string {
		return map[string]string{"internal/batch/a.go": "// Package batch is a state machine.\npackage batch\n\n" +
			comment + "\nvar x = \"his lobby\"\n"}
	}
	try(t, checkWords, []trial{
		{"plain", with("// x is true on error; this history has the theme of a hopeful day."), ""},
		{"pronoun", with("// x says what he wants."), "internal/batch/a.go:4"},
		{"over two lines", with("// x is true: in doubt\n// it was."), "true on error"},
		{"after code", with("var y int // that which x is"), "name the thing"},
		{"in a document", map[string]string{"docs/a.md": "A hopeless case."}, "docs/a.md"},
		{"in code of a document", map[string]string{"docs/a.md": "```\nhis\n```\n"}, ""},
	})
}
