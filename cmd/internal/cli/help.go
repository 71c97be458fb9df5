package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/internal/suggest"
)

// The topics of flags, as headings of the help.
const (
	TopicBatch     = "Batch"
	TopicOutput    = "Output"
	TopicSystem    = "Running system"
	TopicHTTP      = "HTTP"
	TopicNATS      = "NATS"
	TopicStore     = "Streams and store"
	TopicTurns     = "Batches, turns and quotas"
	TopicWaits     = "Time limits"
	TopicRules     = "Permission rules"
	TopicTools     = "Tools and what agents see"
	TopicWorker    = "Worker"
	TopicSandbox   = "Sandbox"
	TopicSecrets   = "Hooks and secrets"
	TopicResources = "Memory and metrics"
	TopicProgram   = "Settings and log"
)

// topics is their order. Flags without a topic are those of the command alone, and come first.
var topics = []string{"", TopicBatch, TopicOutput, TopicSystem, TopicHTTP, TopicNATS, TopicStore, TopicTurns,
	TopicWaits, TopicWorker, TopicRules, TopicTools, TopicSandbox, TopicSecrets, TopicResources, TopicProgram}

const topicMark = "toolyard-topic"

// Topic puts the flags that are added until the returned function is called under a heading of the help, but for those
// that have one by then.
func Topic(f *pflag.FlagSet, topic string) (end func()) {
	before := map[string]bool{}
	f.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	return func() {
		f.VisitAll(func(flag *pflag.Flag) {
			if before[flag.Name] || flag.Annotations[topicMark] != nil {
				return
			}
			if err := f.SetAnnotation(flag.Name, topicMark, []string{topic}); err != nil {
				panic(err) // the flag is there
			}
		})
	}
}

// Section is the flags of one topic.
type Section struct {
	topic string
	Flags []*pflag.Flag
}

// Sections are the flags of a command that its help shows, by topic.
func Sections(cmd *cobra.Command) (out []Section) {
	by := map[string][]*pflag.Flag{}
	add := func(f *pflag.Flag) {
		topic := TopicProgram
		switch mark := f.Annotations[topicMark]; {
		case f.Hidden:
			return
		case mark != nil:
			topic = mark[0]
		case f.Name != "help" && f.Name != "version":
			topic = ""
		}
		by[topic] = append(by[topic], f)
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	for _, t := range topics {
		if len(by[t]) > 0 {
			slices.SortFunc(by[t], func(a, b *pflag.Flag) int { return strings.Compare(a.Name, b.Name) })
			out = append(out, Section{t, by[t]})
		}
	}
	return out
}

// Heading is the title of a section.
func (s Section) Heading() string {
	if s.topic == "" {
		return "Flags"
	}
	return s.topic
}

// flagHead is a flag as it is written, and flagText what it does, with its default.
func flagHead(f *pflag.Flag) string {
	value, _ := pflag.UnquoteUsage(f)
	head := "--" + f.Name
	if f.Shorthand != "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if value != "" {
		head += " " + value
	}
	return head
}

func flagText(f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return usage
	}
	return fmt.Sprintf("%s (default: %s)", usage, f.DefValue)
}

// ProgramGroup is the group of the commands that are about the program itself.
const ProgramGroup = "program"

// WithHelp has a command tree show its help by topics, in lines of a terminal's width.
func WithHelp(root *cobra.Command, out io.Writer) {
	if root.ContainsGroup(ProgramGroup) {
		root.SetHelpCommandGroupID(ProgramGroup)
		root.SetCompletionCommandGroupID(ProgramGroup)
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = io.WriteString(out, help(cmd, TextColumns(out))) // there is nobody to tell
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(out, help(cmd, TextColumns(out)))
		return err
	})
}

const (
	flagColumn = 28 // where the texts of flags begin
	flagIndent = "  "
)

