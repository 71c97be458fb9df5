package shell

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// read parses a command, or says why its meaning may be ambiguous.
func read(command string) (file *syntax.File, err error) {
	if len(command) > MaxCommandBytes {
		return nil, fmt.Errorf("the command is %d bytes long; at most %d are read", len(command), MaxCommandBytes)
	}
	if !utf8.ValidString(command) {
		return nil, errors.New("the command is not valid UTF-8")
	}
	// Bash reads a carriage return as a letter, and the parser may read it as the end of a line. Commands have no use
	// for the other control characters.
	for i := range len(command) {
		if c := command[i]; c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
			return nil, fmt.Errorf("the command has the control character %#02x at byte %d", c, i)
		}
	}
	defer recovered(&err)
	file, err = syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).
		Parse(strings.NewReader(command), "")
	if err != nil {
		return nil, fmt.Errorf("the command does not parse: %w", err)
	}
	if err := checkHeredocs(file); err != nil {
		return nil, err
	}
	return file, checkReadings(file, command)
}

// recovered turns a panic of the parser into an error. Call it only by defer.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the parser failed on the command: %v", r)
	}
}

// checkHeredocs refuses here-documents whose end Bash may see in another place: text for one reader would be a command
// for the other. Bash before 5.2 ends one inside a substitution at "EOF)", and quoting in a delimiter has special
// cases.
func checkHeredocs(file *syntax.File) error {
	var err error
	var inSubst []bool // for each open node: is it, or is it inside, a substitution?
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			inSubst = inSubst[:len(inSubst)-1]
			return true
		}
		inside := len(inSubst) > 0 && inSubst[len(inSubst)-1]
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			inside = true
		case *syntax.Redirect:
			if n.Op != syntax.Hdoc && n.Op != syntax.DashHdoc {
				break
			}
			if inside {
				err = errors.New("a here-document stands inside a substitution, where shells differ on its end")
			} else if !plainDelimiter(n.Word) {
				err = errors.New("a here-document's delimiter is not a plain word")
			}
		}
		inSubst = append(inSubst, inside)
		return true
	})
	return err
}

// plainDelimiter reports whether a here-document's delimiter is one run of letters, digits and "_", bare or in one pair
// of quotes.
func plainDelimiter(w *syntax.Word) bool {
	if w == nil || len(w.Parts) != 1 {
		return false
	}
	var text string
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		text = p.Value
	case *syntax.SglQuoted:
		if !p.Dollar {
			text = p.Value
		}
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 && !p.Dollar {
			if lit, ok := p.Parts[0].(*syntax.Lit); ok {
				text = lit.Value
			}
		}
	}
	odd := func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}
	return text != "" && !strings.ContainsFunc(text, odd)
}

// checkReadings refuses what Bash reads in another way than the parser: a comment that ends in a backslash (for Bash
// the next line is a command), a here-document whose delimiter stands in an expansion or is continued over a line's
// end, quotes and process substitutions in the word of a parameter expansion, what ">&" names if it is no plain word,
// and expansions in a list of patterns, of which the parser knows the text alone.
func checkReadings(file *syntax.File, command string) error {
	var err error
	refuse := func(why string) {
		if err == nil {
			err = errors.New(why)
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Comment:
			line, _, _ := strings.Cut(command[n.Hash.Offset():], "\n")
			if strings.HasSuffix(line, `\`) {
				refuse("a comment ends in a backslash, and shells differ on whether it goes on")
			}
			if at := n.Hash.Offset(); at > 0 && strings.IndexByte(" \t\n;&|()", command[at-1]) < 0 {
				refuse("a comment begins in the middle of a word, and shells differ on whether it is one")
			}
		case *syntax.Redirect:
			// Bash makes &> of a >& that names no descriptor, and expands its word a second time, without the quotes.
			if w := readWord(n.Word); n.Op == syntax.DplOut && (!w.Literal || strings.ContainsAny(w.Text, "$`<>")) {
				refuse("what stands behind >& is no plain word, and shells differ on how often it is expanded")
			}
			if (n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc) && n.Hdoc != nil && n.Word.Lit() != "" {
				body := command[n.Hdoc.Pos().Offset():n.Hdoc.End().Offset()]
				if strings.Contains(body, "\\\n") {
					refuse("a line of a here-document ends in a backslash, where shells differ on its end")
				}
				lines := strings.Split(strings.TrimRight(body, "\n"), "\n")
				for _, line := range lines[:len(lines)-1] {
					if strings.TrimLeft(line, "\t") == n.Word.Lit() {
						refuse("a here-document's delimiter stands inside it, where shells differ on its end")
					}
				}
			}
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.CStyleLoop, *syntax.LetClause, *syntax.Assign:
			// In arithmetic, as in an index, Bash expands what stands between single quotes.
			if a, ok := n.(*syntax.Assign); ok {
				if a.Index == nil {
					break
				}
				n = a.Index
			}
			if strings.Contains(command[n.Pos().Offset():n.End().Offset()], "'") {
				refuse("arithmetic has single quotes in it, which shells read differently")
			}
		case *syntax.ExtGlob:
			if n.Pattern != nil && strings.ContainsAny(n.Pattern.Value, "$`<>'\"\\") {
				refuse("a list of patterns has an expansion or quotes in it, which are not looked into")
			}
		case *syntax.ParamExp:
			// The word behind the operator, as Bash reads it, depends on what stands around the expansion.
			text := command[n.Pos().Offset():n.End().Offset()]
			if strings.Contains(text, "'") || strings.Contains(text, "<(") || strings.Contains(text, ">(") {
				refuse("a parameter expansion has quotes or a process substitution in it, which shells read differently")
			}
		}
		return err == nil
	})
	return err
}
