package shell

import (
	"errors"
	"fmt"
	"strings"
)

// gitLists are the subcommands that write in one form and list in another, and those that list refs with formats.
var gitLists = map[string]func(args []Word) error{
	"branch": gitBranch, "tag": gitTag, "for-each-ref": gitRefs, "config": gitConfig, "reflog": gitReflog,
	"log": gitLog, "show": gitLog, "diff": gitLog,
	"stash":    func(args []Word) error { return behind("list", args, gitLog) },
	"worktree": func(args []Word) error { return behind("list", args, gitWorktrees.checkNone) },
	"remote":   gitRemote.checkNone, // "remote show" talks to the remote, the others write
}

// behind is for a subcommand of which one form, named by its first word, only reads.
func behind(form string, args []Word, reads func(args []Word) error) error {
	if len(args) == 0 || !args[0].Literal || args[0].Text != form {
		return fmt.Errorf("only its form %q is known to only read", form)
	}
	return reads(args[1:])
}

// gitLog is for the subcommands with the options of the history. A format that verifies signatures runs gpg.
func gitLog(args []Word) error {
	if err := gitHistory.check(args); err != nil {
		return err
	}
	for _, a := range args {
		if signatures.MatchString(a.Text) {
			return fmt.Errorf("the format %s runs a program", a.Text)
		}
	}
	return nil
}

// gitReflog allows the forms that show; expire and delete write.
func gitReflog(args []Word) error {
	if len(args) == 0 {
		return nil
	}
	return behind("show", args, gitLog)
}

// gitTag allows the listing forms. A bare operand creates a tag. So there are no operands, or there is --list.
func gitTag(args []Word) error {
	if len(args) == 0 {
		return nil
	}
	if err := gitTags.check(args); err != nil {
		return err
	}
	list := false
	for _, a := range args {
		if a.Text == "--" {
			return errors.New(`"--" is not looked behind`)
		}
		list = list || a.Text == "-l" || a.Text == "--list"
	}
	if !list {
		return errors.New("without --list it may make a tag")
	}
	return sortsOnly(args)
}

// gitRefs is for for-each-ref.
func gitRefs(args []Word) error {
	if err := gitEachRef.check(args); err != nil {
		return err
	}
	return sortsOnly(args)
}

// sortsOnly refuses formats and orders of refs that verify signatures, which runs gpg, and those whose text is the next
// word, as it is not known to be that.
func sortsOnly(args []Word) error {
	for _, a := range args {
		switch text := strings.ToLower(a.Text); {
		case text == "--sort" || text == "--format":
			return fmt.Errorf("%s is known only with its value in the same word", a.Text)
		case strings.HasPrefix(text, "--") && strings.Contains(text, "signature"):
			return fmt.Errorf("%s runs a program", a.Text)
		}
	}
	return nil
}

// gitConfig allows the forms that say that they read. Any other with a name and a value writes.
func gitConfig(args []Word) error {
	reads := false
	for _, a := range args {
		reads = reads || a.Literal && configReads[a.Text]
	}
	if !reads {
		return errors.New("without --get or --list it may write")
	}
	return gitConfigs.check(args)
}

var (
	configReads = set("--get --get-all --get-regexp --list -l")
	gitConfigs  = options{flags: "lz", long: set(`get get-all get-regexp list global local system worktree show-origin
		show-scope name-only null includes no-includes`)}
	gitTags    = options{flags: "l", long: set("color column ignore-case list no-color no-column sort")}
	gitEachRef = options{long: set(`color contains count format ignore-case merged no-color no-contains no-merged
		omit-empty points-at sort`)}
	gitWorktrees = options{flags: "vz", long: set("porcelain verbose")}
)
