package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/internal/version"
)

// versionLine is what --version prints behind the command's name.
func versionLine(v version.Info) string {
	return fmt.Sprintf("%s (wire version %d, %s, %s)", v.Build(), v.Wire, v.Go, v.Platform)
}

// versionCommand says which release, which commit and which build a command is.
func versionCommand(program string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which release, commit and build this is",
		Args:    NoArgs,
		Example: "  " + program + " version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.OutOrStdout(), version.Read(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func printVersion(out io.Writer, v version.Info, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(out).Encode(v); err != nil {
			return fmt.Errorf("print the version: %w", err)
		}
		return nil
	}
	commit := cmp.Or(v.Commit, "not known: it was built outside a checkout, or with -buildvcs=false")
	if v.CommitTime != "" {
		commit += " of " + v.CommitTime
	}
	if v.Modified {
		commit += ", with changes"
	}
	if _, err := fmt.Fprintf(out, "release: %s\ncommit:  %s\nbuild:   %s, %s\nwire:    %d\n", v.Release, commit, v.Go,
		v.Platform, v.Wire); err != nil {
		return fmt.Errorf("print the version: %w", err)
	}
	return nil
}