func help(cmd *cobra.Command, columns int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n", Reflow(cmp.Or(cmd.Long, cmd.Short+"."), columns))
	if cmd.Runnable() && (!cmd.HasAvailableSubCommands() || cmd.HasParent()) {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", foldCommands(cmd.Example, columns))
	}
	commands(&b, cmd, columns)
	for _, s := range Sections(cmd) {
		fmt.Fprintf(&b, "\n%s:\n", s.Heading())
		for _, f := range s.Flags {
			head := flagIndent + flagHead(f)
			for _, line := range Wrap(flagText(f), columns-flagColumn) {
				if utf8.RuneCountInString(head) > flagColumn-2 {
					fmt.Fprintln(&b, head)
					head = ""
				}
				fmt.Fprintf(&b, "%-*s%s\n", flagColumn, head, line)
				head = ""
			}
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	return b.String()
}

// foldCommands breaks command lines that are too long where a shell goes on reading: between words, with a backslash.
func foldCommands(text string, columns int) string {
	const more, indent = " \\", "      "
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		for utf8.RuneCountInString(line) > columns {
			cut := lastBlank(line, columns-len(more))
			if cut < len(indent) {
				break // a word that is too long
			}
			out = append(out, line[:cut]+more)
			line = indent + line[cut+1:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// lastBlank is where the last blank outside of quotes is before a column; -1 without one.
func lastBlank(line string, column int) int {
	last, quote, at := -1, rune(0), 0
	for i, r := range line {
		switch {
		case at > column:
			return last
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == ' ':
			last = i
		}
		at++
	}
	return last
}

// commands lists the commands below one, by group.
func commands(b *strings.Builder, cmd *cobra.Command, columns int) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	groups := append([]*cobra.Group{{ID: "", Title: "Commands"}}, cmd.Groups()...)
	for _, g := range groups {
		var rows [][]Cell
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				rows = append(rows, []Cell{{Text: c.Name()}, {Text: c.Short}})
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(b, "\n%s:\n%s", g.Title, Table(rows, "  ", columns))
		}
	}
}

// refuseUnknown has the library's own commands, help and completion, refuse a command that there is not. They show help
// in its place, with exit status 0.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil || len(rest) == 0 {
					return err
				}
				if about.HasSubCommands() {
					return NoArgs(about, rest)
				}
				return Usagef("there is no command %q below %s; see %s --help", rest[0], about.CommandPath(),
					about.CommandPath())
			}
		}
	}
}

// NoArgs is for commands that take no argument. It suggests the command that was meant where there are some.
func NoArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return Usagef("%s takes no argument, and there is %q; see %s --help", cmd.CommandPath(), args[0],
			cmd.CommandPath())
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	return Usagef("unknown command %q for %q%s; see %s --help", args[0], cmd.CommandPath(),
		meant(suggest.Names(args[0], known, suggestions), cmd.CommandPath()+" "), cmd.CommandPath())
}

// OneArg is for commands that take one argument, and says what it is.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usagef("%s takes %s, not %d; see %s --help", cmd.CommandPath(), what, len(args),
				cmd.CommandPath())
		}
		return nil
	}
}

// suggestions is how many names are suggested for a wrong one.
const suggestions = 3

// meant asks whether one of some names was meant; "" without any.
func meant(names []string, before string) string {
	if len(names) == 0 {
		return ""
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = before + n
	}
	return ": did you mean " + strings.Join(quoted, " or ") + "?"
}

// flagError says what is wrong with a flag on the command line, and which was meant.
func flagError(cmd *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(wrong.GetSpecifiedName()) < 2 {
		return Usagef("%w; see %s --help", explain(err), cmd.CommandPath())
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	near := suggest.Names(wrong.GetSpecifiedName(), known, suggestions)
	hint := meant(near, "--")
	if len(near) == 0 {
		if others := having(cmd.Root(), wrong.GetSpecifiedName()); len(others) > 0 {
			hint = ": it is a flag of " + strings.Join(others[:min(len(others), suggestions)], ", ")
			if len(others) > suggestions {
				hint += " and others"
			}
		}
	}
	return Usagef("%w%s; see %s --help", err, hint, cmd.CommandPath())
}

// Mirrors is the annotation of a command that takes all flags of another one, which it names.
const Mirrors = "toolyard-mirrors"

// having are the commands that have a flag.
func having(cmd *cobra.Command, flag string) (out []string) {
	if cmd.LocalFlags().Lookup(flag) != nil && cmd.Annotations[Mirrors] == "" {
		out = append(out, cmd.CommandPath())
	}
	for _, c := range cmd.Commands() {
		out = append(out, having(c, flag)...)
	}
	return out
}
