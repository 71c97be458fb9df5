package cli

import (
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// Permissions are the flags of the operator's rules.
type Permissions struct {
	Allow, Deny, Ask []string
	// Files have rules with examples.
	Files []string
	// Mode is empty when none was given.
	Mode string
	// Confirm asks about whatever may not be undone, unless a precise rule allows it.
	Confirm bool
	// Known are tools that rules may name although they are not here.
	Known []string
}

// Scope says what rules are given to.
type Scope struct {
	// Dirs are the directories of workspaces, beside those of --workspace.
	Dirs []string
	// System says that the rules are for a system too, whose workers come and go with tools of their own.
	System bool
	// NoCalls says that no call runs in this process: then nothing can be allowed by it.
	NoCalls bool
	// Later says that the caller checks the names of rules itself, when it knows the tools of a running system.
	Later bool
}

// Add adds the flags.
func (p *Permissions) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicRules)()
	f.StringArrayVar(&p.Allow, "allow", nil, "allow calls that match `RULE`: tool or tool(specifier); may be repeated")
	p.AddTightening(f)
	f.StringArrayVar(&p.Files, "rules", nil, "take more rules from a YAML `FILE`: lists deny, ask and allow of "+
		"{rule, matches, spares}, whose examples must hold; may be repeated")
	f.StringVar(&p.Mode, "permission-mode", "", "what happens to calls that no rule decides: default, accept_edits, "+
		"plan, dont_ask or bypass (default: default)")
	f.BoolVar(&p.Confirm, "confirm-destructive", false, "ask before calls that may do what cannot be undone, also where "+
		"the mode, the tool or a rule without specifier allows them")
}

// AddTightening adds the flags that can only take permissions away.
func (p *Permissions) AddTightening(f *pflag.FlagSet) {
	defer Topic(f, TopicRules)()
	f.StringArrayVar(&p.Deny, "deny", nil, "deny calls that match `RULE`; it wins over everything; may be repeated")
	f.StringArrayVar(&p.Ask, "ask", nil,
		"ask before calls that match `RULE`, even where they would be allowed; may be repeated")
}

// AddKnown adds the flag that names tools of other workers.
func (p *Permissions) AddKnown(f *pflag.FlagSet) {
	defer Topic(f, TopicRules)()
	f.StringArrayVar(&p.Known, "known-tool", nil, "a tool `NAME` that workers of the system will offer, so that "+
		"rules may name it before it is there; may be repeated")
}

// Rules reads the rules and checks them against the declarations that are known.
func (p *Permissions) Rules(tools []tool.Tool) (policy.Rules, policy.Mode, error) {
	rules := policy.Rules{Confirm: p.Confirm}
	mode, err := policy.ParseMode(p.Mode)
	if err != nil {
		return rules, mode, Usagef("--permission-mode: %w", err)
	}
	for _, list := range []struct {
		flag  string
		texts []string
		to    *[]policy.Rule
	}{{"--allow", p.Allow, &rules.Allow}, {"--deny", p.Deny, &rules.Deny}, {"--ask", p.Ask, &rules.Ask}} {
		if *list.to, err = policy.ParseRules(list.texts); err != nil {
			return rules, mode, Usagef("%s: %w", list.flag, err)
		}
	}
	for _, path := range p.Files {
		if err := readRules(path, &rules, tools); err != nil {
			return rules, mode, err
		}
	}
	if err := rules.Check(declarationsOf(tools)...); err != nil {
		return rules, mode, &UsageError{err}
	}
	return rules, mode, nil
}

func declarationsOf(tools []tool.Tool) []*tool.Declaration {
	out := make([]*tool.Declaration, len(tools))
	for i := range tools {
		out[i] = &tools[i].Declaration
	}
	return out
}

// Worker are the flags of a worker.
type Worker struct {
	// Avoid are places that no workspace may hold, nor lie in, beside those that none ever may.
	Avoid        []place.Avoided
	Pool         string
	Tags         []string
	Workspaces   []string
	Classes      []string
	ReadSlots    int
	WriteSlots   int
	AllowPrivate []string
	Protect      []string
	Drain        time.Duration
	// Snapshots is where workspaces are kept as they were: a directory, noSnapshots, or empty for the user's own.
	// snapshots says that there is such a flag.
	Snapshots string
	snapshots bool
	// Shells is where the shells of sessions are kept; empty: bash remembers nothing.
	Shells string
	// kept is the one store of the worker and its tools.
	kept      *snapshot.Store
	MaxTokens int
	// Background offers the tools of background calls.
	Background bool
	// RunCode offers run_code. A dispatcher lets its scripts call tools.
	RunCode bool
	Sandbox Sandbox
	Guard   Guard
}

