package dispatchercmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// toolsFlags are what the tools command is asked for.
type toolsFlags struct {
	perms  cli.Permissions
	worker cli.Worker
	agentRef
	session string
	loaded  map[string]bool // by the session
	format  string
	strict  bool
	report  bool
	lint    bool
	asJSON  bool
	// remarks are those of the live workers, and of what the provider does not get.
	remarks     []client.Remark
	deferAllBut []string
	// conflicts are the names that are offered more than once.
	conflicts []string
}

func (s *std) toolsCommand() *cobra.Command {
	var f toolsFlags
	cmd := &cobra.Command{
		Use:   "tools [flags]",
		Short: "List the tools as a batch sees them, or write them as a provider takes them",
		Long: `tools lists the built-in tools with those of --tools, whose MCP servers it starts and asks, or with
--nats those that the live workers of a running system offer, or with --server those that a batch would see if it came
now: what the rules and views of that dispatcher take out is not among them.

--format prints exactly the array "tools" of a request to that provider, the same bytes every time: names and schemas
are brought into what it takes, and calls are still checked against the schema as it was declared. --report says on
standard error what was changed and why. A tool that the provider would refuse is left out, and named there in any
case.

With --nats, rules of the running system are not known here: give its --deny again. Of --strict, OpenAI's form makes
optional fields come back as null.`,
		Example: `  dispatcher tools --format anthropic
  dispatcher tools --format openai --strict --report
  dispatcher tools --nats nats://127.0.0.1:4222 --format mcp --deny bash
  dispatcher tools --server http://127.0.0.1:8080 --format anthropic --session s-1
  dispatcher tools --lint`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.format != "" && (f.asJSON || f.lint) || f.asJSON && f.lint {
				return cli.Usagef("--format, --lint and --json each print something else; give one of them")
			}
			if err := f.check(); err != nil {
				return err
			}
			if err := registry.CheckPatterns(f.deferAllBut); err != nil {
				return cli.Usagef("--defer-all-but: %w", err)
			}
			if len(f.deferAllBut) > 0 && f.server != "" {
				return cli.Usagef("--defer-all-but: a server's tools are deferred as that server was told; leave it " +
					"out")
			}
			if f.session != "" && (f.where() == "" || f.format == "") {
				return cli.Usagef("--session is for --format with --nats or --server: a running system knows what a " +
					"session has loaded")
			}
			if err := cmp.Or(toolyard.CheckName("--agent", f.agent),
				toolyard.CheckName("--session", cmp.Or(f.session, "none"))); err != nil {
				return &cli.UsageError{Err: err}
			}
			if f.format == "" && (f.strict || f.report) {
				return cli.Usagef("--strict and --report are for --format; give one of %s", toolFormats("|"))
			}
			if f.format != "" {
				if _, err := provider.ToolNames(provider.Format(f.format)); err != nil {
					return cli.Usagef("--format: %w", err)
				}
			}
			surface, err := s.surface(cmd.Context(), &f)
			if err != nil {
				return err
			}
			switch {
			case f.asJSON:
				err = printJSON(s.out, surface)
			case f.format != "":
				err = s.printFor(provider.Format(f.format), &surface, &f)
			case f.lint:
				err = s.printRemarks(&surface, f.conflicts)
			default:
				err = s.listTools(&surface)
			}
			if err != nil {
				return err
			}
			return s.printLeftOut(&surface, &f)
		},
	}
	f.cmd = cmd
	cmd.Flags().StringVar(&f.nats, "nats", "",
		"list what the workers of the system at `URL` offer, in place of the built-in tools")
	f.reach.Add(cmd.Flags())
	f.addServer(cmd)
	cmd.Flags().StringVar(&f.agent, "agent", string(toolyard.DefaultAgent),
		"whose batch it would be, and whose session --session is (with --token: the token's, unless you say otherwise)")
	cmd.Flags().StringVar(&f.session, "session", "",
		"with the deferred tools that a session has loaded, in forms that cannot defer them")
	cmd.Flags().StringVar(&f.format, "format", "", "print the tools for a provider: `FORMAT` is one of "+
		toolFormats(", "))
	cmd.Flags().BoolVar(&f.strict, "strict", false,
		"have the provider hold its model to the schema, where the schema has such a form")
	cmd.Flags().BoolVar(&f.report, "report", false, "say on standard error what the provider is not told, and why")
	cmd.Flags().BoolVar(&f.lint, "lint", false, "say what may make a model call the tools wrongly: names, "+
		"descriptions, examples, open or wide schemas, missing sizes, and names that several pools or servers offer")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the surface as one JSON document")
	addDeferAllBut(cmd.Flags(), &f.deferAllBut)
	f.perms.AddTightening(cmd.Flags())
	f.worker.Guard.Manifests.Add(cmd.Flags())
	return cmd
}

