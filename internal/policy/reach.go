package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
)

// Programs that run other commands.
var (
	// wrappers run their arguments. The command may begin at any later word, because this list does not distinguish
	// their options.
	wrappers = wordSet(`arch asdf builtin bundle bunx busybox bwrap caffeinate capsh catchsegv cgexec choom chronic chpst chroot chrt
		command cpulimit cross-env dbus-launch dbus-run-session direnv doas dotenv dumb-init entr env exec expect faketime fakechroot
		fakeroot firejail flock gdb gosu hash i386 ifne ionice linux32 linux64 ltrace mise nice nix nohup nsenter numactl parallel pdm perf
		pipenv pipx pkexec npx pnpx poetry prlimit proot proxychains proxychains4 rlwrap rr runuser rye setarch setpriv setsid setuidgid
		sg softlimit ssh-agent sshpass start-stop-daemon stdbuf strace su su-exec sudo systemd-inhibit systemd-run taskset time timeout tini
		torify torsocks toybox tsocks unbuffer unshare uname26 uv uvx valgrind watch wsl x86_64 xargs xvfb-run`)
	// shells run text: each argument may be a command line.
	shells = wordSet(`ash bash csh dash elvish eval fish ksh mksh nu osh parallel posh powershell pwsh rbash runuser screen sg sh ssh su tcsh
		tmux trap watch xonsh yash zsh`)
	// readers are the shells whose -s reads standard input, and whose -o takes the name of a setting.
	readers = wordSet(`ash bash csh dash ksh mksh osh posh rbash sh tcsh yash zsh`)
	// sourcing run a file in the shell itself.
	sourcing = wordSet(`. source`)
	// finders run the command that follows one of execs.
	finders = wordSet(`fd fdfind find`)
	execs   = wordSet(`-exec -execdir -ok -okdir -x -X --exec --exec-batch`)
	// optioned run the text that is the value of one option.
	optioned = map[string]struct {
		short byte
		long  string
	}{
		"env": {'S', "split-string"}, "entr": {'s', ""}, "flock": {'c', "command"}, "mapfile": {'C', ""},
		"readarray": {'C', ""},
		"script":    {'c', "command"}, "sg": {'c', ""}, "nix-shell": {0, "run"},
	}
)

// maxShellDepth is how many levels of shells in shells are read.
const maxShellDepth = 4

// reached is what a command line is known to run.
type reached struct {
	all [][]shell.Word // the arguments of each command
	// opaque says that a shell runs text that is unknown.
	opaque bool
}

// reach lists the arguments of every command that a line is known to run, looking through wrappers and shells.
func reach(commands []shell.Command, depth int) (all [][]shell.Word, opaque bool) {
	var r reached
	for _, c := range commands {
		r.command(c.Args, depth)
	}
	return r.all, r.opaque
}

// command adds one simple command, and what it runs. What is behind the first shell is read with it, so that another
// shell there would only repeat it. The same is true of alias and git. But a word of one kind says nothing of the
// others: it may be an operand that only has that name.
func (r *reached) command(args []shell.Word, depth int) {
	inShell, inAlias, inGit, inOption, inFinder, inCompletion := false, false, false, false, false, false
	for _, i := range startsIn(args) {
		args := args[i:]
		r.all = append(r.all, args)
		if !args[0].Literal {
			r.opaque = r.opaque || mayRunOthers(args[0].Text)
			continue
		}
		name := path.Base(args[0].Text)
		r.opaque = r.opaque || startsShell(name, args[1:])
		if option, ok := optioned[name]; ok && !inOption {
			inOption = true
			r.option(name, option.short, option.long, args[1:], depth+1)
		}
		switch {
		case shells[name] && !inShell:
			inShell = true
			r.texts(name, args[1:], depth+1)
		case sourcing[name] && sourcesInput(args[1:]):
			r.opaque = true
		case name == "alias" && !inAlias:
			inAlias = true
			for _, a := range args[1:] {
				_, text, _ := strings.Cut(a.Text, "=")
				r.opaque = r.opaque || !a.Literal
				r.text(text, depth+1)
			}
		case name == "git" && !inGit:
			inGit = true
			r.git(args[1:], depth+1)
		case finders[name] && !inFinder:
			inFinder = true
			r.found(args, depth+1)
		case name == "compgen" && !inCompletion:
			inCompletion = true
			for _, a := range args[1:] {
				r.value(a.Text, depth+1)
			}
		}
	}
}

