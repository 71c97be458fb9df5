package dispatchercmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// initFile is the configuration file that init writes unless it is told another name.
const initFile = "toolyard.yaml"

// initialized is what --json prints.
type initialized struct {
	File string `json:"file"`
	// Text is what would be in the file, when it is standard output.
	Text string `json:"text,omitempty"`
}

func (s *std) initCommand() *cobra.Command {
	var o serveFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "init [flags] [FILE|-]",
		Short: "Write a configuration file for serve, with every setting explained",
		Long: `init writes a YAML file for "dispatcher serve --config": every setting by topic, with what it does. The flags
of init are those of serve, and --json. What they or the environment set stands in the file; all else is commented
out, with its default. FILE is ` + initFile + ` unless you say otherwise, and - is standard output. What is there is
not overwritten. Where --nats has a password, only this user can read the file.`,
		Example: `  dispatcher init
  dispatcher init --listen 0.0.0.0:8080 --token-file tokens --with-worker --workspace default=. serve.yaml
  dispatcher serve --config serve.yaml`,
		Annotations: map[string]string{cli.Mirrors: "serve"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("%s takes one FILE at most, not %d; see %s --help", cmd.CommandPath(), len(args),
					cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			text, err := configuration(cmd)
			if err != nil {
				return err
			}
			name := initFile
			if len(args) == 1 {
				name = args[0]
			}
			switch {
			case name == "-" && asJSON:
				return printJSON(s.out, initialized{File: name, Text: text})
			case name == "-":
				_, err := fmt.Fprint(s.out, text)
				return err
			}
			mode := fs.FileMode(0o644)
			if natsbroker.ShownURL(o.url) != o.url { // it has a password
				mode = 0o600
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
			if errors.Is(err, fs.ErrExist) {
				return cli.Usagef("%s is there already, and nothing in it is overwritten; name another FILE, or - for "+
					"standard output", name)
			}
			if err != nil {
				return cli.Usagef("%s: %w", name, errors.Unwrap(err))
			}
			_, err = f.WriteString(text)
			if err := errors.Join(err, f.Close()); err != nil {
				return fmt.Errorf("write %s: %w", name, err)
			}
			if asJSON {
				return printJSON(s.out, initialized{File: name})
			}
			_, err = fmt.Fprintf(s.out, "%s: dispatcher serve --config %s takes it\n", cli.OneLine(name),
				cli.OneLine(name))
			return err
		},
	}
	o.add(cmd.Flags())
	defer cli.Topic(cmd.Flags(), cli.TopicOutput)()
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON document: the file, or what would be in it where FILE is -")
	return cmd
}

// configuration is a configuration file: what was set stands there, and all else is commented out.
func configuration(cmd *cobra.Command) (string, error) {
	var b strings.Builder
	b.WriteString("# Settings of dispatcher serve. A flag on the command line wins over the environment\n" +
		"# (--max-batches is TOOLYARD_MAX_BATCHES), and that over this file.\n")
	for _, s := range cli.Sections(cmd) {
		wrote := false
		for _, f := range s.Flags {
			if f.Name == "help" || f.Name == "config" || f.Name == "json" { // no settings of serve
				continue
			}
			if !wrote {
				fmt.Fprintf(&b, "\n## %s\n", s.Heading())
				wrote = true
			}
			_, usage := pflag.UnquoteUsage(f)
			b.WriteString("\n")
			for _, line := range cli.Wrap(usage, configColumns) {
				fmt.Fprintf(&b, "# %s\n", line)
			}
			value, err := setting(f)
			if err != nil {
				return "", err
			}
			if !f.Changed {
				value = "#" + strings.ReplaceAll(value, "\n", "\n#")
			}
			fmt.Fprintln(&b, value)
		}
	}
	return b.String(), nil
}

// configColumns is how many characters a line of a comment in a configuration file has.
const configColumns = 98

// setting is a flag's value as a line of YAML.
func setting(f *pflag.Flag) (string, error) {
	var value any = f.Value.String()
	switch f.Value.Type() {
	case "bool", "int", "int64", "bytes", "duration": // as a person writes them
		return f.Name + ": " + f.Value.String(), nil
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		value = list.GetSlice()
	}
	text, err := yaml.Marshal(map[string]any{f.Name: value})
	if err != nil {
		return "", fmt.Errorf("write --%s as YAML: %w", f.Name, err)
	}
	return strings.TrimRight(string(text), "\n"), nil
}