// Add adds the flags that say where and how calls run.
func (w *Worker) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicWorker)()
	f.StringVar(&w.Pool, "pool", "", "the pool whose calls to take; all workers of a pool have the same tools, "+
		"workspaces and tags (default: \"default\", or with --tag one that is named after the tags)")
	f.StringArrayVar(&w.Tags, "tag", nil, "something that this worker has, as NAME or NAME=VALUE: batches and tools "+
		"that ask for the `TAG` come only to workers that have it; may be repeated")
	f.StringArrayVar(&w.Workspaces, "workspace", nil,
		"serve a workspace from a directory, as `NAME=DIR`; may be repeated. "+
			"Without, a worker serves every workspace, and its tools get no directory")
	f.StringSliceVar(&w.Classes, "classes", nil, "take calls of these classes only: READ_ONLY, WRITE_EXCLUSIVE, UNSAFE")
	w.snapshots = true
	f.StringVar(&w.Snapshots, "snapshots", "", "keep what batches with the option snapshot need to be undone in `DIR`, "+
		"which workers that serve the same workspaces share, or \""+noSnapshots+"\" to keep none "+
		"(default: in the user's state directory)")
	f.StringVar(&w.Shells, "shells", "", "have bash remember directory, exported variables and /tmp for each session, "+
		"in `DIR`, which workers that serve the same workspaces share (default: each command begins anew)")
	w.AddSlots(f, worker.DefaultDrainGrace)
	w.Guard.AddFence(f)
}

// WarnOfNoWorkspace says what it means that a worker has no workspace, which is rarely meant. what is how it was
// started.
func (w *Worker) WarnOfNoWorkspace(what string, log *slog.Logger) {
	if len(w.Workspaces) == 0 {
		log.Warn(what + " without --workspace: the worker takes the calls of every workspace, and its tools get no " +
			"directory, so calls that need files end as setup_required; --workspace default=. serves this directory")
	}
}

// AddSlots adds the flags that say how much runs at a time, and what tools may reach.
func (w *Worker) AddSlots(f *pflag.FlagSet, drain time.Duration) {
	defer Topic(f, TopicWorker)()
	f.IntVar(&w.ReadSlots, "read-slots", worker.DefaultReadSlots, "READ_ONLY calls that run at a time")
	f.IntVar(&w.WriteSlots, "write-slots", worker.DefaultWriteSlots,
		"calls of each other class that run at a time, in different workspaces")
	f.StringSliceVar(&w.AllowPrivate, "web-allow-private", nil,
		"private addresses that web_fetch may reach all the same: hosts or CIDRs")
	f.StringArrayVar(&w.Protect, "protect", nil, "a `PATH` below a workspace's directory that no command may write, "+
		"and no edit without a rule that names it, beside the built-in ones; may be repeated")
	f.IntVar(&w.MaxTokens, "max-result-tokens", 0, "store what has more tokens than this too, and show a preview of at "+
		"most as many, beside the limit in characters of each tool; counted as o200k_base does, in worker and toolyard "+
		"alone (default: characters alone count)")
	f.BoolVar(&w.Background, "background", false,
		"offer the tools of background calls: background_start and the others")
	w.AddRunCode(f)
	w.Sandbox.Add(f)
	w.Guard.Add(f)
	f.DurationVar(&w.Drain, "drain-grace", drain, "how long running calls may go on after SIGTERM; 0 takes the default")
}

// AddRunCode adds the flag that offers run_code.
func (w *Worker) AddRunCode(f *pflag.FlagSet) {
	f.BoolVar(&w.RunCode, "run-code", false, "offer run_code, a tool that runs a script in the sandbox which "+
		"calls the batch's other tools; dispatchers refuse the calls of scripts without it, so set it there too")
}

