// Package scan looks through outputs that come from outside before a model reads them, and through inputs before they
// are stored.
//
// A scanner finds something in a text, and marks it, strips it, or has the whole output withheld. It is a net under
// known tricks, and no wall: what is written in plain words passes.
//
// The package is pure.
package scan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/redact"
)

// The names of the scanners.
const (
	Invisible = "invisible" // characters that a screen leaves out and a program reads
	Secrets   = "secrets"   // secrets of this installation, and what looks like a known kind of token
)

// Rule is one scanner with what it does.
type Rule struct {
	Scanner string
	Action  toolyard.ScanAction
}

// String is the rule as [Parse] reads it.
func (r Rule) String() string { return r.Scanner + "=" + string(r.Action) }

// actions are what each scanner can do.
var actions = map[string][]toolyard.ScanAction{
	Invisible: toolyard.ScanActions,
	Secrets:   {toolyard.Strip, toolyard.Withhold}, // every result is without them
}

// Parse reads rules of the form SCANNER=ACTION, at most one of each scanner. The error names the rule and what to write
// instead.
func Parse(texts []string) ([]Rule, error) {
	var rules []Rule
	for _, text := range texts {
		name, action, ok := strings.Cut(text, "=")
		can := actions[name]
		switch {
		case !ok || can == nil:
			return nil, fmt.Errorf("%.100q: write SCANNER=ACTION with the scanner %s or %s", text, Invisible, Secrets)
		case !slices.Contains(can, toolyard.ScanAction(action)):
			return nil, fmt.Errorf("%.100q: the scanner %s can do one of %q", text, name, can)
		case slices.ContainsFunc(rules, func(r Rule) bool { return r.Scanner == name }):
			return nil, fmt.Errorf("%.100q: the scanner %s is named twice", text, name)
		}
		rules = append(rules, Rule{name, toolyard.ScanAction(action)})
	}
	return rules, nil
}

// Text applies a rule to one text. out is what is left of the text; found counts what was found by kind, nil if there
// is nothing. What is withheld is the caller's matter. secrets is what takes secrets out of a text; nil finds none.
func (r Rule) Text(text string, secrets func(string) string) (out string, found map[string]int) {
	switch {
	case r.Scanner == Invisible && r.Action == toolyard.Mark:
		return display.Unseen(text, false)
	case r.Scanner == Invisible:
		return display.Unseen(text, true)
	case r.Scanner == Secrets && secrets != nil:
		clean := secrets(text)
		if clean == text {
			return text, nil
		}
		// A mark that stood there before may have been taken out with a secret around it.
		return clean, map[string]int{"secret": max(1, redact.Marks(clean)-redact.Marks(text))}
	}
	return text, nil
}
