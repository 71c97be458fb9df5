package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WithCompletion has shells complete the values of flags that take one of a few words: values has them by the flag's
// name, or by "command flag" where commands differ.
func WithCompletion(root *cobra.Command, values map[string][]string) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		add := func(f *pflag.Flag) {
			path := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
			words, ok := values[path+" "+f.Name]
			if !ok {
				words, ok = values[f.Name]
			}
			if !ok {
				return
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name,
				cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
				panic(err) // the flag is there, and this is the first time
			}
		}
		if cmd == root {
			cmd.PersistentFlags().VisitAll(add)
		} else {
			cmd.LocalNonPersistentFlags().VisitAll(add)
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
}