// Tools makes the built-in tools, and those that manifests declare.
func (w *Worker) Tools() ([]tool.Tool, error) {
	box, err := w.Sandbox.Box()
	if err != nil {
		return nil, err
	}
	commands, err := w.Sandbox.Policy()
	if err != nil {
		return nil, err
	}
	if commands.Env, err = w.Guard.commandEnv(); err != nil {
		return nil, err
	}
	kept, err := w.shells()
	if err != nil {
		return nil, err
	}
	tools, err := builtin.All(builtin.Options{AllowPrivateAddresses: w.AllowPrivate, Sandbox: box, Commands: commands,
		RunCode: w.RunCode, Shells: kept})
	if err != nil {
		return nil, Usagef("--web-allow-private: %w", err)
	}
	if commands.Network.Private, err = builtin.PrivateAddresses(w.AllowPrivate); err != nil {
		return nil, Usagef("--web-allow-private: %w", err)
	}
	store, err := w.store()
	if err != nil {
		return nil, err
	}
	if store != nil {
		tools = append(tools, snapshot.Tool(store), snapshot.OverlayTool(store, builtin.Diff, sandbox.Recover))
	}
	if w.Background {
		tools = append(tools, background.Tools()...)
	}
	declared, err := w.Guard.Manifests.Tools(box, commands)
	return append(tools, declared...), err
}

// noSnapshots is the value of --snapshots of a worker that keeps none.
const noSnapshots = "none"

// store is where snapshots are kept; nil if that is nowhere.
func (w *Worker) store() (*snapshot.Store, error) {
	if !w.snapshots || w.Snapshots == noSnapshots || w.kept != nil {
		return w.kept, nil
	}
	dir := w.Snapshots
	if dir == "" {
		state, err := StateDir()
		if err != nil {
			return nil, nil //nolint:nilerr // a user without a home keeps none, and calls that need one say so
		}
		dir = filepath.Join(state, "snapshots")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, Usagef("--snapshots: %w", err)
	}
	w.kept = snapshot.New(dir)
	return w.kept, nil
}

// shells is where shells are kept; nil if bash remembers nothing.
func (w *Worker) shells() (*shells.Store, error) {
	if w.Shells == "" {
		return nil, nil
	}
	if runtime.GOOS != "linux" || w.Sandbox.Unsandboxed {
		return nil, Usagef("--shells: only a sandbox on Linux keeps the files of /tmp")
	}
	dir, err := filepath.Abs(w.Shells)
	if err != nil {
		return nil, Usagef("--shells: %w", err)
	}
	return shells.New(dir), nil
}

// Toolbox makes the tools, and reads the permission rules, which are checked against them: those of flags and files,
// and those of a settings.json that was given for its hooks.
func (w *Worker) Toolbox(p *Permissions, in Scope) ([]tool.Tool, policy.Rules, policy.Mode, error) {
	fail := func(err error) ([]tool.Tool, policy.Rules, policy.Mode, error) { return nil, policy.Rules{}, "", err }
	tools, err := w.Tools()
	if err != nil {
		return fail(err)
	}
	rules, mode, err := p.Rules(tools)
	if err != nil {
		return fail(err)
	}
	names := policy.NamesOf(tools)
	names.Tools, names.AnyServer = append(names.Tools, p.Known...), in.System
	if names.Servers, err = w.Guard.Manifests.serverNames(); err != nil {
		return fail(err)
	}
	if err := rules.CheckNames(names); err != nil && !in.Later {
		return fail(Usagef("%w%s", err, in.hint()))
	}
	if !in.NoCalls {
		w.Guard.names = &names
	} else if err := in.onlyTightens(rules, mode, declarationsOf(tools)); err != nil {
		return fail(err)
	}
	settings, err := w.Guard.settings(names, w.dirs(in.Dirs), declarationsOf(tools))
	if err != nil {
		return fail(err)
	}
	if in.NoCalls {
		for _, r := range settings.Rules.Allow {
			w.Guard.left = append(w.Guard.left, fmt.Sprintf("permissions.allow %q: no call runs in this process", r))
		}
		settings.Rules.Allow, settings.Mode = nil, ""
		if w.Guard.SettingsFile != "" { // --hooks is refused where none of its hooks runs
			w.Guard.leaveHooks()
		}
	}
	if p.Mode == "" && settings.Mode != "" {
		mode = settings.Mode
	}
	if mode == policy.Bypass && settings.NoBypass {
		flag, path := w.Guard.file()
		return fail(Usagef("--permission-mode: the settings in %s %s say disableBypassPermissionsMode", flag, path))
	}
	rules = rules.Tighten(settings.Rules.Deny, settings.Rules.Ask)
	rules.Allow = append(rules.Allow, settings.Rules.Allow...)
	return tools, rules, mode, nil
}

