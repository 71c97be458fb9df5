package dispatchercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// explained is the plan of a batch, as --json prints it.
type explained struct {
	Surface   string            `json:"surface"`
	Tools     []string          `json:"tools"`
	Blocked   []string          `json:"blocked"`
	Partition toolyard.Strategy `json:"partition"`
	Groups    [][]int           `json:"groups"`
	Calls     []explainedCall   `json:"calls"`
	// Budgets are those of --quota-file that the batch would be under.
	Budgets []string `json:"budgets,omitempty"`
}

type explainedCall struct {
	Index int            `json:"index"`
	ID    string         `json:"call_id"`
	Tool  string         `json:"tool"`
	Class toolyard.Class `json:"concurrency_class"`
	Why   string         `json:"why"`
	Group int            `json:"group"`
	// Code and Error are those of a call that would be answered at plan.
	Code  toolyard.Code `json:"code"`
	Error string        `json:"error"`
	// Permission is allow, ask or deny; empty for a call that is answered at plan.
	Permission string `json:"permission"`
	DecidedBy  string `json:"decided_by"`
	Reason     string `json:"reason"`
	Claim      bool   `json:"claim"`
	Ticket     bool   `json:"ticket"`
	// Locks are the names in the workspace that the call's group would hold; empty: the whole workspace, or nothing.
	Locks []tool.Lock `json:"locks,omitempty"`
	// Cache says how the call would use its tool's cache; empty if the tool has none.
	Cache string `json:"cache,omitempty"`
	// Origin is where its output would come from, if that is outside; Fenced says that delimiters would stand around
	// it.
	Origin string `json:"origin,omitempty"`
	Fenced bool   `json:"fenced,omitempty"`
	// Scanners are those of --scan-outputs that would look at its output.
	Scanners []string `json:"scanners,omitempty"`
	// Mended says what the repair has mended in the input; Mendable what it would mend if the batch had the option.
	Mended   string `json:"mended,omitempty"`
	Mendable string `json:"mendable,omitempty"`
	// MaxResultChars and MaxResultTokens are how much of the output the model would get at most; -1 characters: all.
	// The tokens are those of --max-result-tokens.
	MaxResultChars  int `json:"max_result_chars,omitempty"`
	MaxResultTokens int `json:"max_result_tokens,omitempty"`
	// Snapshot says that the workspace would be kept before the call, Overlay that it would act on the batch's copy.
	Snapshot bool `json:"snapshot,omitempty"`
	Overlay  bool `json:"overlay,omitempty"`
	// input is the one that would run.
	input json.RawMessage
	// Rates are those of --quota-file that the call would be under.
	Rates []string `json:"rates,omitempty"`
}

// workerLimits are settings of workers, which explain is told by flags: it asks no worker for them.
type workerLimits struct {
	tokens int
	scans  []string
}

func (l *workerLimits) add(f *pflag.FlagSet) {
	f.IntVar(&l.tokens, "max-result-tokens", 0, "say for which results this limit of workers in tokens would hold; "+
		"nothing is counted (default: none)")
	f.StringArrayVar(&l.scans, "scan-outputs", nil, "say at which outputs this scanner of workers would look, as "+
		"`SCANNER=ACTION`; may be repeated")
}

func (l *workerLimits) check() error {
	if l.tokens != 0 && l.tokens < pipeline.MinResultTokens {
		return cli.Usagef("--max-result-tokens %d: use %d or more", l.tokens, pipeline.MinResultTokens)
	}
	if _, err := scan.Parse(l.scans); err != nil {
		return cli.Usagef("--scan-outputs %w", err)
	}
	return nil
}

