package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/sandbox"
)

// Words are the words that flags of both commands take.
func Words() map[string][]string {
	return map[string][]string{
		"color": {colorAuto, colorAlways, colorNever}, "log-level": {"debug", "info", "warn", "error"},
		"log-format": {"text", "json"}, "sandbox": {sandbox.Auto, "native", "bwrap"},
		"classes": {string(toolyard.ReadOnly), string(toolyard.WriteExclusive), string(toolyard.Unsafe)},
		"permission-mode": {string(policy.Default), string(policy.AcceptEdits), string(policy.Plan),
			string(policy.DontAsk), string(policy.Bypass)},
	}
}

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
