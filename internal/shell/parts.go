package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Part is one simple command of a line, for rules that allow: each part must either be allowed or only read.
type Part struct {
	// Args are the name and the arguments. A part with its own syntax, such as a loop, has none.
	Args []Word
	// Plain says that the part consists of its arguments, all of them literal.
	Plain bool
	// Reads says that the part only reads in its position.
	Reads bool
}

// Parts splits a command line into its simple commands. ok is false if the line has anything else: a part that is not
// plain and does not only read.
func Parts(command string) (parts []Part, ok bool) {
	file, err := read(command)
	if err != nil {
		return nil, false
	}
	defer func() {
		if recover() != nil { // as in [recovered]
			parts, ok = nil, false
		}
	}()
	p := parter{judge: judge{moves: moves(file)}}
	ok = p.stmts(file.Stmts)
	return p.parts, ok && len(p.parts) > 0
}

type parter struct {
	judge judge
	parts []Part
}

func (p *parter) stmts(list []*syntax.Stmt) bool {
	for _, s := range list {
		if !p.stmt(s) {
			return false
		}
	}
	return true
}

func (p *parter) stmt(s *syntax.Stmt) bool {
	plain := !s.Background && !s.Coprocess && !s.Disown
	for _, r := range s.Redirs {
		plain = plain && discards(r)
	}
	if plain {
		switch c := s.Cmd.(type) {
		case *syntax.BinaryCmd:
			return p.stmt(c.X) && p.stmt(c.Y)
		case *syntax.Subshell:
			return p.stmts(c.Stmts)
		case *syntax.Block:
			return p.stmts(c.Stmts)
		case *syntax.IfClause:
			for ; c != nil; c = c.Else {
				if !p.stmts(c.Cond) || !p.stmts(c.Then) {
					return false
				}
			}
			return true
		case *syntax.WhileClause:
			return p.stmts(c.Cond) && p.stmts(c.Do)
		case *syntax.TimeClause:
			return c.Stmt != nil && p.stmt(c.Stmt)
		}
	}
	part := Part{Reads: p.judge.stmt(s) == nil}
	if c, ok := s.Cmd.(*syntax.CallExpr); ok {
		part.Args = readWords(c.Args)
		part.Plain = plain && len(c.Assigns) == 0 && len(c.Args) > 0
		for _, w := range part.Args {
			part.Plain = part.Plain && w.Literal
		}
	} else if moves(s) {
		return false
	}
	p.parts = append(p.parts, part)
	return part.Reads || part.Plain
}

func readWords(list []*syntax.Word) []Word {
	out := make([]Word, len(list))
	for i, w := range list {
		out[i] = readWord(w)
	}
	return out
}

// moves reports whether something may change the directory in which later commands run.
func moves(n syntax.Node) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			found = found || readWord(c.Args[0]).Text == "cd"
		}
		return !found
	})
	return found
}

// Behind returns the command, with all its arguments, that timeout, nice or stdbuf runs. ok is false for any other
// program, and if there are unknown words before the command.
func Behind(args []Word) (command []Word, ok bool) {
	if len(args) == 0 || !args[0].Literal {
		return nil, false
	}
	w, ok := bounds[args[0].Text]
	if !ok {
		return nil, false
	}
	rest := args[1:]
	for len(rest) > 0 && rest[0].Literal && len(rest[0].Text) > 1 && rest[0].Text[0] == '-' {
		word := rest[0].Text
		rest = rest[1:]
		name, _, valued := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "--") && (w.flags[word] || valued && w.values[name]):
		case !strings.HasPrefix(word, "--") && w.flags[word]:
		case w.number && digits(word[1:]):
		case w.values[word] && len(rest) > 0 && rest[0].Literal:
			rest = rest[1:]
		case len(word) > 2 && word[1] != '-' && w.values[word[:2]]: // -k5
		default:
			return nil, false
		}
	}
	for range w.operands {
		if len(rest) == 0 || !rest[0].Literal || rest[0].Text == "" ||
			!strings.Contains("0123456789.", rest[0].Text[:1]) {
			return nil, false
		}
		rest = rest[1:]
	}
	return rest, len(rest) > 0
}

// bounds are the programs that [Behind] knows.
var bounds = map[string]struct {
	flags, values map[string]bool
	number        bool // -10 is an option
	operands      int  // numbers before the command
}{
	"timeout": {flags: set("--foreground --preserve-status -v --verbose"), values: set("-k --kill-after -s --signal"),
		operands: 1},
	"nice":   {values: set("-n --adjustment"), number: true},
	"stdbuf": {values: set("-i --input -o --output -e --error")},
}
