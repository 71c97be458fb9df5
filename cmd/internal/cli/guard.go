package cli

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// Guard are the flags about hooks, secrets and credentials, and about the manifests, which grant credentials too.
type Guard struct {
	Manifests Manifests
	HooksFile string
	// SettingsFile is read in its place, with its variables.
	SettingsFile string
	Secrets      []string
	Credentials  []string
	// ScanOutputs are scanners with what they do, and FenceOutputs puts outputs from outside between delimiters.
	ScanOutputs  []string
	FenceOutputs bool

	read  *hooksFile    // once it was
	names *policy.Names // what hooks may name; nil where no calls run
	left  []string      // what in the file does not apply here
	made  *hooks.Set    // once it was
}

// hooksFile is a file of hooks, and the directory that it stands in.
type hooksFile struct {
	hooks.Config
	dir string
}

// Add adds the flags.
func (g *Guard) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicSecrets)()
	g.Manifests.Add(f)
	f.StringVar(&g.HooksFile, "hooks", "", "run the hooks of a JSON `FILE` around calls: commands, HTTP and tools "+
		"of MCP servers, in the form that docs/hooks.md describes. Of a settings.json of Claude Code its permissions "+
		"hold too, and what does not apply is named")
	f.StringVar(&g.SettingsFile, "settings", "", "take a settings.json of Claude Code as it is, from `FILE`: its hooks, "+
		"its permissions, and its variables for hooks and commands, as docs/hooks.md describes; what does not apply is "+
		"named. Instead of --hooks")
	f.StringArrayVar(&g.Secrets, "secret", nil, "take the value of the environment variable `NAME` out of results "+
		"and events, beside those whose names say that they are secret; may be repeated")
	f.StringArrayVar(&g.Credentials, "credential", nil, "give a tool the value of an environment variable with each "+
		"call, as `TOOL=NAME`; it is a secret too; may be repeated")
	f.StringArrayVar(&g.ScanOutputs, "scan-outputs", nil, "look through outputs that come from outside before a model "+
		"reads them, as `SCANNER=ACTION`: invisible=mark, invisible=strip, invisible=withhold, secrets=strip or "+
		"secrets=withhold; may be repeated")
}

// AddFence adds the flag that fences outputs for a process that runs batches of others.
func (g *Guard) AddFence(f *pflag.FlagSet) {
	defer Topic(f, TopicSecrets)()
	f.BoolVar(&g.FenceOutputs, "fence-outputs", false, "put outputs that come from outside between delimiters that no "+
		"output can forge, also where a batch does not ask for it")
}

// Redactor makes what takes secrets out of texts: the named ones, those that hooks send along, those that the
// environment seems to have, and well-known shapes.
func (g *Guard) Redactor() (*redact.Redactor, error) {
	file, err := g.hooks()
	if err != nil {
		return nil, err
	}
	secrets, err := redact.Named(g.Secrets, os.LookupEnv)
	if err != nil {
		return nil, Usagef("--secret: %w", err)
	}
	names, err := g.Manifests.serverCredentials()
	if err != nil {
		return nil, err
	}
	grants, err := g.grants()
	if err != nil {
		return nil, err
	}
	for _, c := range grants {
		_, name, ok := strings.Cut(c, "=")
		if !ok || name == "" {
			return nil, Usagef("--credential %q: write TOOL=NAME", c)
		}
		names = append(names, name)
	}
	granted, err := redact.Named(names, os.LookupEnv)
	if err != nil {
		return nil, Usagef("--credential, or credentials in a file of --tools: %w", err)
	}
	for _, name := range file.HeaderVariables() {
		value, own := file.Env[name]
		if !own {
			value = os.Getenv(name)
		}
		granted = append(granted, redact.Secret{Name: name, Value: value})
	}
	// Settings are no secrets, but for the token and what stands in their URLs.
	environ := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix) && !strings.HasPrefix(kv, EnvName("token")+"=")
	})
	for _, setting := range []string{EnvName("nats"), EnvName("server")} {
		secrets = append(secrets, redact.InURLs(setting, os.Getenv(setting))...)
	}
	for name, value := range file.Env {
		environ = append(environ, name+"="+value)
	}
	return redact.New(slices.Concat(secrets, granted, redact.Environ(environ))), nil
}

// grants are the credentials of tools, from flags and manifests.
func (g *Guard) grants() ([]string, error) {
	declared, err := g.Manifests.grants()
	return slices.Concat(g.Credentials, declared), err
}

// apply puts hooks, redaction and credentials into a worker's configuration.
func (g *Guard) apply(cfg *worker.Config, tools []tool.Tool, mode policy.Mode, log *slog.Logger) (err error) {
	secrets, err := g.Redactor()
	if err != nil {
		return err
	}
	cfg.Redact, cfg.Unfinished = secrets.Redact, secrets.Unfinished
	if cfg.Scan, err = scan.Parse(g.ScanOutputs); err != nil {
		return Usagef("--scan-outputs %w", err)
	}
	cfg.Fence = g.FenceOutputs
	grants, err := g.grants()
	if err != nil {
		return err
	}
	for _, c := range grants {
		name, variable, _ := strings.Cut(c, "=")
		if !slices.ContainsFunc(tools, func(t tool.Tool) bool { return t.Name == name }) {
			return Usagef("--credential %q: there is no tool %q here", c, name)
		}
		if cfg.Credentials == nil {
			cfg.Credentials = map[string]map[string]string{}
		}
		if cfg.Credentials[name] == nil {
			cfg.Credentials[name] = map[string]string{}
		}
		cfg.Credentials[name][variable] = os.Getenv(variable)
	}
	set, err := g.set(tools, mode, log)
	if set != nil {
		cfg.Hooks = set
	}
	return err
}