// addDeferAllBut adds the flag of what stays in every prompt.
func addDeferAllBut(f *pflag.FlagSet, list *[]string) {
	defer cli.Topic(f, cli.TopicTools)()
	f.StringSliceVar(list, "defer-all-but", nil, "leave the schemas of all tools out of prompts, until tool_search "+
		"loads them, but those of `TOOL,TOOL`; a name may end in *")
}

func toolFormats(separator string) string {
	list := make([]string, len(provider.ToolFormats))
	for i, f := range provider.ToolFormats {
		list[i] = string(f)
	}
	return strings.Join(list, separator)
}

// surface assembles what the command is about.
func (s *std) surface(ctx context.Context, f *toolsFlags) (registry.Surface, error) {
	if f.server != "" {
		return s.servedTools(ctx, f)
	}
	var entries []registry.Entry
	var tools []tool.Tool
	var err error
	if !f.named() {
		if tools, err = f.worker.Tools(); err != nil {
			return registry.Surface{}, err
		}
		if entries, err = s.ownTools(ctx, f, tools); err != nil {
			return registry.Surface{}, err
		}
	} else {
		if err = s.overBroker(ctx, &f.natsFlags, "tools", func(b *natsbroker.Broker) (err error) {
			entries, err = f.read(ctx, b)
			return err
		}); err != nil {
			return registry.Surface{}, err
		}
		for _, e := range entries {
			tools = append(tools, tool.Tool{Declaration: e.Declaration})
		}
	}
	entries = offered(entries)
	for _, c := range registry.Conflicts(entries) {
		f.conflicts = append(f.conflicts, c.String())
	}
	rules, _, err := f.perms.Rules(tools)
	if err != nil {
		return registry.Surface{}, err
	}
	names := policy.NamesOf(tools)
	for i := range entries {
		names.Tools = append(names.Tools, entries[i].Name)
	}
	names.Servers = policy.ServersOf(names.Tools)
	if err := rules.CheckNames(names); err != nil {
		return registry.Surface{}, &cli.UsageError{Err: err}
	}
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return registry.Surface{}, err
	}
	surface, err := registry.Assemble(reg, rules.Blocks)
	if err != nil || len(f.deferAllBut) == 0 {
		return surface, err
	}
	return registry.DeferAllBut(surface, f.deferAllBut)
}

// ownTools are the built-in ones, and those of the files of tools, whose MCP servers are asked.
func (s *std) ownTools(ctx context.Context, f *toolsFlags, tools []tool.Tool) ([]registry.Entry, error) {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return nil, err
	}
	served, remarks, err := f.worker.Guard.Manifests.Ask(ctx, log)
	if err != nil {
		return nil, ended(ctx, err)
	}
	for _, r := range remarks {
		f.remarks = append(f.remarks, client.Remark(r))
	}
	return append(base(tools), served...), nil
}

// servedTools are what a batch would see that a dispatcher took now.
func (s *std) servedTools(ctx context.Context, f *toolsFlags) (out registry.Surface, err error) {
	agent, err := f.owner()
	if err != nil {
		return out, &cli.UsageError{Err: err}
	}
	err = s.ask(ctx, &f.systemFlags, "tools", func(asked context.Context, c *client.Client) error {
		raw, err := c.Catalog(asked, agent, "", f.perms.Deny...)
		if err != nil {
			return err
		}
		surface, err := registry.Decode(raw)
		if err != nil {
			return fmt.Errorf("read the tools of %s: %w", f.server, err)
		}
		out = *surface
		live, err := c.Workers(asked)
		if err != nil {
			return err
		}
		for _, w := range live {
			f.remarks, f.conflicts = append(f.remarks, w.Remarks...), append(f.conflicts, w.Conflicts...)
		}
		slices.Sort(f.conflicts)
		f.conflicts = slices.Compact(f.conflicts)
		if f.session == "" {
			return nil
		}
		kept, err := c.Session(asked, agent, toolyard.Session(f.session))
		f.loaded = set(kept.Loaded)
		return err
	})
	return out, err
}

