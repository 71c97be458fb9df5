package policy

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
)

// commandPattern is a specifier for commands: the words that a simple command begins with, or consists of.
type commandPattern struct {
	words  []patternWord
	prefix bool // any further words may follow
}

// patternWord is one word of a pattern: the texts between its stars. A word without a star has one text.
type patternWord []string

// star replaces an unquoted star while a pattern is split into shell words. It is a private-use character.
const star = "\uE000"

// parseCommandPattern reads "git status:*", "git status *" or "git status". The words are split as the shell splits
// them, so that quotes mean the same in a rule and in a command. An unquoted star stands for any text: as a word for
// one or more words, and at the end also for none.
func parseCommandPattern(specifier string) (*commandPattern, error) {
	text, prefix := strings.CutSuffix(specifier, ":*")
	if strings.Contains(text, star) {
		return nil, errors.New("it has a character of the private use area; write another")
	}
	script, err := shell.Parse(markStars(text))
	switch {
	case err != nil:
		return nil, errors.New("it is not a command: write words as in git status:*, quoted as in a shell")
	case len(script.Commands) != 1 || !script.Plain():
		return nil,
			errors.New("it is not one plain command: write a rule for each, with no pipes, redirections or variables; " +
				"* stands for any words, and :* at the end means any further words")
	}
	p := &commandPattern{prefix: prefix}
	for _, w := range script.Commands[0].Args {
		p.words = append(p.words, strings.Split(w.Text, star))
	}
	for n := len(p.words); n > 0 && p.words[n-1].isStars(); n-- {
		p.words, p.prefix = p.words[:n-1], true
	}
	if len(p.words) == 0 {
		return nil, errors.New("it covers every command; for every call of the tool write just the tool")
	}
	p.prefix = p.prefix || p.words[len(p.words)-1].endsInStar()
	return p, nil
}