// startsIn returns the positions at which a command may begin among the words of a simple one.
func startsIn(args []shell.Word) (starts []int) {
	if len(args) == 0 {
		return nil
	}
	starts = []int{0}
	if !args[0].Literal {
		return starts
	}
	switch name := path.Base(args[0].Text); {
	case wrappers[name] || strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl"):
		for i := 1; i < len(args); i++ {
			starts = append(starts, i)
		}
	case finders[name]:
		for i, a := range args {
			if a.Literal && execs[a.Text] && i+1 < len(args) {
				starts = append(starts, i+1)
			}
		}
	case runners[name] != "":
		if i := slices.IndexFunc(args, func(w shell.Word) bool {
			return w.Literal && slices.Contains(strings.Fields(runners[name]), w.Text)
		}); i > 0 {
			for i++; i < len(args); i++ {
				starts = append(starts, i)
			}
		}
	case name == "git" && slices.ContainsFunc(args, func(w shell.Word) bool { return w.Text == "bisect" }):
		if i := slices.IndexFunc(args, func(w shell.Word) bool { return w.Text == "run" }); i > 0 && i+1 < len(args) {
			starts = append(starts, i+1)
		}
	}
	for _, i := range starts[1:] { // behind a wrapper that another program runs: find -exec sudo rm
		if args[i].Literal && wrappers[path.Base(args[i].Text)] {
			for ; i < len(args); i++ {
				starts = append(starts, i)
			}
			break
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts)
}

// texts reads what a shell is given: each argument as a command line, the part of it that may be the value of an
// option, and all arguments together as eval would. Reading options and file names as commands too does no harm. A
// shell without operands reads its standard input, and so does one with -s. The value of an option is no operand.
func (r *reached) texts(name string, args []shell.Word, depth int) {
	var words []string
	operands, values := 0, 0
	for _, a := range args {
		if !a.Literal {
			r.opaque = true
			return
		}
		words = append(words, a.Text)
		if operands == 0 && (isInput(a.Text, readers[name]) || readers[name] && readsInput(a.Text)) {
			r.opaque = true
			return
		}
		switch {
		case values > 0:
			values--
		case readers[name] && valuesOf(a.Text) > 0:
			values = valuesOf(a.Text)
		case !strings.HasPrefix(a.Text, "-"):
			operands++
		}
	}
	texts := append(slices.Clone(words), strings.Join(words, " "))
	for _, w := range words {
		if text := attached(w); text != "" {
			texts = append(texts, text)
			if !readers[name] || !isFlags(w) || strings.Contains(w, "c") { // -C has no value there
				operands++
			}
		}
	}
	if operands == 0 {
		r.opaque = true
		return
	}
	for _, text := range texts {
		r.text(text, depth)
	}
}

// readsInput reports whether an option of a shell makes it read its standard input: -s, also among others (-es). With
// -c it has no effect.
func readsInput(word string) bool {
	return isFlags(word) && strings.Contains(word, "s") && !strings.Contains(word, "c")
}

// sourcesInput reports whether the file that a shell is told to run may be one of which the command line has the
// content: also where the name is a substitution, or a variable to its end.
func sourcesInput(args []shell.Word) bool {
	for i, a := range args {
		first := i == 0 || i == 1 && args[0].Text == "--"
		switch {
		case a.Literal && isInput(a.Text, true):
			return true
		case !a.Literal && first && (strings.HasSuffix("stdin", a.End) || isInput(a.End, true)):
			return true
		}
	}
	return false
}

// isInput reports whether a file is the standard input, or another open file: of these the command line may have the
// content, as a here-document. The line may have changed its directory before, so the name alone may say it: stdin in
// /dev, fd/0 in /proc/self, 0 in /dev/fd. numbers says that a number is a name of a file here.
func isInput(word string, numbers bool) bool {
	p := path.Clean(word)
	name := path.Base(p)
	return name == "stdin" || strings.Contains("/"+p, "/fd/") || numbers && strings.Trim(name, "0123456789") == ""
}

// isFlags reports whether a word is options of one letter each.
func isFlags(word string) bool {
	letters, ok := strings.CutPrefix(word, "-")
	return ok && areLetters(letters)
}

// valuesOf returns how many of the words behind a shell's option are its values. Each -o and -O has one, also among
// others (-euo pipefail).
func valuesOf(word string) int {
	switch word {
	case "--rcfile", "--init-file":
		return 1
	}
	if word == "" || word[0] != '-' && word[0] != '+' || !areLetters(word[1:]) {
		return 0
	}
	return strings.Count(word, "o") + strings.Count(word, "O")
}

func areLetters(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) })
}

// attached is the part of a word that is the value of its option: -c'rm x', -lc'rm x', --command='rm x'.
func attached(word string) string {
	if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "--") {
		return value
	}
	if at := strings.IndexAny(word, "cC"); at > 0 && word[0] == '-' && word[1] != '-' {
		return word[at+1:]
	}
	return ""
}

// option reads the text that is the value of an option.
func (r *reached) option(name string, short byte, long string, args []shell.Word, depth int) {
	for i, a := range args {
		value, given := "", false
		if flag, v, ok := strings.Cut(a.Text, "="); long != "" && len(flag) > 2 && strings.HasPrefix("--"+long, flag) {
			value, given = v, ok
		} else if at := strings.IndexByte(a.Text, short); short != 0 && at > 0 && a.Text[0] == '-' && a.Text[1] != '-' {
			value, given = a.Text[at+1:], at+1 < len(a.Text)
		} else {
			continue
		}
		rest := args[i+1:]
		known := a.Literal
		if !given {
			if len(rest) == 0 {
				return
			}
			value, known, rest = rest[0].Text, known && rest[0].Literal, rest[1:]
		}
		if name == "env" { // its options and variables may be in the text, and more words after it
			known = known && !strings.Contains(value, `\`)
			value = "env " + value
			for _, w := range rest {
				value += " " + w.Text
			}
		}
		if !known {
			r.opaque = true
			return
		}
		r.text(value, depth)
		if name == "env" {
			return
		}
	}
}

// text adds a command line that a shell is given.
func (r *reached) text(text string, depth int) {
	if r.opaque || strings.TrimSpace(text) == "" {
		return
	}
	script, err := shell.Parse(text)
	if err != nil || depth > maxShellDepth {
		r.opaque = true
		return
	}
	inner, hidden := reach(script.Commands, depth)
	r.all, r.opaque = append(r.all, inner...), r.opaque || hidden
}

func wordSet(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
