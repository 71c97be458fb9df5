package shell

import (
	"errors"
	"regexp"
	"strings"
)

// sed allows scripts that print, delete and substitute lines: sed -n 10,20p file, sed 's/a/b/g'. Its language can also
// write files and run commands. Of its options -n, -E, -r, -u and -e are allowed: -i writes, -f reads a script.
func sed(args []Word) error {
	refused := errors.New("its script is not known to only read; sed -n 10,20p and sed 's/a/b/g' do")
	expects, given := false, false // the next word is a script; one was given with -e
	for i, a := range args {
		if !expects && strings.HasPrefix(a.Text, "-") && a.Text != "-" {
			letters := a.Text[1:]
			plain := strings.TrimSuffix(letters, "e")
			if !a.Literal || strings.Trim(plain, "nEru") != "" {
				return notKnown(a)
			}
			if expects = plain != letters; expects && !given && !firstScript(args[:i]) {
				return refused // what was taken for the script is a file then, and was not looked at as one
			}
			given = given || expects
			continue
		}
		if expects || !given && firstScript(args[:i]) {
			if !a.Literal || !sedScript.MatchString(a.Text) {
				return refused
			}
			expects = false
			continue
		}
		if !a.operand() {
			return notKnown(a)
		}
	}
	if expects || !given && firstScript(args) {
		return refused
	}
	return nil
}

// firstScript reports whether there are only options so far.
func firstScript(args []Word) bool {
	for _, a := range args {
		if !strings.HasPrefix(a.Text, "-") || a.Text == "-" {
			return false
		}
	}
	return true
}

// sedScript matches scripts of the commands p, d, q, = and s. Between slashes stands what each sed reads up to the next
// slash that has no backslash before it. For some a slash in brackets is none, so that brackets have neither.
var sedScript = func() *regexp.Regexp {
	const (
		text    = `(?:[^/\\\n]|\\[^\n])*`
		regex   = `(?:[^/\\\n\[]|\\[^\n]|\[\^?\]?[^/\\\n\[\]]*\])*`
		pattern = `/` + regex + `/I?`
		address = `(?:[0-9]+|\$|` + pattern + `)`
		span    = `(?:` + address + `(?:,(?:\+?[0-9]+|\$|` + pattern + `))? *!? *)?`
		command = `(?:[pdq=]|s/` + regex + `/` + text + `/[gpI0-9]*)`
		line    = ` *` + span + command + ` *`
	)
	return regexp.MustCompile(`^` + line + `(?:;` + line + `)*;?$`)
}()
