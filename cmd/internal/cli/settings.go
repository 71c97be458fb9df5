package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/suggest"
)

const (
	envPrefix      = "TOOLYARD_"
	configFlag     = "config"
	maxConfigBytes = 1 << 20
)

// WithSettings gives each flag of a command tree an environment variable and a key in a YAML file: --max-concurrency is
// TOOLYARD_MAX_CONCURRENCY and max-concurrency. A flag on the command line wins over the environment, and the
// environment over the file; so do flags that take each other's place ([Alternatives]).
func WithSettings(root *cobra.Command) {
	defer Topic(root.PersistentFlags(), TopicProgram)()
	root.PersistentFlags().String(configFlag, "", "YAML file with a key for each flag (a list for a flag that may be "+
		"repeated); in the environment --a-flag is TOOLYARD_A_FLAG")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return apply(cmd, environment(os.Environ())) }
}

// environment is the variables of a list that have our prefix.
func environment(list []string) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			out[name] = value
		}
	}
	return out
}

// given are variables of ours that are no settings: what tools and hooks get, what the examples read, and what this
// program tells itself and its tests. A command may run inside any of them.
var given = regexp.MustCompile(`^TOOLYARD_(` + strings.Join([]string{
	"BATCH|INDEX|CALL_ID|ATTEMPT|IDEMPOTENCY_KEY|FENCING_TOKEN|HOOKS_DIR|URL|LAUNCH|FAILPOINTS|FAILPOINTS_LOG",
	"TEST_.*|(EVERYTHING|CONFORMANCE)(_CACHE)?",
	// Kubernetes and Docker set these for each service whose name begins with toolyard.
	"(.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT(_.*)?|(.*_)?PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?",
}, "|") + `)$`)

// The flags of the two commands, one a line: their settings may stand in one environment. A test holds the
// lists to the flags.
var (
	//go:embed flags-dispatcher.txt
	dispatcherFlags string
	//go:embed flags-worker.txt
	workerFlags string
)

// FlagNames are the names of all flags of a command tree, sorted.
func FlagNames(root *cobra.Command) []string {
	return flagsWith(root, func(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "version" })
}

// notByEnv are the names of the flags that no environment variable sets.
func notByEnv(root *cobra.Command) []string {
	return flagsWith(root, func(f *pflag.Flag) bool { return f.Annotations[noEnv] != nil })
}

func flagsWith(root *cobra.Command, is func(*pflag.Flag) bool) []string {
	var out []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		add := func(f *pflag.Flag) {
			if is(f) {
				out = append(out, f.Name)
			}
		}
		cmd.LocalFlags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "completion" { // which is the library's
				visit(c)
			}
		}
	}
	visit(root)
	slices.Sort(out)
	return slices.Compact(out)
}

// checkVariables refuses a variable of ours that is no setting of either command: it would have no effect, although
// its author thinks otherwise.
func checkVariables(root *cobra.Command, env map[string]string) error {
	known := FlagNames(root)
	known = append(known, strings.Fields(dispatcherFlags+workerFlags)...)
	for i, name := range known {
		known[i] = EnvName(name)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	var errs []error
	for _, name := range notByEnv(root) {
		if _, ok := env[EnvName(name)]; ok {
			errs = append(errs, Usagef("%s: no environment variable sets --%s; unset it, and give the flag, or its key in "+
				"--config, where it is meant", EnvName(name), name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !slices.Contains(known, name) && !given.MatchString(name) {
			errs = append(errs, Usagef("%s: there is no such setting%s; unset it. \"%s --help\" lists the flags, and "+
				"--a-flag is TOOLYARD_A_FLAG", OneLine(name), meant(near(name, known), ""), root.Name()))
		}
	}
	return errors.Join(errs...)
}

// near are the variables that one may be a slip of. The prefix that they share does not count.
func near(name string, known []string) []string {
	short := make([]string, len(known))
	for i, k := range known {
		short[i] = strings.TrimPrefix(k, envPrefix)
	}
	out := suggest.Names(strings.TrimPrefix(name, envPrefix), short, suggestions)
	for i := range out {
		out[i] = envPrefix + out[i]
	}
	return out
}

// EnvName is the environment variable of a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func apply(cmd *cobra.Command, env map[string]string) error {
	if err := checkVariables(cmd.Root(), env); err != nil {
		return err
	}
	path, err := cmd.Flags().GetString(configFlag)
	if err != nil {
		return err
	}
	if v, ok := env[EnvName(configFlag)]; ok && !cmd.Flags().Changed(configFlag) {
		path = v
	}
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	known := FlagNames(cmd.Root())
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if key == configFlag {
			return Usagef("%s: key %q: a file names no other file; take it out", path, key)
		}
		if !slices.Contains(known, key) {
			return Usagef("%s: key %q is no setting of %s%s; see its --help for the flags", path, key,
				cmd.Root().Name(), meant(suggest.Names(key, known, suggestions), ""))
		}
	}
	given := map[string]source{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if from, ok := sourceOf(f, env, file, path); ok {
			given[f.Name] = from
		}
	})
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		from, ok := given[f.Name]
		if ok && from.rank == onCommandLine {
			errs = append(errs, cmd.Flags().SetAnnotation(f.Name, typed, []string{}))
		}
		if !ok || from.rank == onCommandLine || from.yields(f, given) {
			return
		}
		if err := set(cmd.Flags(), f, from.values); err != nil {
			errs = append(errs, Usagef("%s: %w", from.name, explain(err)))
		}
	})
	return errors.Join(errs...)
}

