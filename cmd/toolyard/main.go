// Command toolyard is dispatcher and worker in one program: the dispatcher's commands, and the worker's below "worker".
package main

import (
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/dispatchercmd"
	"github.com/toolyard/toolyard/cmd/internal/workercmd"
)

const name = "toolyard"

func main() {
	root, errors := command(os.Stdin, os.Stdout, os.Stderr)
	os.Exit(cli.Main(root, os.Args[1:], errors))
}

// command returns the command, and where its errors go: they name commands as the help does.
func command(in io.Reader, out, errw io.Writer) (root *cobra.Command, errors io.Writer) {
	root, worker := dispatchercmd.Command(in, out, errw), workercmd.Command(out, errw)
	root.Long = strings.Replace(root.Long, root.Name(), name, 1)
	worker.Long = strings.Replace(worker.Long, worker.Name(), name+" "+worker.Name(), 1)
	rename := renamer(root, worker)
	root.Use = name
	worker.GroupID = dispatchercmd.RunGroup
	root.AddCommand(worker)
	renameHelp(root, rename)
	return root, renamed{errw, rename}
}

// renamer returns what replaces the names of the two commands in a text: "dispatcher submit" is "toolyard submit" here,
// and "worker serve" is "toolyard worker serve".
func renamer(dispatcher, worker *cobra.Command) func(string) string {
	lines := map[*regexp.Regexp]string{
		commandLines(dispatcher): name + " $2",
		commandLines(worker):     name + " worker $2",
	}
	return func(text string) string {
		for line, with := range lines {
			text = line.ReplaceAllString(text, with)
		}
		return text
	}
}

// renameHelp renames in the help of a command and those below it.
func renameHelp(c *cobra.Command, rename func(string) string) {
	for _, text := range []*string{&c.Short, &c.Long, &c.Example} {
		*text = rename(*text)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = rename(f.Usage) })
	for _, sub := range c.Commands() {
		renameHelp(sub, rename)
	}
}

// renamed renames in what is written, which is a whole line at a time.
type renamed struct {
	io.Writer
	rename func(string) string
}

func (r renamed) Write(line []byte) (int, error) {
	if _, err := io.WriteString(r.Writer, r.rename(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// commandLines matches a command's name before one of its subcommands, with or without our name before it.
func commandLines(c *cobra.Command) *regexp.Regexp {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, regexp.QuoteMeta(sub.Name()))
	}
	return regexp.MustCompile(`\b(` + name + ` )?` + regexp.QuoteMeta(c.Name()) + ` (` + strings.Join(names, "|") + `)\b`)
}