func (s *std) explainCommand() *cobra.Command {
	var in batchFlags
	var perms cli.Permissions
	var w cli.Worker
	var sys systemFlags
	var dir, quotaFile string
	var limits workerLimits
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] FILE|-",
		Short: "Show how a batch would run, without running any of it",
		Long: `explain shows what would happen to the batch in FILE with the built-in tools and those of --tools: the
surface of tools, each call's concurrency class and why, the groups, and what permission would say under the given
rules and mode. No call runs. MCP servers that --tools declares are started, or connected to, for the list of their
tools.

With --nats the tools are those that the live workers of a running system offer, and what only a worker can judge is
asked of one; with --server they are those that a batch of this agent and workspace would see there now. Rules of the
running system's workers are not known here: what is said of permission is by the rules that are given here. In the
same way --quota-file, --max-result-tokens and --scan-outputs say what would hold with these settings.`,
		Example: `  dispatcher explain examples/explore.json
  dispatcher explain --json --permission-mode plan examples/explore.json
  dispatcher explain --tools tools.yaml batch.json
  dispatcher explain --server http://127.0.0.1:8080 batch.json`,
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := limits.check(); err != nil {
				return err
			}
			batch, err := in.read(cmd.Context(), s.in, args[0], "")
			if err != nil {
				return err
			}
			if dir, err = cli.Dir("--workspace", dir); err != nil {
				return err
			}
			tools, rules, mode, err := w.Toolbox(&perms, cli.Scope{Dirs: []string{dir}, Later: sys.named() ||
				sys.server != ""})
			if err != nil {
				return err
			}
			if err := sys.check(); err != nil {
				return err
			}
			p := planner(rules, in.maxConcurrency, nil)
			var plan *dispatcher.Plan
			switch {
			case sys.server != "":
				plan, err = s.planServed(cmd.Context(), &sys, &p, &batch, in.unowned)
			case sys.named():
				plan, err = s.planLive(cmd.Context(), &sys, &p, &batch)
			default:
				plan, err = s.planHere(cmd.Context(), &w, tools, &p, &batch)
			}
			if err != nil {
				return err
			}
			names := policy.Names{Tools: slices.Clone(plan.Surface.Blocked), AnyServer: true}
			for _, t := range plan.Surface.Tools {
				names.Tools = append(append(names.Tools, t.Name), t.Aliases...)
			}
			if err := rules.CheckNames(names); err != nil && (sys.named() || sys.server != "") {
				return &cli.UsageError{Err: err}
			}
			perm := worker.Permission{Rules: rules, Mode: mode}
			e, err := explainPlan(cmd.Context(), &batch, plan, perm, dir, &limits)
			if err != nil {
				return err
			}
			if quotaFile != "" {
				var g admission.Grants
				if err := quotasOf(quotaFile, &g); err != nil {
					return err
				}
				e.addRates(&batch, plan, &g)
			}
			if asJSON {
				return printJSON(s.out, e)
			}
			return e.print(s, &batch)
		},
	}
	sys.cmd = cmd
	cmd.Flags().StringVar(&sys.nats, "nats", "",
		"explain with what the workers of the system at `URL` offer, in place of the tools of this process")
	sys.reach.Add(cmd.Flags())
	sys.addServer(cmd)
	cmd.Flags().StringVar(&dir, "workspace", ".", "the directory that the calls would act on")
	cmd.Flags().StringVar(&quotaFile, "quota-file", "", "say which rates and budgets of `FILE` calls would be under, as "+
		"serve reads it (default: none)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	limits.add(cmd.Flags())
	in.add(cmd.Flags())
	in.addKept(cmd.Flags())
	perms.Add(cmd.Flags())
	w.Guard.Manifests.Add(cmd.Flags())
	w.AddRunCode(cmd.Flags())
	return cmd
}

// planHere plans with the tools of this process, and those of the MCP servers that are declared.
func (s *std) planHere(ctx context.Context, w *cli.Worker, tools []tool.Tool, p *dispatcher.Planner,
	b *toolyard.Batch) (*dispatcher.Plan, error) {
	entries := base(tools)
	log, err := s.log.Logger(s.err)
	if err != nil {
		return nil, err
	}
	served, _, err := w.Guard.Manifests.Ask(ctx, log)
	if err != nil {
		return nil, ended(ctx, err)
	}
	entries = append(entries, served...)
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return nil, err
	}
	return p.Plan(reg, b, nil)
}

// planLive plans with what the workers of a system offer, and has them judge what only they can.
func (s *std) planLive(ctx context.Context, sys *systemFlags, p *dispatcher.Planner,
	b *toolyard.Batch) (plan *dispatcher.Plan, err error) {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return nil, err
	}
	f := toolsFlags{agentRef: agentRef{agent: string(b.Agent)}, session: string(b.Session)}
	err = s.overBroker(ctx, &sys.natsFlags, "explain", func(br *natsbroker.Broker) error {
		entries, err := f.read(ctx, br)
		if err != nil {
			return err
		}
		reg, err := registry.Registry{}.Register(offered(entries)...)
		if err != nil {
			return err
		}
		if plan, err = p.Plan(reg, b, slices.Sorted(maps.Keys(f.loaded))); err != nil {
			return err
		}
		asked, cancel := context.WithTimeout(ctx, setupTimeout)
		defer cancel()
		dispatcher.AskWorkers(asked, br, log, plan)
		return nil
	})
	return plan, err
}

