package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// programs are those known to only read. Each has a rule for its arguments, which returns nil if they only read, or why
// not. Names are bare, because a path (./ls) could be any program. An expansion in an argument can become any text, and
// if unquoted any number of arguments, so there are two kinds of rules:
//
//   - anything: no option of the program writes or runs anything, so its arguments need not be known. What these
//     programs read is not limited here.
//   - the others have options that write or run something. Every word must be known well enough to exclude these
//     options: a literal, or a glob that begins with something other than "-".
//
// cd only reads, but then no git or go in the same line does. Programs that run others (timeout 60 ls) are handled by
// [Behind].
//
// Excluded on purpose, though often harmless: less and more (they run editors and shells), awk, perl and the like
// (languages; only their version), xargs, tee, env with arguments, xxd (it has an output file), hostname with its
// argument, read (it sets variables).
var programs = map[string]func(args []Word) error{
	// Files and their contents.
	"ls": anything, "cat": anything, "head": anything, "tail": anything, "wc": anything, "grep": anything,
	"egrep": anything,
	"fgrep": anything, "cut": anything, "tr": anything, "diff": anything, "cmp": anything, "comm": anything,
	"paste": anything, "join": anything, "nl": anything, "tac": anything, "rev": anything, "fold": anything,
	"od":     anything,
	"expand": anything, "unexpand": anything, "stat": anything, "du": anything, "df": anything, "basename": anything,
	"dirname": anything, "realpath": anything, "readlink": anything, "cksum": anything, "md5sum": anything,
	"sha1sum": anything, "sha256sum": anything, "sha512sum": anything, "jq": anything,
	"b2sum": anything, "sum": anything, "sha224sum": anything, "sha384sum": anything, "hexdump": anything,
	"column": anything, "fmt": anything, "pr": anything, "tsort": anything, "numfmt": anything,
	"base64": base64Options.check, "tree": treeOptions.check,
	"find": find, "rg": rg.check, "sort": sortOptions.check, "uniq": uniq, "file": fileOptions.check, "sed": sed,

	// The shell and the machine.
	"pwd": anything, "cd": anything, "echo": anything, "true": anything, "false": anything, ":": anything,
	"seq":   anything,
	"sleep": anything, "which": anything, "type": anything, "uname": anything, "whoami": anything, "id": anything,
	"nproc": anything, "ps": anything, "printf": printf, "test": test, "[": bracket, "date": date, "env": nothing,
	"expr": anything, "factor": anything, "groups": anything, "arch": nothing, "uptime": anything, "free": anything,
	"lscpu": anything, "printenv": anything, "hostname": nothing,
	"python": version("--version"), "python3": version("--version"), "node": version("--version", "-v"),
	"command": commandV, "exit": numbers, "break": numbers, "continue": numbers,

	// Programs with subcommands.
	"git": git, "go": goTool,
}

func anything([]Word) error { return nil }

// nothing is for programs that run or set their arguments: env alone prints.
func nothing(args []Word) error {
	if len(args) > 0 {
		return errors.New("it only reads when it has no arguments")
	}
	return nil
}

// version is for programs that run their arguments, and print their version.
func version(options ...string) func(args []Word) error {
	return func(args []Word) error {
		if len(args) != 1 || !args[0].Literal || !slices.Contains(options, args[0].Text) {
			return fmt.Errorf("it is known to only read in the form %s alone", options[0])
		}
		return nil
	}
}

// numbers is for exit, break and continue.
func numbers(args []Word) error {
	for _, a := range args {
		if !a.Literal || !digits(a.Text) {
			return errors.New("its argument is not a number")
		}
	}
	return nil
}

// commandV allows the forms of command that look up a name; without -v or -V it runs one.
func commandV(args []Word) error {
	if len(args) < 2 || !args[0].Literal || args[0].Text != "-v" && args[0].Text != "-V" {
		return errors.New("it runs its arguments")
	}
	for _, a := range args[1:] {
		if !a.operand() {
			return notKnown(a)
		}
	}
	return nil
}

// find allows the tests and the actions that print. Excluded: -exec, -execdir, -ok, -okdir, -delete, -fprint, -fprint0,
// -fprintf, -fls, and everything unknown.
func find(args []Word) error {
	for _, a := range args {
		switch {
		case a.operand():
		case !a.Literal:
			return notKnown(a)
		case strings.HasPrefix(a.Text, "-newer"): // -newerXY
		case len(a.Text) > 1 && a.Text[1] >= '0' && a.Text[1] <= '9': // -mtime -7, -size -10k
		case !findWords[a.Text]:
			return fmt.Errorf("%s is not known to only read", a.Text)
		}
	}
	return nil
}

