package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

const (
	envPrefix      = "TOOLYARD_"
	configFlag     = "config"
	maxConfigBytes = 1 << 20
)

// WithSettings gives each flag of a command tree an environment variable and a key in a YAML file: --max-concurrency is
// TOOLYARD_MAX_CONCURRENCY and max-concurrency. A flag on the command line wins over the environment, and the
// environment over the file.
func WithSettings(root *cobra.Command) {
	root.PersistentFlags().String(configFlag, "", "YAML file with a key for each flag (a list for a flag that may be "+
		"repeated); in the environment --a-flag is TOOLYARD_A_FLAG")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return apply(cmd, os.LookupEnv) }
}

// EnvName is the environment variable of a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func apply(cmd *cobra.Command, env func(string) (string, bool)) error {
	path, err := cmd.Flags().GetString(configFlag)
	if err != nil {
		return err
	}
	if v, ok := env(EnvName(configFlag)); ok && !cmd.Flags().Changed(configFlag) {
		path = v
	}
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	for key := range file {
		if !knownFlag(cmd.Root(), key) {
			return Usagef("%s: key %q is no setting of %s; see its --help for the flags", path, key, cmd.Root().Name())
		}
	}
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" || f.Name == configFlag {
			return
		}
		from, values := "", []string(nil)
		if v, ok := env(EnvName(f.Name)); ok && f.Annotations[noEnv] == nil {
			from, values = EnvName(f.Name), []string{v}
			if _, list := f.Value.(pflag.SliceValue); list {
				values = slices.DeleteFunc(strings.Split(v, "\n"), func(s string) bool { return s == "" })
			}
		} else if v, ok := file[f.Name]; ok {
			from, values = fmt.Sprintf("%s: key %q", path, f.Name), v
		}
		if from == "" {
			return
		}
		if err := set(cmd.Flags(), f, values); err != nil {
			errs = append(errs, Usagef("%s: %w", from, err))
		}
	})
	return errors.Join(errs...)
}

func set(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		f.Changed = true
		return list.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("takes one value, not %d", len(values))
	}
	return flags.Set(f.Name, values[0])
}

// knownFlag reports whether any command of the tree has the flag: one file may serve several commands.
func knownFlag(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
		return true
	}
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return knownFlag(c, name) })
}

// readConfig reads the file's keys. Every value is a scalar or a list of scalars.
func readConfig(path string) (map[string][]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := readFile("--config", path, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	var doc map[string]yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, Usagef("--config %s: %s", path, OneLine(err.Error()))
	}
	out := map[string][]string{}
	for key, node := range doc {
		items := []*yaml.Node{&node}
		if node.Kind == yaml.SequenceNode {
			items = node.Content
		}
		out[key] = []string{}
		for _, item := range items {
			if item.Kind != yaml.ScalarNode {
				return nil, Usagef("--config %s: line %d: key %q takes a value or a list of values", path, item.Line,
					key)
			}
			out[key] = append(out[key], item.Value)
		}
	}
	return out, nil
}

// readFile reads a regular file of at most so many bytes that a flag names. What is wrong with it is an error of usage.
func readFile(flag, path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Usagef("%s %s: there is no such file", flag, path)
	case err != nil:
		return nil, Usagef("%s: %w", flag, err)
	case !info.Mode().IsRegular() || info.Size() > most:
		return nil, Usagef("%s %s: it is not a regular file of at most %d bytes", flag, path, most)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, Usagef("%s: %w", flag, err)
	}
	return raw, nil
}