// rank says which source of a setting wins: the lower one.
type rank int

const (
	onCommandLine rank = iota
	inEnvironment
	inFile
)

// source is where the value of a flag comes from.
type source struct {
	rank   rank
	name   string // for messages
	values []string
}

// sourceOf is where a flag's value comes from; false if it keeps its default.
func sourceOf(f *pflag.Flag, env map[string]string, file map[string][]string, path string) (source, bool) {
	if f.Name == "help" || f.Name == "version" || f.Name == configFlag {
		return source{}, false
	}
	if f.Changed {
		return source{onCommandLine, "--" + f.Name, []string{f.Value.String()}}, true
	}
	if v, ok := env[EnvName(f.Name)]; ok {
		values := []string{v}
		if _, list := f.Value.(pflag.SliceValue); list {
			values = slices.DeleteFunc(strings.Split(v, "\n"), func(s string) bool { return s == "" })
		}
		return source{inEnvironment, EnvName(f.Name), values}, true
	}
	values, ok := file[f.Name]
	return source{inFile, fmt.Sprintf("%s: key %q", path, f.Name), values}, ok
}

// yields reports whether another flag, which says the same thing in another way, comes from a source that wins.
func (s source) yields(f *pflag.Flag, given map[string]source) bool {
	for _, name := range f.Annotations[alternatives] {
		other, ok := given[name]
		if ok && other.rank < s.rank && slices.ContainsFunc(other.values, func(v string) bool {
			return v != "" && v != "false"
		}) {
			return true
		}
	}
	return false
}

// typed marks a flag that stands on the command line.
const typed = "toolyard-typed"

// OnCommandLine reports whether a flag was given there, and not in the environment or in a file.
func OnCommandLine(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && f.Annotations[typed] != nil
}

// NotEmpty refuses a list that is given and has nothing in it, as one from a variable that is not set. It is for lists
// without which everything is meant.
func NotEmpty(f *pflag.FlagSet, flag string) error {
	given := f.Lookup(flag)
	if list, ok := given.Value.(pflag.SliceValue); ok && given.Changed && len(list.GetSlice()) == 0 {
		return emptyList(flag)
	}
	return nil
}

func emptyList(flag string) error {
	return Usagef("--%s is given, and is empty; name at least one, or leave it out (on the command line, in %s, and in "+
		"--config)", flag, EnvName(flag))
}

// alternatives marks a flag with the names of those that take its place.
const alternatives = "toolyard-alternatives"

// Alternatives says that flags take each other's place. One on the command line wins over another in the environment or
// in the file, and one in the environment over another in the file; two of one source are for the command to judge.
func Alternatives(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		others := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == name })
		if have := f.Lookup(name); have != nil {
			others = append(others, have.Annotations[alternatives]...)
		}
		if err := f.SetAnnotation(name, alternatives, others); err != nil {
			panic(err) // the flag is there
		}
	}
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

// readConfig reads the file's keys. Every value is a scalar or a list of scalars.
func readConfig(path string) (map[string][]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := ReadFile("--config", path, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	var doc map[string]yaml.Node
	if err := manifest.OnlyDocument(yaml.NewDecoder(bytes.NewReader(raw)), &doc); err != nil {
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

// ReadFile reads a file of at most so many bytes that a flag names. What is wrong with it is an error of usage.
func ReadFile(flag, path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Usagef("%s %s: there is no such file", flag, path)
	case err != nil:
		return nil, Usagef("%s: %w", flag, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, Usagef("%s %s: it is a directory, and not a regular file", flag, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, Usagef("%s: %w", flag, err)
	case int64(len(data)) > most:
		return nil, Usagef("%s %s: it is longer than it may be: at most %d bytes", flag, path, most)
	}
	return data, nil
}