// markStars replaces each unquoted star with the mark.
func markStars(text string) string {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			b.WriteByte(c)
			i++
			c = text[i]
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == '*':
			b.WriteString(star)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// isStars reports whether a word consists of stars alone.
func (w patternWord) isStars() bool {
	return len(w) > 1 && !slices.ContainsFunc(w, func(s string) bool { return s != "" })
}

// endsInStar reports whether a word ends in a star.
func (w patternWord) endsInStar() bool { return len(w) > 1 && w[len(w)-1] == "" }

// matches reports whether the word matches a text.
func (w patternWord) matches(text string) bool {
	last := len(w) - 1
	if last == 0 {
		return w[0] == text
	}
	if len(text) < len(w[0])+len(w[last]) || !strings.HasPrefix(text, w[0]) || !strings.HasSuffix(text, w[last]) {
		return false
	}
	rest := text[len(w[0]) : len(text)-len(w[last])]
	for _, part := range w[1:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// leftBy reports whether a text that matches has a ".." in place of a star: build/../x is not in build/*.
func (w patternWord) leftBy(text string) bool {
	up := func(path string) (n int) {
		for name := range strings.SplitSeq(path, "/") {
			if name == ".." {
				n++
			}
		}
		return n
	}
	return len(w) > 1 && up(text) > up(strings.Join(w, "*"))
}

// matchesProgram is matches for the name of a program, whatever its path, here or there: a file has many paths, and a
// rule that denies one means the program.
func (w patternWord) matchesProgram(text string) bool {
	if len(w) == 1 && strings.Contains(w[0], "/") {
		return path.Base(w[0]) == path.Base(text)
	}
	return w.matches(text) || !strings.Contains(strings.Join(w, ""), "/") && w.matches(path.Base(text))
}

func (r Rule) commandPattern() (*commandPattern, error) {
	if r.command != nil {
		return r.command, nil
	}
	return parseCommandPattern(r.Specifier)
}

// matches reports whether a command of literal words matches, as an allow rule requires. A star inside a word stays
// within the word, and in the directory where it stands.
func (p *commandPattern) matches(args []shell.Word) bool {
	if slices.ContainsFunc(args, func(w shell.Word) bool { return !w.Literal }) {
		return false
	}
	at := make([]bool, len(args)+1) // positions at which the rest of the pattern may continue
	at[0] = true
	for _, word := range p.words {
		next := make([]bool, len(at))
		begun := false
		for i, arg := range args {
			if word.isStars() {
				begun = begun || at[i]
				next[i+1] = begun
			} else if at[i] && word.matches(arg.Text) && !word.leftBy(arg.Text) {
				next[i+1] = true
			}
		}
		at = next
	}
	return at[len(args)] || p.prefix && slices.Contains(at, true)
}

// coveredCommands reports which allow rules together cover a command line. Each part must match one of the rules, or
// only read in a directory of the workspace, and at least one part must match a rule. Prefixes that limit or slow down
// a part (timeout, nice) are ignored. The line must consist of nothing but its parts, joined: see [shell.Parts]. Behind
// a cd, and if the line begins elsewhere, a program of a relative path is another one than the rule means.
func coveredCommands(line, workspaceDir string, elsewhere bool, rules []Rule) (used []Rule, ok bool) {
	parts, ok := shell.Parts(line)
	if !ok {
		return nil, false
	}
	moved := elsewhere || slices.ContainsFunc(parts, func(p shell.Part) bool { return leavesTop(p.Args, workspaceDir) })
	for _, part := range parts {
		r, ok := covering(part, rules)
		switch {
		case ok && moved && runsNearby(part.Args): // the rule means the one that lies where the line begins
			return nil, false
		case ok && !slices.Contains(used, r):
			used = append(used, r)
		case ok:
		case !part.Reads || leavesWorkspace(part.Args, workspaceDir):
			return nil, false
		}
	}
	return used, len(used) > 0
}

// covering returns the rule that matches a simple command, or the command that it runs.
func covering(part shell.Part, rules []Rule) (match Rule, ok bool) {
	args := part.Args
	for ok := part.Plain; ok; args, ok = shell.Behind(args) {
		i := slices.IndexFunc(rules, func(r Rule) bool {
			p, err := r.commandPattern()
			return err == nil && p.matches(args)
		})
		if i >= 0 {
			return rules[i], true
		}
	}
	return Rule{}, false
}

// leavesTop reports whether a part changes to another directory than the one in which the line begins.
func leavesTop(args []shell.Word, workspaceDir string) bool {
	if len(args) == 0 || args[0].Text != "cd" && args[0].Text != "pushd" && args[0].Text != "popd" {
		return false
	}
	if len(args) != 2 || args[0].Text != "cd" || !args[1].Literal || args[1].Text == "" {
		return true
	}
	to := path.Clean(args[1].Text)
	return to != "." && (workspaceDir == "" || to != path.Clean(workspaceDir))
}

// runsNearby reports whether a simple command runs a program by a path that begins in the directory where it runs.
func runsNearby(args []shell.Word) bool {
	for ok := true; ok; args, ok = shell.Behind(args) {
		if len(args) > 0 && strings.Contains(args[0].Text, "/") && !path.IsAbs(args[0].Text) {
			return true
		}
	}
	return false
}

// leavesWorkspace reports whether a part changes to a directory that may be outside the workspace: what a rule allows
// is meant for the workspace.
func leavesWorkspace(args []shell.Word, workspaceDir string) bool {
	if len(args) == 0 || args[0].Text != "cd" {
		return false
	}
	if len(args) != 2 || !args[1].Literal {
		return true
	}
	to := path.Clean(args[1].Text)
	if path.IsAbs(to) {
		dir := path.Clean(workspaceDir)
		return workspaceDir == "" || to != dir && !strings.HasPrefix(to, strings.TrimSuffix(dir, "/")+"/")
	}
	return args[1].Text == "" || strings.HasPrefix(args[1].Text, "-") || to == ".." || strings.HasPrefix(to, "../")
}

// mayMatchScript reports whether a simple command of a line matches or may match, as a deny or ask rule requires.
func (p *commandPattern) mayMatchScript(script shell.Script) (match bool, why string) {
	all, opaque := reach(script.Commands, 0)
	if opaque {
		return true, "the command runs a shell on text that is not known"
	}
	steps := maxSteps
	for _, args := range all {
		switch p.mayMatch(args, &steps) {
		case yes:
			return true, ""
		case maybe:
			if steps <= 0 {
				return true, "the command is too long to be compared with the rule"
			}
			return true, "the command has words that are known only when it runs"
		}
	}
	return false, ""
}

// maxSteps bounds the work of one rule on one command. Past it the rule counts as a match.
const maxSteps = 1 << 20

type verdict int

const (
	no verdict = iota
	maybe
	yes
)

// mayMatch matches strictly. A program matches by its name, whatever its path. Options between the words of the
// pattern, each perhaps with a value, do not hide them (git -C . push). A star matches any number of words, and any
// text inside a word. A word that is not literal may be anything that begins with its known text; without known text it
// may be any number of words, also none.
func (p *commandPattern) mayMatch(args []shell.Word, steps *int) verdict {
	at := []int{0} // positions in args at which the rest of the pattern may continue, in order
	for k, word := range p.words {
		var next []int
		add := func(i int) {
			if len(next) == 0 || next[len(next)-1] < i {
				next = append(next, i)
			}
		}
		if word.isStars() {
			for i := at[0]; i <= len(args); i++ {
				add(i)
			}
			at = next
			*steps -= len(at)
			continue
		}
		begun := false // a word has begun as this pattern word does, and its star continues
		for n, i := 0, at[0]; i < len(args) && (begun || n < len(at)); i++ {
			if *steps--; *steps < 0 {
				return maybe
			}
			a := args[i]
			if begun && !a.Literal {
				return maybe
			}
			if begun && strings.HasSuffix(a.Text, word[len(word)-1]) {
				add(i + 1)
			}
			if n == len(at) || at[n] != i {
				continue
			}
			n++
			switch {
			case !a.Literal && mayBe(a, word, k == 0):
				return maybe
			case a.Literal && (word.matches(a.Text) || k == 0 && word.matchesProgram(a.Text)):
				add(i + 1)
			}
			begun = begun || len(word) > 1 && a.Literal && strings.HasPrefix(a.Text, word[0])
			if k > 0 && strings.HasPrefix(a.Text, "-") {
				at = skipTo(at, n, i)
			}
		}
		if len(next) == 0 {
			return no
		}
		at = next
	}
	if p.prefix || at[len(at)-1] == len(args) {
		return yes
	}
	for _, i := range at {
		if !slices.ContainsFunc(args[i:], func(w shell.Word) bool { return w.Literal || w.Text != "" }) {
			return maybe // the rest may match nothing
		}
	}
	return no
}

// skipTo adds the two positions after an option at i to at[n:], whose positions are sorted and after i.
func skipTo(at []int, n, i int) []int {
	for to := i + 1; to <= i+2; to, n = to+1, n+1 {
		if n == len(at) || at[n] != to {
			at = slices.Insert(at, n, to)
		}
	}
	return at
}

func mayBe(w shell.Word, word patternWord, name bool) bool {
	if name && len(word) == 1 && strings.HasPrefix(path.Base(word[0]), w.Text) {
		return true
	}
	return strings.HasPrefix(word[0], w.Text) || len(word) > 1 && strings.HasPrefix(w.Text, word[0]) || name &&
		strings.Contains(w.Text, "/")
}
