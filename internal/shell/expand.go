package shell

import (
	"errors"
	"fmt"

	"mvdan.cc/sh/v3/syntax"
)

var (
	// An index in an arithmetic expression (a[$(rm x)]) can run a command, also if it comes out of a variable.
	errArithmetic = errors.New("it has arithmetic, which can set variables and run commands")
	errBackquotes = errors.New("it has backquotes, whose inner quoting is easily misread; $(…) is looked into")
)

func (j *judge) words(list []*syntax.Word) error {
	for _, w := range list {
		if err := j.word(w); err != nil {
			return err
		}
	}
	return nil
}

// word says why expanding a word may do more than read. What the word means to a program is checked elsewhere.
func (j *judge) word(w *syntax.Word) error {
	if w == nil {
		return nil
	}
	return j.parts(w.Parts)
}

func (j *judge) parts(list []syntax.WordPart) error {
	for _, part := range list {
		var err error
		switch p := part.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			err = j.parts(p.Parts)
		case *syntax.ParamExp:
			err = j.param(p)
		case *syntax.CmdSubst:
			switch {
			case p.Backquotes:
				err = errBackquotes
			case p.TempFile || p.ReplyVar:
				err = errors.New("it runs a substitution in its own shell")
			default:
				err = j.stmts(p.Stmts)
			}
		case *syntax.ProcSubst:
			if p.Op != syntax.CmdIn {
				return errors.New("it writes to a process substitution")
			}
			err = j.stmts(p.Stmts)
		case *syntax.ArithmExp:
			err = errArithmetic
		default:
			err = errors.New("it has an expansion that is not known to only read")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// param allows $x, ${x}, ${#x}, and the forms that give a default or remove a part. The others can assign (:=), end the
// shell (:?), evaluate arithmetic (an index, a slice), or read the value as code (@P, !).
func (j *judge) param(p *syntax.ParamExp) error {
	refused := errors.New("it has a parameter expansion that is not known to only read")
	if p.Param == nil || !simple(p) || p.Length && p.Exp != nil {
		return refused
	}
	if p.Exp == nil {
		return nil
	}
	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull,
		syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		return j.word(p.Exp.Word)
	}
	return fmt.Errorf("%w: %s", refused, p.Exp.Op)
}

// simple reports whether an expansion has only the parts that param knows.
func simple(p *syntax.ParamExp) bool {
	return p.Flags == nil && !p.Excl && !p.Width && !p.IsSet && p.Split == syntax.OptUnset &&
		p.GlobSubst == syntax.OptUnset &&
		p.RcExpand == syntax.OptUnset && p.NestedParam == nil && p.Index == nil && len(p.Modifiers) == 0 &&
		p.Slice == nil &&
		p.Repl == nil && p.Names == 0
}
