package policy

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
)

// commandPattern is a specifier for commands: words that a simple command starts with, or is.
type commandPattern struct {
	words  []string
	prefix bool // "words:*"; otherwise exactly the words
}

// parseCommandPattern reads "git status:*" or "git status". The words are read as the shell would, so that quotes mean in a rule
// what they mean in a command.
func parseCommandPattern(specifier string) (*commandPattern, error) {
	text, prefix := strings.CutSuffix(specifier, ":*")
	script, err := shell.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a command: write words as in git status:*, quoted as in a shell")
	case len(script.Commands) != 1 || !script.Plain():
		return nil, errors.New("it is not one plain command: write a rule for each, with no pipes, redirections, variables or " +
			"globs; :* at the end means any further words")
	}
	p := &commandPattern{prefix: prefix}
	for _, w := range script.Commands[0].Args {
		p.words = append(p.words, w.Text)
	}
	return p, nil
}

func (r Rule) commandPattern() (*commandPattern, error) {
	if r.command != nil {
		return r.command, nil
	}
	return parseCommandPattern(r.Specifier)
}

// is reports whether a command of literal words matches: what an allow rule needs.
func (p *commandPattern) is(args []shell.Word) bool {
	n := len(p.words)
	if len(args) < n || !p.prefix && len(args) != n {
		return false
	}
	for i, w := range p.words {
		if !args[i].Literal || args[i].Text != w {
			return false
		}
	}
	return true
}

// coveredCommands reports which allow rules together cover a command line. Each of its parts must match one of them, or only read
// in a directory of the workspace, and one at least must match. What a part has in front of it that bounds its time or slows it down
// does not count. The line must be nothing but its parts, joined: see [shell.Parts].
func coveredCommands(line, workspaceDir string, rules []Rule) (used []Rule, ok bool) {
	parts, ok := shell.Parts(line)
	if !ok {
		return nil, false
	}
	for _, part := range parts {
		r, ok := covering(part, rules)
		switch {
		case ok && !slices.Contains(used, r):
			used = append(used, r)
		case ok:
		case !part.Reads || leaves(part.Args, workspaceDir):
			return nil, false
		}
	}
	return used, len(used) > 0
}

// covering returns the rule that a simple command matches, as it stands or as what it runs.
func covering(part shell.Part, rules []Rule) (match Rule, ok bool) {
	args := part.Args
	for ok := part.Plain; ok; args, ok = shell.Behind(args) {
		i := slices.IndexFunc(rules, func(r Rule) bool {
			p, err := r.commandPattern()
			return err == nil && p.is(args)
		})
		if i >= 0 {
			return rules[i], true
		}
	}
	return Rule{}, false
}

// leaves reports whether a part goes to a directory that is not known to be one of the workspace: what a rule allows is meant
// for the workspace.
func leaves(args []shell.Word, workspaceDir string) bool {
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

// touches reports whether some simple command of a line matches, or may: what a deny or ask rule needs.
func (p *commandPattern) touches(script shell.Script) (match bool, why string) {
	all, opaque := reach(script.Commands, 0)
	if opaque {
		return true, "the command runs a shell on text that is not known"
	}
	for _, args := range all {
		switch p.may(args) {
		case yes:
			return true, ""
		case maybe:
			return true, "the command has words that are known only when it runs"
		}
	}
	return false, ""
}

type verdict int

const (
	no verdict = iota
	maybe
	yes
)

// may matches strictly: a program is meant by its name whatever its path, and options that stand between the words of the pattern, with
// a value each perhaps, do not hide them (git -C . push). A word that is not literal may be anything that starts with
// its known text, and without any it may be no word at all, or many.
func (p *commandPattern) may(args []shell.Word) verdict {
	open := map[int]bool{0: true} // places in args from which the rest of the pattern may go on
	first, last := 0, 0           // of them
	for k, word := range p.words {
		next := map[int]bool{}
		for i := first; i <= last && i < len(args); i++ {
			if !open[i] {
				continue
			}
			a := args[i]
			switch {
			case !a.Literal && mayBe(a, word, k == 0):
				return maybe
			case a.Literal && (a.Text == word || k == 0 && !strings.Contains(word, "/") && path.Base(a.Text) == word):
				if len(next) == 0 {
					first = i + 1
				}
				next[i+1] = true
			}
			if k > 0 && strings.HasPrefix(a.Text, "-") {
				open[i+1], open[i+2] = true, true
				last = i + 2
			}
		}
		if len(next) == 0 {
			return no
		}
		open, last = next, slices.Max(slices.Collect(maps.Keys(next)))
	}
	if p.prefix || open[len(args)] {
		return yes
	}
	for i := range open {
		if !slices.ContainsFunc(args[i:], func(w shell.Word) bool { return w.Literal || w.Text != "" }) {
			return maybe // the rest may come to nothing
		}
	}
	return no
}

func mayBe(w shell.Word, word string, name bool) bool {
	return strings.HasPrefix(word, w.Text) || name && strings.Contains(w.Text, "/")
}

// Programs that run their arguments, and those that run text. What the first run can stand at any place behind them, since
// their options are not told apart from it here.
var (
	wrappers = wordSet(`builtin busybox chroot command doas entr env exec flock ionice nice nohup parallel runuser setsid stdbuf strace su
		sudo time timeout unshare watch xargs`)
	shells = wordSet(`ash bash dash eval fish ksh mksh parallel runuser sh su trap watch zsh`)
	execs  = wordSet(`-exec -execdir -ok -okdir`)
)

// maxShellDepth is how many shells in shells are looked into.
const maxShellDepth = 4

// reach lists the arguments of every command that a line is known to run, looking through wrappers and shells. opaque means that a
// shell runs text which is not known here.
func reach(commands []shell.Command, depth int) (all [][]shell.Word, opaque bool) {
	for _, c := range commands {
		if len(c.Args) == 0 {
			continue
		}
		starts := []int{0}
		if head := c.Args[0]; head.Literal {
			switch name := path.Base(head.Text); {
			case wrappers[name]:
				for i := 1; i < len(c.Args); i++ {
					starts = append(starts, i)
				}
			case name == "find":
				for i, a := range c.Args[1:] {
					if a.Literal && execs[a.Text] {
						starts = append(starts, i+2)
					}
				}
			}
		}
		inShell := false
		for _, i := range starts {
			if i >= len(c.Args) {
				break
			}
			all = append(all, c.Args[i:])
			if w := c.Args[i]; !inShell && w.Literal && shells[path.Base(w.Text)] {
				inShell = true
				inner, hidden := reachText(c.Args[i+1:], depth+1)
				if hidden {
					return nil, true
				}
				all = append(all, inner...)
			}
		}
	}
	return all, false
}

// reachText reads what a shell is given: each argument as a command line, and all together as eval would. Options and file names are
// taken for commands too, which does no harm. A shell without any reads its standard input.
func reachText(args []shell.Word, depth int) (all [][]shell.Word, opaque bool) {
	var texts []string
	operands := 0
	for _, a := range args {
		if !a.Literal {
			return nil, true
		}
		texts = append(texts, a.Text)
		if !strings.HasPrefix(a.Text, "-") {
			operands++
		}
	}
	if operands == 0 || depth > maxShellDepth {
		return nil, true
	}
	for _, text := range append(texts, strings.Join(texts, " ")) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		script, err := shell.Parse(text)
		if err != nil {
			return nil, true
		}
		inner, hidden := reach(script.Commands, depth)
		if hidden {
			return nil, true
		}
		all = append(all, inner...)
	}
	return all, false
}

func wordSet(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
