package policy

import (
	"math"
	"path"
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
)

var (
	// runners run the command that follows one of these words.
	runners = map[string]string{
		"npm": "exec x", "pnpm": "exec dlx", "yarn": "exec dlx", "conda": "run", "mamba": "run", "micromamba": "run",
		"hatch": "run", "rustup": "run", "bun": "x",
		"docker": "exec run", "podman": "exec run", "nerdctl": "exec run", "docker-compose": "exec run",
		"podman-compose": "exec run", "kubectl": "exec", "oc": "exec rsh", "lxc": "exec", "incus": "exec",
		"machinectl": "shell", "distrobox": "enter", "toolbox": "run", "devbox": "run", "aws-vault": "exec",
		"dotenvx": "run", "doppler": "run", "op": "run", "foreman": "run",
	}
	// starters start a shell, which reads its standard input, where they are given no command.
	starters = map[string]starter{
		"chroot": {operands: 1}, "crontab": {but: "elr"}, "fakeroot": {values: "lisb"}, "fakechroot": {values: "ldecb"},
		"nsenter": {values: "tSG", long: "--target --setuid --setgid"}, "unshare": {values: "SGRw"},
		"script": {operands: math.MaxInt, but: "c"}, "newgrp": {operands: math.MaxInt},
		"at": {operands: math.MaxInt, but: "cdflrV"}, "batch": {operands: math.MaxInt, but: "fV"},
	}
	// elevators do so with one of these options.
	elevators = map[string]starter{
		"sudo": {values: "CDghpRrTtUu", long: "--chdir --group --host --user --prompt --role --type"},
		"doas": {values: "Cu"},
	}
	elevates = wordSet(`--shell --login`)
	// textual run text, too.
	textual = wordSet(`alias git compgen`)
)

// starter says how the words of a program show whether a command is among them.
type starter struct {
	values   string // options with a value, of one letter
	long     string // and with a long name
	operands int    // how many operands come before the command
	but      string // options that have it do something else
}

// startsShell reports whether a program is given no command, so that it starts a shell for its standard input.
func startsShell(name string, args []shell.Word) bool {
	s, elevator := elevators[name]
	if !elevator {
		var ok bool
		if s, ok = starters[name]; !ok {
			return false
		}
	}
	elevated := false
	operands := 0
	for i := 0; i < len(args); i++ {
		word := args[i].Text
		switch {
		case word == "-" && name == "crontab": // the standard input
			return true
		case strings.HasPrefix(word, "--"):
			elevated = elevated || elevates[word]
			if strings.Contains(" "+s.long+" ", " "+word+" ") {
				i++
			}
		case len(word) > 1 && word[0] == '-':
			for at, c := range word[1:] {
				if strings.ContainsRune(s.but, c) {
					return false
				}
				elevated = elevated || c == 's' || c == 'i' && name == "sudo"
				if strings.ContainsRune(s.values, c) {
					if at+2 == len(word) {
						i++
					}
					break
				}
			}
		default:
			if operands++; operands > s.operands {
				return false
			}
		}
	}
	return !elevator || elevated
}

// mayRunOthers reports whether a program of whose name only the beginning is known may be a shell, or another program
// that runs others.
func mayRunOthers(begins string) bool {
	begins = begins[strings.LastIndex(begins, "/")+1:]
	for _, names := range []map[string]bool{wrappers, shells, sourcing, finders, textual} {
		for name := range names {
			if strings.HasPrefix(name, begins) {
				return true
			}
		}
	}
	for name := range optioned {
		if strings.HasPrefix(name, begins) {
			return true
		}
	}
	return false
}

// found adds the command that fd runs, where it is glued to its option: --exec=rm, -xrm, or -HIx among others.
func (r *reached) found(args []shell.Word, depth int) {
	if path.Base(args[0].Text) == "find" { // whose options are words
		return
	}
	for i, a := range args[1:] {
		rest := args[i+2:]
		name, value, set := strings.Cut(a.Text, "=")
		if !set || name != "--exec" && name != "--exec-batch" {
			at := strings.IndexAny(a.Text, "xX")
			if at < 1 || a.Text[0] != '-' || a.Text[1] == '-' || execs[a.Text] {
				continue
			}
			value = a.Text[at+1:]
		}
		if value != "" {
			rest = append([]shell.Word{{Text: value, Literal: a.Literal}}, rest...)
		}
		switch {
		case depth > maxShellDepth:
			r.opaque = true
		case len(rest) > 0:
			r.command(rest, depth)
		}
		return
	}
}

// value adds a text that may be a command line. One that is none is left out.
func (r *reached) value(text string, depth int) {
	text = strings.TrimPrefix(text, "!")
	if _, err := shell.Parse(text); err == nil {
		r.text(text, depth)
	}
}
