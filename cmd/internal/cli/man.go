package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// manPage is the name of a command's page in section 1.
func manPage(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
}

// ManCommand writes the manual pages of a command tree.
func ManCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Example: "  " + program + " man /usr/local/share/man/man1",
		Short:   "Write the manual pages of all commands to a directory",
		Long: `man writes a manual page in troff for each command to DIR, which it makes if need be. What is there under
the same names is replaced.`,
		Args: OneArg("one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return Usagef("DIR %s: %w", args[0], errors.Unwrap(err))
			}
			n, err := writeMan(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", n, OneLine(args[0]))
			return err
		},
	}
}

// writeMan writes the pages of a command and all below it, and says how many.
func writeMan(cmd *cobra.Command, dir string) (n int, err error) {
	if err := os.WriteFile(filepath.Join(dir, manPage(cmd)), []byte(troff(cmd)), 0o644); err != nil {
		return 0, fmt.Errorf("write a manual page: %w", err)
	}
	n = 1
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		below, err := writeMan(c, dir)
		if err != nil {
			return n, err
		}
		n += below
	}
	return n, nil
}

// troff is a command's manual page.
func troff(cmd *cobra.Command) string {
	var b strings.Builder
	name := strings.TrimSuffix(manPage(cmd), ".1")
	fmt.Fprintf(&b, ".TH %s 1 \"\" Toolyard \"Toolyard\"\n", strings.ToUpper(quoteTroff(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", quoteTroff(name), quoteTroff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", quoteTroff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	for i, line := range strings.Split(cmp.Or(cmd.Long, cmd.Short+"."), "\n") {
		switch {
		case line == "" && i > 0:
			b.WriteString(".PP\n")
		case strings.HasPrefix(line, " "):
			fmt.Fprintf(&b, ".br\n%s\n", quoteTroff(line))
		default:
			fmt.Fprintf(&b, "%s\n", quoteTroff(line))
		}
	}
	for _, s := range Sections(cmd) {
		fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(quoteTroff(s.Heading())))
		for _, f := range s.Flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", quoteTroff(flagHead(f)), quoteTroff(flagText(f)))
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", quoteTroff(cmd.Example))
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, strings.TrimSuffix(manPage(cmd.Parent()), ".1"))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			also = append(also, strings.TrimSuffix(manPage(c), ".1"))
		}
	}
	if len(also) > 0 {
		for i := range also {
			also[i] = "\\fB" + quoteTroff(also[i]) + "\\fP(1)"
		}
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, ", "))
	}
	return b.String()
}

// quoteTroff is a text in which nothing is a request or an escape of troff.
func quoteTroff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