func set(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// read reads what the workers of a running system offer: of each pool the youngest.
func (f *toolsFlags) read(ctx context.Context, b *natsbroker.Broker) ([]registry.Entry, error) {
	asked, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if f.session != "" {
		kept, err := b.Session(asked, toolyard.Agent(f.agent), toolyard.Session(f.session))
		if err != nil {
			return nil, err
		}
		f.loaded = set(kept.Loaded)
	}
	live, err := b.Workers(asked)
	if err != nil {
		return nil, err
	}
	var out []registry.Entry
	for _, w := range broker.Youngest(slices.Values(live)) {
		stored, err := b.Surface(asked, w.Toolset)
		if err != nil {
			return nil, fmt.Errorf("read the tools of worker %s: %w", w.ID, err)
		}
		set, err := registry.Decode(stored)
		if err != nil {
			return nil, fmt.Errorf("read the tools of worker %s: %w", w.ID, err)
		}
		out = append(out, set.Tools...)
		for _, r := range w.Remarks {
			f.remarks = append(f.remarks, client.Remark(r))
		}
	}
	return out, nil
}

// printLeftOut names each tool that is left out or altered. The error is that one is left out.
func (s *std) printLeftOut(surface *registry.Surface, f *toolsFlags) error {
	out := map[string]bool{}
	said := map[client.Remark]bool{}
	if f.where() == "" { // those of a running system have said it themselves
		for i := range surface.Tools {
			unchecked, err := registry.Unchecked(&surface.Tools[i].Declaration)
			if err != nil {
				return err
			}
			for _, r := range unchecked {
				f.remarks = append(f.remarks, client.Remark(r))
			}
		}
	}
	for _, r := range f.remarks {
		if said[r] {
			continue // by several workers
		}
		said[r] = true
		if _, err := fmt.Fprintln(s.err, cli.OneLine(r.String())); err != nil {
			return fmt.Errorf("print what is left out: %w", err)
		}
		if r.LeftOut {
			out[r.Tool] = true
		}
	}
	if len(out) > 0 {
		return fmt.Errorf("tools that are left out: %d; see above", len(out))
	}
	return nil
}

// printFor writes the tools for a provider, and on standard error what became of them.
func (s *std) printFor(format provider.Format, surface *registry.Surface, f *toolsFlags) error {
	rule, err := provider.ToolNames(format)
	if err != nil {
		return err
	}
	data, notes, err := provider.Tools(format, surface.Declarations(),
		provider.ToolOptions{Strict: f.strict, Loaded: f.loaded, Names: surface.Names(rule)})
	changes := map[string]int{}
	for _, n := range notes {
		switch leftOut := provider.IsLeftOut(n); {
		case leftOut && !n.Deferred:
			f.remarks = append(f.remarks, client.Remark{Tool: n.Tool, LeftOut: true, Why: n.Why})
		case f.report || leftOut:
			if _, err := fmt.Fprintln(s.err, cli.OneLine(n.String())); err != nil {
				return fmt.Errorf("print the report: %w", err)
			}
		default:
			changes[n.Tool]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		why := fmt.Sprintf("%s for %s; --report lists them", count(changes[name], "change"), format)
		f.remarks = append(f.remarks, client.Remark{Tool: name, Why: why})
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.out, "%s\n", data); err != nil {
		return fmt.Errorf("print the tools: %w", err)
	}
	return nil
}

// printRemarks says what may make a model call the tools wrongly, and which names are offered more than once.
func (s *std) printRemarks(surface *registry.Surface, conflicts []string) error {
	p := s.lines()
	remarks := 0
	for i := range surface.Tools {
		for _, r := range registry.Lint(surface.Tools[i].Declaration) {
			p.printf("%s: %s\n", cli.OneLine(surface.Tools[i].Name), cli.OneLine(r))
			remarks++
		}
	}
	for _, r := range append(registry.LintSurface(surface), conflicts...) {
		p.printf("%s\n", cli.OneLine(r))
		remarks++
	}
	p.printf("%s, %s\n", count(len(surface.Tools), "tool"), count(remarks, "remark"))
	return p.err
}

func (s *std) listTools(surface *registry.Surface) error {
	p := s.lines()
	var rows [][]cli.Cell
	for _, t := range surface.Tools {
		class := string(t.Class.Static)
		if t.Class.Shell != "" {
			class = "judged by its " + t.Class.Shell
		}
		rows = append(rows, []cli.Cell{{Text: cli.OneLine(t.Name), Paint: p.paint.Bold},
			{Text: cli.OneLine(class), Paint: p.paint.Dim}, {Text: cli.OneLine(firstSentence(t.Description))}})
	}
	p.printf("%s", cli.Table(rows, "", p.columns))
	if p.err != nil {
		return fmt.Errorf("print the tools: %w", p.err)
	}
	return nil
}

func firstSentence(text string) string {
	if i := strings.Index(text, ". "); i >= 0 {
		return text[:i+1]
	}
	return text
}

// offered are the tools for models.
func offered(entries []registry.Entry) []registry.Entry {
	return slices.DeleteFunc(entries, func(e registry.Entry) bool { return !registry.ForModels(e.Name) })
}
