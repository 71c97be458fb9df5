// Package pattern has the patterns with which settings name many tools or agents: a name, or the beginning of names if
// it ends in "*".
//
// Authority, ordering and failure: none; it is pure.
package pattern

import (
	"errors"
	"strings"

	"github.com/toolyard/toolyard"
)

// Check returns an error if a pattern is invalid: it is no name, or has a "*" before its end.
func Check(pattern string) error {
	if err := toolyard.CheckName("", pattern); err != nil {
		return err
	}
	if i := strings.IndexByte(pattern, '*'); i >= 0 && i != len(pattern)-1 {
		return errors.New("a * is allowed only at the end of a name")
	}
	return nil
}

// Matches reports whether a pattern matches a name.
func Matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// MatchesAny reports whether one of the patterns matches a name.
func MatchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if Matches(p, name) {
			return true
		}
	}
	return false
}