// planServed plans with what a batch would see at a server now. Nobody judges there what only a worker can: it counts
// as UNSAFE.
func (s *std) planServed(ctx context.Context, sys *systemFlags, p *dispatcher.Planner, b *toolyard.Batch,
	unowned bool) (plan *dispatcher.Plan, err error) {
	agent := b.Agent
	if sys.byToken(!unowned) {
		agent = ""
	}
	err = s.ask(ctx, sys, "explain", func(asked context.Context, c *client.Client) error {
		var deny []string
		for _, r := range p.Rules.Deny {
			deny = append(deny, r.String())
		}
		raw, err := c.Catalog(asked, agent, b.Workspace, slices.Concat(deny, b.Options.Deny)...)
		if err != nil {
			return err
		}
		surface, err := registry.Decode(raw)
		if err != nil {
			return fmt.Errorf("read the tools of %s: %w", sys.server, err)
		}
		kept, err := c.Session(asked, agent, b.Session)
		if err != nil {
			return err
		}
		plan = p.On(*surface, b, kept.Loaded)
		return nil
	})
	return plan, err
}

func explainPlan(ctx context.Context, b *toolyard.Batch, plan *dispatcher.Plan, perm worker.Permission, dir string,
	limits *workerLimits) (explained, error) {
	rules, err := dispatcher.BatchRules(b.Options)
	if err != nil {
		return explained{}, err
	}
	planned := plan.Finish("", 0, time.Time{})
	e := explained{Surface: plan.Surface.Hash, Partition: planned.Partition, Blocked: plan.Surface.Blocked,
		Groups: [][]int{}}
	if e.Blocked == nil {
		e.Blocked = []string{}
	}
	for _, t := range plan.Surface.Tools {
		e.Tools = append(e.Tools, t.Name)
	}
	root, err := place.Hold(dir, nil)
	if err != nil {
		return e, err
	}
	defer func() { _ = root.Close() }() // it was only looked at
	e.Calls = make([]explainedCall, len(planned.Calls))
	for g, group := range planned.Groups {
		e.Groups = append(e.Groups, group.Calls)
		for _, i := range group.Calls {
			e.Calls[i].Group, e.Calls[i].Ticket, e.Calls[i].Locks = g, group.Ticket, group.Locks
		}
	}
	for i, c := range planned.Calls {
		x := &e.Calls[i]
		x.Index, x.ID, x.Tool, x.Class, x.Why, x.Claim = i, c.ID, c.Tool, c.Judgement.Class, c.Judgement.Why, c.Claim
	}
	answered := map[int]bool{}
	for _, r := range planned.Results {
		answered[r.Index] = true
		e.Calls[r.Index].Code, e.Calls[r.Index].Error = r.Code, r.Error
	}
	for i := range e.Calls {
		if answered[i] {
			e.Calls[i].Mendable = plan.WouldMend(i)
			continue
		}
		entry, input := plan.Entry(i), b.Calls[i].Input
		if m := planned.Calls[i].Mended; m != nil {
			e.Calls[i].Mended, input = m.What, m.Input
		}
		e.Calls[i].input = input
		d, err := perm.Decide(ctx, pipeline.PermissionInput{
			CallContext: pipeline.CallContext{
				Key: b.Key(), Index: i, Session: b.Session, Workspace: b.Workspace, WorkspaceDir: dir, Root: root,
				Interactive: b.Interactive,
			},
			Declaration: entry.Declaration, Judgement: planned.Calls[i].Judgement, Input: input, Rules: rules,
		})
		if err != nil {
			return e, err
		}
		x := &e.Calls[i]
		if b.Options.Overlay && !pipeline.HeldByOverlay(&entry.Declaration, planned.Calls[i].Judgement, false) {
			x.Code, x.Error = toolyard.SandboxViolation, "The call would not be run: "+pipeline.NotHeld+"."
		}
		x.Permission, x.DecidedBy, x.Reason = string(d.Behavior), d.Source, d.Reason
		x.Cache = cache.Text(&entry.Declaration, planned.Calls[i].Judgement)
		if from := pipeline.Outside(&entry.Declaration, input); from != nil {
			x.Origin, x.Fenced, x.Scanners = from.Source, b.Options.Fence, limits.scans
		}
		x.Snapshot = pipeline.SnapshotBefore(b.Options.Snapshot, x.Ticket, x.Class)
		x.Overlay = b.Options.Overlay && x.Ticket
		if x.MaxResultChars = entry.MaxResultChars(); x.MaxResultChars >= 0 {
			x.MaxResultTokens = limits.tokens
		}
	}
	return e, nil
}

