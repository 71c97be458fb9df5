package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolyard/toolyard"
)

// Classify judges a command: READ_ONLY if every part of it is known to only read, UNSAFE otherwise. why says what
// decided, for people. A command that only reads may still run forever: tail -f is READ_ONLY, and the caller needs a
// timeout.
func Classify(command string) (class toolyard.Class, why string) {
	programs, err := classify(command)
	if err != nil {
		return toolyard.Unsafe, err.Error()
	}
	return toolyard.ReadOnly, "only reads: " + strings.Join(programs, ", ")
}

// classify returns the programs that a read-only command runs, sorted, or why the command is not read-only.
func classify(command string) (programs []string, err error) {
	file, err := read(command)
	if err != nil {
		return nil, err
	}
	return classifyFile(file)
}

func classifyFile(file *syntax.File) (programs []string, err error) {
	defer recovered(&err)
	j := judge{moves: moves(file)}
	if err := j.stmts(file.Stmts); err != nil {
		return nil, err
	}
	if len(j.programs) == 0 {
		return nil, errors.New("there is no command in it")
	}
	slices.Sort(j.programs)
	return slices.Compact(j.programs), nil
}

// judge walks the syntax tree. Each method returns nil for what only reads, and otherwise says why not. A method
// refuses everything that it does not know, so that a new kind of node is UNSAFE until somebody handles it.
type judge struct {
	programs []string // seen so far
	moves    bool     // the line contains a cd
}

func (j *judge) stmts(list []*syntax.Stmt) error {
	for _, s := range list {
		if err := j.stmt(s); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) stmt(s *syntax.Stmt) error {
	if s.Background || s.Coprocess || s.Disown {
		return errors.New("it runs something in the background")
	}
	for _, r := range s.Redirs {
		if err := j.redirect(r); err != nil {
			return err
		}
	}
	switch c := s.Cmd.(type) {
	case nil: // only redirections, as in $(<file)
		return nil
	case *syntax.CallExpr:
		return j.call(c)
	case *syntax.BinaryCmd: // && || | |&
		return j.both(j.stmt(c.X), func() error { return j.stmt(c.Y) })
	case *syntax.Subshell:
		return j.stmts(c.Stmts)
	case *syntax.Block:
		return j.stmts(c.Stmts)
	case *syntax.IfClause:
		return j.ifClause(c)
	case *syntax.WhileClause:
		return j.both(j.stmts(c.Cond), func() error { return j.stmts(c.Do) })
	case *syntax.ForClause:
		return j.forClause(c)
	case *syntax.CaseClause:
		return j.caseClause(c)
	case *syntax.TestClause:
		j.programs = append(j.programs, "[[")
		return j.testExpr(c.X)
	case *syntax.TimeClause:
		if c.Stmt == nil {
			return nil
		}
		return j.stmt(c.Stmt)
	case *syntax.FuncDecl:
		return errors.New("it declares a function")
	case *syntax.DeclClause:
		return fmt.Errorf("%s sets variables", c.Variant.Value)
	case *syntax.CoprocClause:
		return errors.New("it starts a coprocess")
	case *syntax.ArithmCmd, *syntax.LetClause:
		return errArithmetic
	default:
		return errors.New("it has syntax that is not known to only read")
	}
}

func (j *judge) both(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

func (j *judge) ifClause(c *syntax.IfClause) error {
	for ; c != nil; c = c.Else { // the last "else" has no condition
		if err := j.both(j.stmts(c.Cond), func() error { return j.stmts(c.Then) }); err != nil {
			return err
		}
	}
	return nil
}

// forClause allows "for name in words". The name must be in lower case, because the loop sets it, and PATH, IFS or
// LD_PRELOAD would change what the body runs.
func (j *judge) forClause(c *syntax.ForClause) error {
	loop, ok := c.Loop.(*syntax.WordIter)
	if c.Select || !ok {
		return errors.New("it has a loop of a kind that sets variables")
	}
	if name := loop.Name.Value; strings.ToLower(name) != name {
		return fmt.Errorf("the loop sets %s, and a variable in capitals can change what programs do", name)
	}
	if err := j.words(loop.Items); err != nil {
		return err
	}
	return j.stmts(c.Do)
}

func (j *judge) caseClause(c *syntax.CaseClause) error {
	if err := j.word(c.Word); err != nil {
		return err
	}
	for _, item := range c.Items {
		if err := j.both(j.words(item.Patterns), func() error { return j.stmts(item.Stmts) }); err != nil {
			return err
		}
	}
	return nil
}

// testExpr allows the file and string tests of [[ ]]. -v, -R and the numeric comparisons evaluate their operands, and
// an array index in one can run a command.
func (j *judge) testExpr(x syntax.TestExpr) error {
	switch x := x.(type) {
	case *syntax.Word:
		return j.word(x)
	case *syntax.ParenTest:
		return j.testExpr(x.X)
	case *syntax.UnaryTest:
		switch x.Op {
		case syntax.TsNot, syntax.TsExists, syntax.TsRegFile, syntax.TsDirect, syntax.TsSmbLink, syntax.TsRead,
			syntax.TsWrite, syntax.TsExec, syntax.TsNoEmpty, syntax.TsEmpStr, syntax.TsNempStr, syntax.TsNmPipe,
			syntax.TsSocket, syntax.TsCharSp, syntax.TsBlckSp, syntax.TsFdTerm:
			return j.testExpr(x.X)
		}
		return fmt.Errorf("the test %s is not known to only read", x.Op)
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.AndTest, syntax.OrTest, syntax.TsMatch, syntax.TsMatchShort, syntax.TsNoMatch, syntax.TsBefore,
			syntax.TsAfter, syntax.TsNewer, syntax.TsOlder, syntax.TsDevIno:
			return j.both(j.testExpr(x.X), func() error { return j.testExpr(x.Y) })
		}
		return fmt.Errorf("the test %s is not known to only read", x.Op)
	}
	return errors.New("it has a test that is not known to only read")
}

// call judges a simple command.
func (j *judge) call(c *syntax.CallExpr) error {
	if len(c.Assigns) > 0 {
		return errors.New("it sets a variable")
	}
	if err := j.words(c.Args); err != nil {
		return err
	}
	args := readWords(c.Args)
	for inner, ok := Behind(args); ok; inner, ok = Behind(args) {
		j.programs = append(j.programs, args[0].Text)
		args = inner
	}
	name := args[0]
	if !name.Literal {
		return errors.New("the name of a command is not literal")
	}
	reads, ok := programs[name.Text]
	if !ok {
		return fmt.Errorf("%q is not known to only read", name.Text)
	}
	if j.moves && obeysDirectory(name.Text) {
		return fmt.Errorf("%s: beside a cd it may take another directory's configuration, which can name programs",
			name.Text)
	}
	if err := reads(args[1:]); err != nil {
		return fmt.Errorf("%s: %w", name.Text, err)
	}
	j.programs = append(j.programs, name.Text)
	return nil
}

// obeysDirectory reports whether a program takes the names of programs to run from the directory in which it runs.
func obeysDirectory(program string) bool { return program == "git" || program == "go" }
