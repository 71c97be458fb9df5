package shell

import (
	"fmt"
	"strings"
)

// goTool allows the go subcommands that print. They may fill the module and build caches, but do not change the
// workspace. Excluded: -C, -mod, -modfile, -overlay, -toolexec, -export and -compiled (they write, or run compilers and
// programs), env -w and -u.
func goTool(args []Word) error {
	if len(args) == 0 || !args[0].Literal {
		return fmt.Errorf("its subcommand is not literal")
	}
	name, args := args[0].Text, args[1:]
	flags, ok := goFlags[name]
	if !ok {
		return fmt.Errorf("%s is not known to only read", name)
	}
	for _, a := range args {
		if a.operand() {
			continue
		}
		// The flag package accepts one dash or two.
		flag, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a.Text, "-"), "-"), "=")
		if !a.Literal || !flags[flag] {
			return fmt.Errorf("%s: %w", name, notKnown(a))
		}
	}
	return nil
}

var goFlags = map[string]map[string]bool{
	"version": set("m v json"),
	"env":     set("json changed"),
	"list":    set("deps e f find json m retracted tags test versions"),
	"doc":     set("all c cmd short src u"),
}