// Hooks are the hooks of the file, once they were made; nil when there are none.
func (g *Guard) Hooks() *hooks.Set { return g.made }

// set is the hooks of the file; nil when there is none.
func (g *Guard) set(tools []tool.Tool, mode policy.Mode, log *slog.Logger) (*hooks.Set, error) {
	if flag, _ := g.file(); g.made != nil || flag == "" {
		return g.made, nil
	}
	file, err := g.hooks()
	if err != nil {
		return nil, err
	}
	o := hooks.Options{Config: file.Config, Dir: file.dir, Mode: mode, Names: g.names, Env: file.Env, Log: log}
	if o.Servers, o.CallTool, err = g.Manifests.hookServers(); err != nil {
		return nil, err
	}
	for _, t := range tools {
		o.Declarations = append(o.Declarations, t.Declaration)
	}
	if g.made, err = hooks.New(o); err != nil {
		return nil, g.wrong(err)
	}
	return g.made, nil
}

// AfterBatch returns what tells the hooks of batches that are over, for a dispatcher; nil when there are none.
func (g *Guard) AfterBatch(tools []tool.Tool, mode policy.Mode,
	log *slog.Logger) (func(context.Context, hooks.BatchInput) (*toolyard.Notice, error), error) {
	set, err := g.set(tools, mode, log)
	if err != nil || set == nil || !set.HasBatch() {
		return nil, err
	}
	return func(ctx context.Context, in hooks.BatchInput) (*toolyard.Notice, error) {
		v, err := set.Batch(ctx, in)
		if err != nil || v == (hooks.BatchVerdict{}) {
			return nil, err
		}
		return &toolyard.Notice{Context: v.Context, Stop: v.Stop, Reason: v.Reason, By: v.By}, nil
	}, nil
}

// settings are the permissions in the file of hooks, when it is a settings.json.
func (g *Guard) settings(n policy.Names, dirs []string, tools []*tool.Declaration) (policy.Settings, error) {
	file, err := g.hooks()
	if err != nil {
		return policy.Settings{}, err
	}
	s, err := file.Settings.For(n, dirs, tools...)
	if err != nil {
		return s, g.wrong(err)
	}
	g.left = append(slices.Clone(file.Left), s.Left[len(file.Settings.Left):]...)
	return s, nil
}

// SayLeft names in the log what in the file of hooks does not apply here, once.
func (g *Guard) SayLeft(log *slog.Logger) {
	_, path := g.file()
	for _, what := range g.left {
		log.Warn("a setting does not apply here", "file", path, "what", what)
	}
	g.left = nil
}

// leaveHooks notes the hooks that do not run in a process that runs no calls.
func (g *Guard) leaveHooks() {
	for _, event := range g.read.OfCalls() {
		g.left = append(g.left, "hooks."+event+": no call runs in this process; give the file to its workers too")
	}
}

// file is the flag that names the file of hooks, and the file; both are empty when there is none.
func (g *Guard) file() (flag, path string) {
	switch {
	case g.SettingsFile != "":
		return "--settings", g.SettingsFile
	case g.HooksFile != "":
		return "--hooks", g.HooksFile
	}
	return "", ""
}

// wrong is the error of the file of hooks.
func (g *Guard) wrong(err error) error {
	flag, path := g.file()
	return Usagef("%s %s: %w", flag, path, err)
}

// hooks reads the file of hooks, once; without one there are none.
func (g *Guard) hooks() (*hooksFile, error) {
	flag, path := g.file()
	switch {
	case g.read != nil:
		return g.read, nil
	case flag == "":
		return &hooksFile{}, nil
	case g.HooksFile != "" && g.SettingsFile != "":
		return nil, Usagef("--hooks and --settings exclude each other: both have hooks")
	}
	data, err := ReadFile(flag, path, hooks.MaxConfigBytes)
	if err != nil {
		return nil, err
	}
	var file hooksFile
	if file.Config, err = hooks.Read(data); err == nil {
		file.dir, err = filepath.Abs(filepath.Dir(path))
	}
	if err != nil {
		return nil, g.wrong(err)
	}
	switch {
	case g.SettingsFile == "":
		if len(file.Env) > 0 {
			file.Left = append(file.Left, "env: is not used here; --settings takes it")
		}
		file.Env = nil
	default:
		for _, name := range slices.Sorted(maps.Keys(file.Env)) {
			if redact.SecretName(name) {
				file.Left = append(file.Left, "env."+name+": its name says that it is a secret, so that hooks get it "+
					"and commands do not")
			}
		}
	}
	g.read = &file
	return g.read, nil
}

// commandEnv are the variables that commands get: those of the settings, without secrets, which no command can read.
func (g *Guard) commandEnv() (map[string]string, error) {
	file, err := g.hooks()
	if err != nil {
		return nil, err
	}
	env := maps.Clone(file.Env)
	maps.DeleteFunc(env, func(name, _ string) bool { return redact.SecretName(name) })
	return env, nil
}
