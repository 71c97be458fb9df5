package shell

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Answer is the meaning of exit status 1 of a command if it is an answer of the program, and not a failure.
type Answer struct {
	// Means is the meaning in words.
	Means string
	// UnlessShell says that the shell itself may have ended with that status. It then says so in its output: "bash:
	// line 1: …".
	UnlessShell bool
}

// Answers reports whether exit status 1 of a command line can only be an answer. This holds if every program that may
// determine the line's status is one that found nothing, no match or a difference.
func Answers(command string) (Answer, bool) {
	file, err := read(command)
	if err != nil {
		return Answer{}, false
	}
	a := asker{}
	err = nil
	func() {
		defer recovered(&err)
		syntax.Walk(file, a.inspect)
		if a.ok = !a.ends; a.ok {
			a.last(file.Stmts)
		}
	}()
	return a.Answer, err == nil && a.ok && a.Means != ""
}

// AnswersOf is [Answers] for a program with its arguments.
func AnswersOf(argv []string) (Answer, bool) {
	if len(argv) == 0 {
		return Answer{}, false
	}
	args := make([]Word, len(argv))
	for i, text := range argv {
		args[i] = Word{Text: text, Literal: true, single: true}
	}
	name := path.Base(argv[0])
	if (name == "sh" || name == "bash") && len(argv) == 3 && argv[1] == "-c" {
		return Answers(argv[2])
	}
	args[0].Text = name
	means := meaning(args)
	return Answer{Means: means}, means != ""
}

// asker collects the commands that may determine the status of a line.
type asker struct {
	Answer
	ok   bool
	ends bool
}

// inspect notes nodes anywhere that can end the shell, or change which command determines the status.
func (a *asker) inspect(n syntax.Node) bool {
	if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
		name := readWord(c.Args[0])
		a.ends = a.ends || !name.Literal || enders[name.Text]
	}
	if _, ok := n.(*syntax.FuncDecl); ok {
		a.ends = true
	}
	return !a.ends
}

var enders = set("exit set shopt trap exec return eval source . logout kill")

// last adds the status of a list, which is that of its last statement.
func (a *asker) last(list []*syntax.Stmt) {
	if len(list) > 0 {
		a.stmt(list[len(list)-1])
	}
}

func (a *asker) stmt(s *syntax.Stmt) {
	if s.Background || s.Coprocess || s.Disown || s.Negated { // "! grep x f" is 1 if something was found
		a.ok = false
		return
	}
	for _, r := range s.Redirs { // a file that cannot be opened is also status 1
		a.UnlessShell = a.UnlessShell || !discards(r)
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		a.call(c)
	case *syntax.TestClause:
		a.add(falseTest)
	case *syntax.BinaryCmd:
		if c.Op == syntax.AndStmt {
			a.stmt(c.X)
		}
		a.stmt(c.Y) // the status of "x || y" and "x | y" is that of y
	case *syntax.Subshell:
		a.last(c.Stmts)
	case *syntax.Block:
		a.last(c.Stmts)
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			a.last(c.Then)
		}
	case *syntax.WhileClause:
		a.last(c.Do)
	case *syntax.ForClause:
		a.last(c.Do)
	case *syntax.CaseClause:
		for _, item := range c.Items {
			a.last(item.Stmts)
		}
	case *syntax.TimeClause:
		if c.Stmt != nil {
			a.stmt(c.Stmt)
		}
	default:
		a.ok = false
	}
}

// add adds a meaning. Which of several programs has determined the status is not known.
func (a *asker) add(text string) {
	switch {
	case a.Means == "":
		a.Means = text
	case !strings.Contains(a.Means, text):
		a.Means += ", or " + text
	}
}

func (a *asker) call(c *syntax.CallExpr) {
	args := readWords(c.Args)
	for inner, ok := Behind(args); ok; inner, ok = Behind(args) {
		args = inner
	}
	means := meaning(args)
	switch {
	case means != "":
		a.add(means)
	case len(args) == 0:
		a.ok = false
	case args[0].Text == "cd":
		a.UnlessShell = true
	case !quiet[args[0].Text]:
		a.ok = false
	}
}

// quiet are programs that are not known to end with 1.
var quiet = set("echo printf true :")

const (
	notFound  = "nothing was found"
	differs   = "there are differences"
	falseTest = "the test is false"
)

// meaning is the meaning of exit status 1 of a simple command; "" if it is a failure, or may be one.
func meaning(args []Word) string {
	if len(args) == 0 || !args[0].Literal {
		return ""
	}
	switch args[0].Text {
	case "grep", "egrep", "fgrep", "rg", "zgrep":
		return notFound
	case "test", "[":
		return falseTest
	case "diff", "cmp":
		return differs
	case "git":
		return gitMeaning(args[1:])
	}
	return ""
}

func gitMeaning(args []Word) string {
	for len(args) > 0 && args[0].Literal && strings.HasPrefix(args[0].Text, "-") {
		if args[0].Text == "-C" && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	switch {
	case len(args) == 0 || !args[0].Literal:
	case args[0].Text == "grep":
		return notFound
	case args[0].Text == "diff":
		for _, a := range args[1:] {
			switch a.Text {
			case "--exit-code", "--quiet", "--no-index":
				return differs
			}
		}
	}
	return ""
}
