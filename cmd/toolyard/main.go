// Command toolyard is dispatcher and worker in one program: the dispatcher's commands, and the worker's below "worker".
package main

import (
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/dispatchercmd"
	"github.com/toolyard/toolyard/cmd/internal/workercmd"
)

const name = "toolyard"

func main() {
	os.Exit(cli.Main(command(os.Stdin, os.Stdout, os.Stderr), os.Args[1:], os.Stderr))
}

func command(in io.Reader, out, errw io.Writer) *cobra.Command {
	root, worker := dispatchercmd.Command(in, out, errw), workercmd.Command(out, errw)
	root.Long = strings.Replace(root.Long, root.Name(), name, 1)
	worker.Long = strings.Replace(worker.Long, worker.Name(), name+" "+worker.Name(), 1)
	rename := renamer(root, worker)
	root.Use = name
	worker.GroupID = dispatchercmd.RunGroup
	root.AddCommand(worker)
	rename(root)
	return root
}

// renamer returns what replaces the names of the two commands in the help of all: "dispatcher submit" is
// "toolyard submit" here, and "worker serve" is "toolyard worker serve".
func renamer(dispatcher, worker *cobra.Command) func(*cobra.Command) {
	lines := map[*regexp.Regexp]string{
		commandLines(dispatcher): name + " $1",
		commandLines(worker):     name + " worker $1",
	}
	var rename func(*cobra.Command)
	rename = func(c *cobra.Command) {
		for line, with := range lines {
			for _, text := range []*string{&c.Short, &c.Long, &c.Example} {
				*text = line.ReplaceAllString(*text, with)
			}
		}
		for _, sub := range c.Commands() {
			rename(sub)
		}
	}
	return rename
}

// commandLines matches a command's name before one of its subcommands.
func commandLines(c *cobra.Command) *regexp.Regexp {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, regexp.QuoteMeta(sub.Name()))
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(c.Name()) + ` (` + strings.Join(names, "|") + `)\b`)
}