var findWords = set(`-H -L -P -a -amin -and -atime -cmin -ctime -daystart -depth -empty -executable -false -follow -fstype -gid
	-group -ignore_readdir_race -ilname -iname -inum -ipath -iregex -iwholename -links -lname -ls -maxdepth -mindepth -mmin
	-mount -mtime -name -nogroup -noleaf -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit -readable -regex
	-regextype -samefile -size -true -type -uid -used -user -wholename -writable -xdev -xtype --help --version`)

// uniq writes to its second operand. To count operands, every word must be one argument, so globs are excluded.
func uniq(args []Word) error {
	if err := uniqOptions.check(args); err != nil {
		return err
	}
	operands := 0
	for i, a := range args {
		switch {
		case !a.Literal:
			return notKnown(a)
		case a.Text == "--": // a word like an option could be an operand after it
			return errors.New(`"--" is not looked behind`)
		case i > 0 && digits(a.Text) && (args[i-1].Text == "-f" || args[i-1].Text == "-s" || args[i-1].Text == "-w"):
		case a.operand():
			operands++
		}
	}
	if operands > 1 {
		return errors.New("it writes to its second operand")
	}
	return nil
}

// date sets the clock with -s, and with an operand that does not begin with "+".
func date(args []Word) error {
	if err := dateOptions.check(args); err != nil {
		return err
	}
	for i, a := range args {
		value := i > 0 && dateValues[args[i-1].Text]
		option := strings.HasPrefix(a.Text, "-")
		if !a.Literal || a.Text == "--" || value && option || !value && !option && !strings.HasPrefix(a.Text, "+") {
			return fmt.Errorf("%q may set the clock", a.Text)
		}
	}
	return nil
}

var dateValues = set("-d --date -r --reference")

// printf sets variables with -v, and with the conversion %n.
func printf(args []Word) error {
	if len(args) > 0 && args[0].Literal && args[0].Text == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return nil
	}
	format := args[0]
	if !format.Literal || strings.HasPrefix(format.Text, "-") {
		return errors.New("its format is not literal, or is an option")
	}
	for rest := format.Text; ; {
		_, after, ok := strings.Cut(rest, "%")
		if !ok {
			return nil
		}
		after = strings.TrimLeft(after, "#0- +'*.123456789hlLjzt")
		if after == "" || !strings.Contains("%diouxXeEfFgGaAcsbqQ(", after[:1]) {
			return errors.New("its format has a conversion that is not known to only read")
		}
		rest = after[1:]
	}
}

func bracket(args []Word) error {
	if len(args) == 0 || !args[len(args)-1].Literal || args[len(args)-1].Text != "]" {
		return errors.New(`its last word is not "]"`)
	}
	return test(args[:len(args)-1])
}

// test evaluates the operand of -v and -R, and an array index there can run a command. So all words must be literal,
// without -v, -R and indexes. Or it has one of the three short forms, in which POSIX determines the operator by the
// number of words.
func test(args []Word) error {
	literal := true
	for _, a := range args {
		literal = literal && a.Literal
		if a.Literal && (a.Text == "-v" || a.Text == "-R" || strings.Contains(a.Text, "[")) {
			return fmt.Errorf("%s may be evaluated", a.Text)
		}
		if !a.single {
			return notKnown(a)
		}
	}
	if len(args) > 0 && args[0].Literal && args[0].Text == "!" {
		if len(args) == 3 && !literal { // ! could be an operand here: [ ! = "$x" ]
			return test(args[1:])
		}
		if len(args) == 4 {
			return test(args[1:])
		}
	}
	switch {
	case literal, len(args) < 2:
		return nil
	case len(args) == 2 && args[0].Literal && testUnary[args[0].Text]:
		return nil
	case len(args) == 3 && args[1].Literal && testBinary[args[1].Text]:
		return nil
	}
	return errors.New("its operators are not literal")
}

var (
	testUnary = set("! -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
	// Unlike [[ and other shells, Bash reads the operands of -eq and its like as numbers alone.
	testBinary = set("= == != < > -nt -ot -ef -eq -ne -lt -le -gt -ge")
)

func notKnown(w Word) error {
	if w.Literal {
		return fmt.Errorf("%s is not known to only read", w.Text)
	}
	return errors.New("an argument could become an option: it is not literal")
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