// addRates says which budgets the batch would be under, and which rates its calls that are not answered at plan.
func (e *explained) addRates(b *toolyard.Batch, plan *dispatcher.Plan, g *admission.Grants) {
	for _, o := range g.Budgets.Of(b.Agent, b.Session) {
		e.Budgets = append(e.Budgets, o.Text()+": "+o.Budget.String())
	}
	for i := range e.Calls {
		if c := &e.Calls[i]; c.Code == "" {
			entry := plan.Entry(i)
			c.Rates = g.RatesOf(admission.RateKey{Agent: b.Agent, Tool: c.Tool,
				Dependency: pipeline.Dependency(&entry.Declaration, c.input)})
		}
	}
}

func (e explained) print(s *std, b *toolyard.Batch) error {
	p := s.lines()
	p.printf("%s\n", p.paint.Bold(fmt.Sprintf("%s in %s, %s · surface %.12s with %s", count(len(e.Calls), "call"),
		count(len(e.Groups), "group"), e.Partition, e.Surface, count(len(e.Tools), "tool"))))
	for _, budget := range e.Budgets {
		p.printf("budget of %s\n", cli.OneLine(budget))
	}
	line := func(indent, format string, args ...any) {
		if text := indent + fmt.Sprintf(format, args...); utf8.RuneCountInString(text) <= p.columns {
			p.printf("%s\n", text)
			return
		}
		for i, part := range cli.Wrap(fmt.Sprintf(format, args...), p.columns-len(indent)-2) {
			p.printf("%s%s%s\n", indent, strings.Repeat("  ", min(i, 1)), part)
		}
	}
	for g, calls := range e.Groups {
		ticket := "needs no workspace"
		if e.Calls[calls[0]].Ticket {
			ticket = "holds workspace " + cli.OneLine(string(b.Workspace))
			if locks := e.Calls[calls[0]].Locks; len(locks) > 0 {
				ticket = "holds " + cli.OneLine(registry.LockText(locks)) + " in workspace " +
					cli.OneLine(string(b.Workspace))
			}
		}
		switch c := e.Calls[calls[0]]; {
		case c.Snapshot:
			ticket += " · snapshot before it"
		case c.Overlay:
			ticket += " · on an overlay"
		}
		p.printf("\n%s\n", p.paint.Bold(fmt.Sprintf("group %d · %s %s · %s", g+1, count(len(calls), "call"), how(calls),
			ticket)))
		for _, i := range calls {
			c := e.Calls[i]
			line("  ", "[%d] %s  %s (%s)", i, cli.OneLine(c.Tool), c.Class, cli.OneLine(c.Why))
			if c.Code != "" {
				line("      ", "answered without running: %s: %s", p.paint.Bad(string(c.Code)), cli.OneLine(c.Error))
				if c.Mendable != "" {
					line("      ", "with --repair it would run: %s", cli.OneLine(c.Mendable))
				}
				continue
			}
			if c.Mended != "" {
				line("      ", "input: mended: %s", cli.OneLine(c.Mended))
			}
			if c.Cache != "" {
				line("      ", "cache: %s", cli.OneLine(c.Cache))
			}
			for _, rate := range c.Rates {
				line("      ", "rate of %s", cli.OneLine(rate))
			}
			permission := map[string]func(string) string{string(pipeline.Allow): p.paint.Good,
				string(pipeline.Ask): p.paint.Warn, string(pipeline.Deny): p.paint.Bad}[c.Permission]
			line("      ", "permission: %s (%s)", cli.Cell{Paint: permission}.Painted(c.Permission),
				cli.OneLine(c.DecidedBy))
			if c.Origin != "" {
				fenced := ""
				if c.Fenced {
					fenced = ", between delimiters"
				}
				if len(c.Scanners) > 0 {
					fenced += ", scanned: " + strings.Join(c.Scanners, ", ")
				}
				line("      ", "output: from outside (%s)%s", cli.OneLine(c.Origin), fenced)
			}
			if c.MaxResultTokens > 0 {
				line("      ", "output: at most %d characters and %d tokens go to the model", c.MaxResultChars,
					c.MaxResultTokens)
			} else if s.verbose && c.MaxResultChars > 0 {
				line("      ", "output: at most %d characters go to the model", c.MaxResultChars)
			} else if s.verbose {
				line("      ", "output: all of it goes to the model, whatever workers limit in tokens")
			}
			if c.Permission == string(pipeline.Ask) {
				line("      ", "nobody can be asked, so it would be denied; --allow RULE or --permission-mode decides")
			}
		}
	}
	return p.err
}
