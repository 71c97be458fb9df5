package shell

import (
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
	if slices.Contains(programs, "env") {
		return unsafe("it shows the variables, which an earlier command may have set")
	}
	if slices.Contains(programs, "cd") || moves(file) {
		return Remembered{Class: toolyard.WriteExclusive,
			Why: "only reads, and moves the shell: " + strings.Join(programs, ", ")}
	}
	return Remembered{Class: toolyard.ReadOnly, Why: "only reads: " + strings.Join(programs, ", "),
		Top: slices.ContainsFunc(programs, obeysDirectory)}
}

// foreignVariable returns the name of a variable that the command reads and no loop of it sets; empty if there is none.
// A tilde is the variable HOME.
func foreignVariable(file *syntax.File) (foreign string) {
	own := map[string]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if loop, ok := n.(*syntax.WordIter); ok {
			own[loop.Name.Value] = true
		}
		return true
	})
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp:
			if n.Param != nil && !own[n.Param.Value] {
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
