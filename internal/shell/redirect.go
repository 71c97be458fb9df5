package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// discards reports whether a redirection touches no file: it copies or closes a descriptor, or its file is /dev/null.
func discards(r *syntax.Redirect) bool {
	if r.N != nil && !digits(r.N.Value) {
		return false // {fd}> sets a variable
	}
	w := readWord(r.Word)
	if !w.Literal {
		return false
	}
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		// With anything except a number or "-", >& writes a file.
		return w.Text == "-" || digits(strings.TrimSuffix(w.Text, "-"))
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrIn:
		return w.Text == "/dev/null"
	}
	return false
}

// redirect says why a redirection may write, or returns nil.
func (j *judge) redirect(r *syntax.Redirect) error {
	if discards(r) {
		return nil
	}
	if r.N != nil && !digits(r.N.Value) {
		return fmt.Errorf("the redirection %s%s sets a variable", r.N.Value, r.Op)
	}
	switch r.Op {
	case syntax.RdrIn:
		// Bash opens network connections under /dev/tcp and /dev/udp.
		if w := readWord(r.Word); w.Literal && !strings.HasPrefix(w.Text, "/dev/") {
			return nil
		}
		return fmt.Errorf("the input redirection is not from a plain file name")
	case syntax.Hdoc, syntax.DashHdoc:
		return j.word(r.Hdoc)
	case syntax.WordHdoc:
		return j.word(r.Word)
	}
	return fmt.Errorf("the redirection %s may write a file", r.Op)
}

// digits reports whether s is a number.
func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