// hint says what to do about a name that is not known.
func (in Scope) hint() string {
	if in.System {
		return "; name a tool that workers will offer with --known-tool"
	}
	return ""
}

// onlyTightens refuses what a process in which no calls run cannot decide: a permission is a worker's to give.
func (in Scope) onlyTightens(rules policy.Rules, mode policy.Mode, tools []*tool.Declaration) error {
	const elsewhere = "this process runs no calls; give it to its workers, or add --with-worker"
	switch {
	case len(rules.Allow) > 0:
		return Usagef("--allow %s: %s", rules.Allow[0], elsewhere)
	case mode != policy.Default:
		return Usagef("--permission-mode %s: %s", mode, elsewhere)
	case rules.Confirm:
		return Usagef("--confirm-destructive: %s", elsewhere)
	}
	if err := rules.CheckPlaces(nil, tools...); err != nil {
		return &UsageError{err}
	}
	return nil
}

// dirs are the directories of the workspaces, as far as they can be read: what is wrong with one is said later.
func (w *Worker) dirs(more []string) []string {
	for _, s := range w.Workspaces {
		if _, dir, ok := strings.Cut(s, "="); ok {
			if abs, err := filepath.Abs(dir); err == nil {
				more = append(more, abs)
			}
		}
	}
	return more
}

// Again returns the same flags, whose files are read again. MCP servers that are declared as before go on; hooks stay
// as they were read at the start.
func (w *Worker) Again() Worker {
	next := *w
	g := &next.Guard
	g.Manifests = Manifests{Files: g.Manifests.Files, former: g.Manifests.made, serving: g.Manifests.serving}
	g.read, g.names, g.left = nil, nil, nil
	return next
}

func (w *Worker) tags() (out []toolyard.Tag) {
	for _, t := range w.Tags {
		out = append(out, toolyard.Tag(t))
	}
	return out
}

// PoolName is the pool whose calls the worker takes.
func (w *Worker) PoolName() (toolyard.Pool, error) {
	if err := toolyard.CheckTags("--tag", w.tags(), broker.MaxTags); err != nil {
		return "", &UsageError{err}
	}
	if w.Pool != "" {
		return toolyard.Pool(w.Pool), nil
	}
	return broker.PoolOf(w.tags()), nil
}

// Tokens makes a limit of results in tokens. Programs that count them set it; in the others it is nil, and they are 6
// MB smaller.
var Tokens func(most int) *pipeline.Tokens

// tokens limits results in tokens; nil when nothing was said.
func (w *Worker) tokens() (*pipeline.Tokens, error) {
	const flag = "--max-result-tokens"
	switch {
	case w.MaxTokens == 0:
		return nil, nil
	case w.MaxTokens < pipeline.MinResultTokens:
		return nil, Usagef("%s %d: use %d or more", flag, w.MaxTokens, pipeline.MinResultTokens)
	case Tokens == nil:
		return nil, Usagef("%s: this program counts no tokens; use \"worker serve\" or \"toolyard\"", flag)
	}
	return Tokens(w.MaxTokens), nil
}

