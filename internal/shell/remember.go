package shell

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolyard/toolyard"
)

// Judge is [Classify], or [Remembering] for a shell that remembers its directory and its variables.
func Judge(command string, remembers bool) (class toolyard.Class, why string) {
	if !remembers {
		return Classify(command)
	}
	r := Remembering(command)
	return r.Class, r.Why
}

// Remembered is what is known of a command in a shell that remembers.
type Remembered struct {
	// Class is READ_ONLY for a command that only reads, WRITE_EXCLUSIVE for one that only reads and moves the shell to
	// another directory, and UNSAFE otherwise.
	Class toolyard.Class
	Why   string
	// Top says that a program of a command that only reads obeys the configuration of the directory in which it runs.
	// It only reads at the top of the workspace.
	Top bool
}

// Reads reports whether the command only reads, if it may also move the shell.
func (r Remembered) Reads() bool { return r.Class != toolyard.Unsafe }

// Remembering judges a command of a shell that remembers. A command that only reads runs without the remembered
// variables, since they could change what its words mean. So one that names a variable which it does not set itself is
// UNSAFE: it is run with them.
func Remembering(command string) Remembered {
	unsafe := func(why string) Remembered { return Remembered{Class: toolyard.Unsafe, Why: why} }
	file, err := read(command)
	if err != nil {
		return unsafe(err.Error())
	}
	programs, err := classifyFile(file)
	if err != nil {
		return unsafe(err.Error())
	}
	if name := foreignVariable(file); name != "" {
		return unsafe(fmt.Sprintf("it reads the variable %s, which an earlier command may have set", name))
	}
	if slices.Contains(programs, "env") || slices.Contains(programs, "printenv") {
		return unsafe("it shows the variables, which an earlier command may have set")
	}
	if slices.Contains(programs, "cd") || moves(file) {
		return Remembered{Class: toolyard.WriteExclusive,
			Why: "only reads, and moves the shell: " + strings.Join(programs, ", ")}
	}
	return Remembered{Class: toolyard.ReadOnly, Why: "only reads: " + strings.Join(programs, ", "),
		Top: slices.ContainsFunc(programs, obeysDirectory)}
}

// foreignVariable returns the name of a variable that the command reads outside of each loop that sets it; empty if
// there is none. Before such a loop, and behind one that had no words, the variable is what an earlier command made of
// it. A tilde is the variable HOME.
func foreignVariable(file *syntax.File) string { return foreignIn(file, nil) }

// foreignIn is foreignVariable for a part of a command, inside of loops that set their own variables.
func foreignIn(part syntax.Node, own []string) (foreign string) {
	syntax.Walk(part, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ForClause:
			loop, ok := n.Loop.(*syntax.WordIter)
			if !ok || foreign != "" {
				break
			}
			for _, word := range loop.Items {
				foreign = cmp.Or(foreign, foreignIn(word, own))
			}
			within := append(slices.Clip(own), loop.Name.Value)
			for _, s := range n.Do {
				foreign = cmp.Or(foreign, foreignIn(s, within))
			}
			return false
		case *syntax.ParamExp:
			if n.Param != nil && !slices.Contains(own, n.Param.Value) {
				foreign = n.Param.Value
			}
		case *syntax.Word:
			if lit, ok := n.Parts[0].(*syntax.Lit); ok && strings.HasPrefix(lit.Value, "~") {
				foreign = "HOME"
			}
		}
		return foreign == ""
	})
	return foreign
}
