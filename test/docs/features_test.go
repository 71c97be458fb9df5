package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	stateWhole = "whole"
	statePart  = "in part"
	stateNone  = "not there"
)

var (
	namedTest = regexp.MustCompile("`Test[A-Z]\\w*`")
	pageLink  = regexp.MustCompile(`\]\([^)]+\)`)
)

// featuresAreWrong says what is wrong with the rows of a page of features, and counts their states. That each test that
// a row names exists is seen by package archtest, as in all documents.
func featuresAreWrong(text string) (problems []string, states map[string]int) {
	states = map[string]int{}
	var ids []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| row |") || strings.HasPrefix(line, "| --- |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 5 {
			problems = append(problems, fmt.Sprintf("%d cells in %q", len(cells), line))
			continue
		}
		id, how, tests := strings.TrimSpace(cells[0]), cells[2], cells[3]
		state, missing, _ := strings.Cut(strings.TrimSpace(cells[4]), ": ")
		states[state]++
		if slices.Contains(ids, id) {
			problems = append(problems, id+" is there twice")
		}
		ids = append(ids, id)
		known := slices.Contains([]string{stateWhole, statePart, stateNone}, state)
		if !known || (state == statePart) != (missing != "") {
			problems = append(problems, fmt.Sprintf("%s has the state %q", id, cells[4]))
		}
		if there := state != stateNone; namedTest.MatchString(tests) != there {
			problems = append(problems, fmt.Sprintf("%s is %q and names the tests %q", id, state, tests))
		} else if there && !pageLink.MatchString(how) {
			problems = append(problems, id+" links to no page")
		}
	}
	return problems, states
}

// TestFeatures: each row of the features that is there names a test and links to a page, one that is not names none,
// and the page's first lines count them.
func TestFeatures(t *testing.T) {
	page := read(t, "docs/features.md")
	problems, states := featuresAreWrong(page)
	for _, p := range problems {
		t.Error("docs/features.md: " + p)
	}
	want := fmt.Sprintf("%d rows are whole, %d are there in part, and %d are not there.", states[stateWhole],
		states[statePart], states[stateNone])
	if states[stateWhole] == 0 || !strings.Contains(page, want) {
		t.Errorf("docs/features.md does not say: %s", want)
	}
	for row, ok := range map[string]bool{
		"| A1 | what | [how](a.md) | `TestIt` | whole |":                         true,
		"| A1 | what | [how](a.md) | `TestIt` | in part: no more |":              true,
		"| A1 | what | - | - | not there |":                                      true,
		"| A1 | what | [how](a.md) | - | whole |":                                false,
		"| A1 | what | how | `TestIt` | whole |":                                 false,
		"| A1 | what | [how](a.md) | `TestIt` | in part |":                       false,
		"| A1 | what | [how](a.md) | `TestIt` | whole: but |":                    false,
		"| A1 | what | [how](a.md) | `TestIt` | nearly |":                        false,
		"| A1 | what | [how](a.md) | `TestIt` | not there |":                     false,
		"| A1 | what | [how](a.md) | `TestIt` |":                                 false,
		"| A | w | [h](a.md) | `TestA` | whole |\n| A | w | - | - | not there |": false,
	} {
		if problems, _ := featuresAreWrong(row); (len(problems) == 0) != ok {
			t.Errorf("%s: %q", row, problems)
		}
	}
}