// Config makes the worker's configuration.
func (w *Worker) Config(tools []tool.Tool, rules policy.Rules, mode policy.Mode, log *slog.Logger) (worker.Config,
	error) {
	for _, n := range []struct {
		flag string
		v    int
	}{{"--read-slots", w.ReadSlots}, {"--write-slots", w.WriteSlots}} {
		if n.v < 1 || n.v > worker.MaxSlots {
			return worker.Config{}, Usagef("%s %d: use 1 to %d", n.flag, n.v, worker.MaxSlots)
		}
	}
	if w.Drain < 0 {
		return worker.Config{}, Usagef("--drain-grace %s: use a positive time", w.Drain)
	}
	pool, err := w.PoolName()
	if err != nil {
		return worker.Config{}, err
	}
	cfg := worker.Config{
		Pool: pool, Tags: w.tags(), Tools: tools, Origin: registry.Builtin, Rules: rules, Mode: mode, Log: log,
		DrainGrace: w.Drain, Workspaces: map[toolyard.Workspace]string{},
		Slots: map[toolyard.Class]int{toolyard.ReadOnly: w.ReadSlots, toolyard.WriteExclusive: w.WriteSlots,
			toolyard.Unsafe: w.WriteSlots},
	}
	if cfg.Tokens, err = w.tokens(); err != nil {
		return cfg, err
	}
	if cfg.Protect, err = protect.New(w.Protect...); err != nil {
		return cfg, Usagef("--protect: %w", err)
	}
	cfg.Avoid = append(cfg.Avoid, w.Avoid...)
	if state, err := StateDir(); err == nil {
		cfg.Avoid = append(cfg.Avoid, place.Avoided{Path: state, What: "where Toolyard keeps its state"})
	}
	kept, err := w.store()
	if err != nil {
		return cfg, err
	}
	if kept != nil {
		cfg.Snapshots = kept
		cfg.Avoid = append(cfg.Avoid, place.Avoided{Path: cfg.Snapshots.Dir(), What: "where snapshots are kept"})
	}
	if cfg.Shells, err = w.shells(); err != nil {
		return cfg, err
	}
	if cfg.Shells != nil {
		cfg.Avoid = append(cfg.Avoid, place.Avoided{Path: cfg.Shells.Dir(), What: "where shells are kept"})
	}
	if err = w.Sandbox.apply(&cfg, log); err != nil {
		return cfg, err
	}
	w.Guard.SayLeft(log)
	if err := w.Guard.apply(&cfg, tools, mode, log); err != nil {
		return cfg, err
	}
	if err := w.Guard.Manifests.apply(&cfg, log); err != nil {
		return cfg, err
	}
	if w.Classes != nil && len(w.Classes) == 0 { // without the list it would take all
		return cfg, emptyList("classes")
	}
	for _, c := range w.Classes {
		class := toolyard.Class(strings.ToUpper(strings.TrimSpace(c)))
		if !class.Known() {
			return cfg, Usagef("--classes: %q is no class; use some of %s, %s, %s", c, toolyard.ReadOnly,
				toolyard.WriteExclusive, toolyard.Unsafe)
		}
		cfg.Classes = append(cfg.Classes, class)
	}
	for _, s := range w.Workspaces {
		name, dir, ok := strings.Cut(s, "=")
		if !ok {
			return cfg, Usagef("--workspace %q: write NAME=DIR", s)
		}
		if err := toolyard.CheckName("--workspace", name); err != nil {
			return cfg, err
		}
		abs, err := Dir("--workspace", dir)
		if err != nil {
			return cfg, err
		}
		if other, ok := cfg.Workspaces[toolyard.Workspace(name)]; ok && other != abs {
			return cfg, Usagef("--workspace %q is given two directories, %s and %s; leave one out", name, other, abs)
		}
		cfg.Workspaces[toolyard.Workspace(name)] = abs
	}
	// The worker holds them; here it is only said early what is wrong.
	roots, err := place.HoldAll(cfg.Workspaces, cfg.Protect, cfg.Avoid)
	if err != nil {
		return cfg, Usagef("--workspace: %w", err)
	}
	for _, r := range roots {
		if err := r.Close(); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// StateDir is where this user's state is kept, unless a flag says otherwise.
func StateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "toolyard"), nil
}

// Dir makes a directory's path absolute and checks that it is one.
func Dir(flag, dir string) (string, error) {
	if dir == "" { // of a variable that is not set, say: it would be read as this directory
		return "", Usagef("%s: names no directory; write . for this one", flag)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", Usagef("%s %q: %w", flag, dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", Usagef("%s %q: %w", flag, dir, errors.Unwrap(err))
	}
	if !info.IsDir() {
		return "", Usagef("%s %q: is not a directory", flag, dir)
	}
	return abs, nil
}

func checkURL(url string) error {
	for _, one := range strings.Split(url, ",") {
		u, err := neturl.Parse(strings.TrimSpace(one))
		switch {
		case err != nil || u.Host == "" && u.Path == "":
			return Usagef("--nats %q: is not a URL; use nats://HOST:PORT", natsbroker.ShownURL(url))
		case u.Scheme == "http" || u.Scheme == "https":
			return Usagef("--nats %q: is the URL of an HTTP API; use nats://HOST:PORT, or --server for the API of a "+
				"dispatcher", natsbroker.ShownURL(url))
		}
	}
	return nil
}
