package shell

import (
	"errors"

	"mvdan.cc/sh/v3/syntax"
)

// Flags say what a command has beside plain words. A rule about words cannot see through any of these.
type Flags struct {
	Assigns     bool // a variable is set: x=y, x=y cmd, for x in, export x
	Redirects   bool // a file is read or written; copies of descriptors (2>&1) and /dev/null do not count
	Substitutes bool // $(…), `…`, <(…), >(…)
	Expands     bool // a word is not literal: $x, a glob, braces, a tilde, $'…'
	Background  bool // it continues after the line ends
}

// Command is one simple command: a program or builtin and its arguments.
type Command struct {
	// Args are the name and the arguments. Empty if the command only sets variables.
	Args []Word
	Flags
}

// Script is the content of a command line. Commands are all its simple commands in order of appearance, at any depth:
// in blocks, functions, substitutions and both branches of an if. What a program does with its arguments (sh -c, xargs)
// is not included.
type Script struct {
	Commands []Command
	// Flags are set if any command or the syntax around it sets them.
	Flags
	// Functions says that a function is declared, which can have the name of any program.
	Functions bool
	// Other says that there is other syntax, such as ((…)) or [[…]].
	Other bool
}

// Plain reports whether the script consists of commands with literal words, and of ways to join them.
func (s Script) Plain() bool { return s.Flags == Flags{} && !s.Functions && !s.Other }

// Parse reads a command line for rules about its parts. It fails on commands that Bash would not run, that are empty or
// longer than [MaxCommandBytes], and on text that can be read in two ways. If it fails, a deny rule must assume that
// the command contains anything.
func Parse(command string) (script Script, err error) {
	file, err := read(command)
	if err != nil {
		return Script{}, err
	}
	defer recovered(&err)
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			script.addStmt(n)
		case *syntax.FuncDecl:
			script.Functions = true
		case *syntax.ForClause:
			script.Assigns = true
		case *syntax.CoprocClause:
			script.Background = true
		case *syntax.CmdSubst, *syntax.ProcSubst:
			script.Substitutes = true
		case *syntax.ParamExp, *syntax.ExtGlob:
			script.Expands = true
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.TestClause, *syntax.TestDecl:
			script.Other = true
		}
		return true
	})
	if len(file.Stmts) == 0 {
		return Script{}, errors.New("the command is empty")
	}
	return script, nil
}

// addStmt adds the simple command of a statement, if it is one, and the flags of the syntax around it.
func (s *Script) addStmt(st *syntax.Stmt) {
	flags := Flags{Background: st.Background || st.Coprocess || st.Disown}
	for _, r := range st.Redirs {
		flags.Redirects = flags.Redirects || !discards(r)
	}
	var args []*syntax.Word
	var names []Word // the words before args
	simple := true
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		args = c.Args
		flags.Assigns = len(c.Assigns) > 0
	case *syntax.DeclClause: // export, declare, local, …: a command with assignments for arguments
		names = []Word{{Text: c.Variant.Value, Literal: true, single: true}}
		for _, a := range c.Args {
			if a.Naked && a.Value != nil {
				args = append(args, a.Value)
			}
		}
		flags.Assigns = true
	case *syntax.LetClause:
		names = []Word{{Text: "let", Literal: true, single: true}, {}}
		flags.Assigns = true
	default:
		simple = false
	}
	if simple {
		cmd := Command{Args: names}
		for _, w := range args {
			word := readWord(w)
			cmd.Args = append(cmd.Args, word)
			flags.Expands = flags.Expands || !word.Literal
			flags.Substitutes = flags.Substitutes || substitutes(w)
		}
		cmd.Flags = flags
		s.Commands = append(s.Commands, cmd)
	}
	s.Flags = s.Flags.or(flags)
}

func (f Flags) or(g Flags) Flags {
	return Flags{
		Assigns:     f.Assigns || g.Assigns,
		Redirects:   f.Redirects || g.Redirects,
		Substitutes: f.Substitutes || g.Substitutes,
		Expands:     f.Expands || g.Expands,
		Background:  f.Background || g.Background,
	}
}

// substitutes reports whether a command runs to make the word.
func substitutes(w *syntax.Word) bool {
	found := false
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			found = true
		}
		return !found
	})
	return found
}
