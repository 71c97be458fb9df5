package policy

import (
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
)

var (
	// gitValues are git's own options, before its subcommand, whose value is the next word.
	gitValues = wordSet(`-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source`)
	// gitRuns are options, without their dashes, whose value a subcommand runs.
	gitRuns = strings.Fields(`exec extcmd upload-pack receive-pack open-files-in-pager env-filter tree-filter
		index-filter parent-filter msg-filter commit-filter tag-name-filter sendmail-cmd to-cmd cc-cmd header-cmd`)
	// gitLetters are the short forms of them.
	gitLetters = map[string]byte{"rebase": 'x', "difftool": 'x', "grep": 'O', "clone": 'u'}
)

// git reads what git is told to run: its aliases, values of -c, the values of options that a subcommand runs, and the
// command of submodule foreach.
func (r *reached) git(args []shell.Word, depth int) {
	subcommand, foreach := "", false
	for i, a := range args {
		before := ""
		if i > 0 {
			before = args[i-1].Text
		}
		switch key, value, set := strings.Cut(a.Text, "="); {
		case before == "-c" && (set || subcommand == "" || subcommand == "clone"):
			r.gitVariable(a, depth)
		case key == "--config" && set:
			r.gitVariable(shell.Word{Text: value, Literal: a.Literal}, depth)
		case before == "--config-env", key == "--config-env" && set: // what a variable has is not known
			r.opaque = r.opaque || isAlias(strings.TrimPrefix(a.Text, "--config-env="), false)
		case isAlias(before, true) && (subcommand == "config" || strings.HasPrefix(a.Text, "!")):
			r.gitAlias(a, depth)
		case i > 0 && runsNext(before, subcommand):
			r.value(a.Text, depth)
		case set && runsValue(key):
			r.value(value, depth)
		case gitLetters[subcommand] != 0 && strings.HasPrefix(a.Text, "-") && !strings.HasPrefix(a.Text, "--"):
			_, glued, _ := strings.Cut(a.Text, string(gitLetters[subcommand]))
			r.value(glued, depth)
		case before == "foreach" && !foreach:
			foreach = true
			var words []string
			for _, w := range args[i:] {
				if !strings.HasPrefix(w.Text, "-") {
					words = append(words, w.Text)
				}
			}
			r.value(strings.Join(words, " "), depth)
		}
		if subcommand == "" && a.Literal && !strings.HasPrefix(a.Text, "-") && !gitValues[before] {
			subcommand = a.Text
		}
	}
}

// gitVariable reads a variable of git's configuration. Its value may name a program.
func (r *reached) gitVariable(w shell.Word, depth int) {
	key, value, _ := strings.Cut(w.Text, "=")
	if isAlias(key, w.Literal) {
		r.gitAlias(shell.Word{Text: value, Literal: w.Literal}, depth)
		return
	}
	r.value(value, depth)
}

// isAlias reports whether a variable of git's configuration is an alias. One that is not known to its end may be.
func isAlias(key string, known bool) bool {
	const section = "alias."
	key = strings.ToLower(key)
	return strings.HasPrefix(key, section) || !known && strings.HasPrefix(section, key)
}

// gitAlias reads the value of an alias: a command of git's own, or behind a "!" one of the shell.
func (r *reached) gitAlias(w shell.Word, depth int) {
	if !w.Literal {
		r.opaque = true
		return
	}
	text, foreign := strings.CutPrefix(w.Text, "!")
	if !foreign && text != "" {
		text = "git " + text
	}
	r.text(text, depth)
}

// runsNext reports whether a subcommand runs the value of an option, which is the next word.
func runsNext(option, subcommand string) bool {
	if name, long := strings.CutPrefix(option, "--"); long {
		return runsValue("--" + name)
	}
	letter := gitLetters[subcommand]
	return option == "-x" || letter != 0 && strings.HasPrefix(option, "-") && option[len(option)-1] == letter
}

// runsValue reports whether a subcommand runs the value of a long option. Git takes its beginning for the whole.
func runsValue(option string) bool {
	const short = 3 // fewer letters fit more options
	name, long := strings.CutPrefix(option, "--")
	for _, whole := range gitRuns {
		if long && len(name) >= short && strings.HasPrefix(whole, name) {
			return true
		}
	}
	return false
}
