package shell

import (
	"fmt"

	"mvdan.cc/sh/v3/syntax"
)

// Portable says what a shell that is not Bash reads in another way than this package, or returns nil. For sh,
// "[[ a || $x == b ]]" runs $x, "ls &> f" runs ls in the background, and a quote ends elsewhere behind a "$".
func Portable(command string) error {
	file, err := read(command)
	if err != nil {
		return err
	}
	what := ""
	walk := func(n syntax.Node) bool {
		if what == "" {
			what = ofBash(n)
		}
		return what == ""
	}
	if err := func() (err error) {
		defer recovered(&err)
		syntax.Walk(file, walk)
		return nil
	}(); err != nil {
		return err
	}
	if what != "" {
		return fmt.Errorf("it has %s, which only Bash reads like that", what)
	}
	return nil
}

// ofBash names a node that is none of the POSIX shell's; "" for any other.
func ofBash(n syntax.Node) string {
	switch n := n.(type) {
	case *syntax.TestClause, *syntax.TestDecl:
		return "[[ ]]"
	case *syntax.ArithmCmd, *syntax.CStyleLoop, *syntax.LetClause:
		return "(( )) or let"
	case *syntax.ArithmExp:
		if n.Bracket {
			return "$[ ]"
		}
	case *syntax.CoprocClause:
		return "coproc"
	case *syntax.ForClause:
		if n.Select {
			return "select"
		}
	case *syntax.FuncDecl:
		if n.RsrvWord {
			return "the word function"
		}
	case *syntax.DeclClause:
		if v := n.Variant.Value; v != "export" && v != "readonly" {
			return v
		}
	case *syntax.ProcSubst:
		return "a process substitution"
	case *syntax.ExtGlob:
		return "a list of patterns"
	case *syntax.SglQuoted:
		if n.Dollar {
			return "$' '"
		}
	case *syntax.DblQuoted:
		if n.Dollar {
			return `$" "`
		}
	case *syntax.CmdSubst:
		if n.TempFile || n.ReplyVar {
			return "a substitution in its own shell"
		}
	case *syntax.ParamExp:
		if !simple(n) || n.Exp != nil && !posixOperator(n.Exp.Op) {
			return "a parameter expansion"
		}
	case *syntax.Assign:
		if n.Append || n.Index != nil || n.Array != nil {
			return "an array, or +="
		}
	case *syntax.CaseItem:
		if n.Op != syntax.Break {
			return "a case that falls through"
		}
	case *syntax.BinaryCmd:
		if n.Op == syntax.PipeAll {
			return "|&"
		}
	case *syntax.Redirect:
		return redirectOfBash(n)
	}
	return ""
}

func redirectOfBash(r *syntax.Redirect) string {
	switch {
	case r.N != nil && !digits(r.N.Value):
		return "{ } before a redirection"
	case r.Op == syntax.RdrAll || r.Op == syntax.AppAll || r.Op == syntax.WordHdoc:
		return r.Op.String()
	case (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && !discards(r):
		return r.Op.String() + " before a word"
	}
	return ""
}

func posixOperator(op syntax.ParExpOperator) bool {
	switch op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull,
		syntax.AssignUnset, syntax.AssignUnsetOrNull, syntax.ErrorUnset, syntax.ErrorUnsetOrNull,
		syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		return true
	}
	return false
}
