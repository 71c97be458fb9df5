package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/worker"
)

// explained is the plan of a batch, as --json prints it.
type explained struct {
	Surface   string            `json:"surface"`
	Tools     []string          `json:"tools"`
	Blocked   []string          `json:"blocked"`
	Partition toolyard.Strategy `json:"partition"`
	Groups    [][]int           `json:"groups"`
	Calls     []explainedCall   `json:"calls"`
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
}

func (s *std) explainCommand() *cobra.Command {
	var in batchFlags
	var perms cli.Permissions
	var w cli.Worker
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] FILE|-",
		Short: "Show how a batch would run, without running any of it",
		Long: `explain shows what would happen to the batch in FILE with the built-in tools: the surface of tools, each
call's concurrency class and why, the groups, and what permission would say under the given rules and mode. Nothing
runs, and nothing is asked of any server.`,
		Example: `  dispatcher explain examples/explore.json
  dispatcher explain --json --permission-mode plan examples/explore.json`,
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			batch, err := in.read(cmd.Context(), s.in, args[0], "")
			if err != nil {
				return err
			}
			if dir, err = cli.Dir("--workspace", dir); err != nil {
				return err
			}
			tools, rules, mode, err := w.Toolbox(&perms)
			if err != nil {
				return err
			}
			reg, err := registry.Registry{}.Register(base(tools)...)
			if err != nil {
				return err
			}
			p := planner(rules, in.maxConcurrency, nil)
			plan, err := p.Plan(reg, &batch, nil)
			if err != nil {
				return err
			}
			e, err := explainPlan(cmd.Context(), &batch, plan, worker.Permission{Rules: rules, Mode: mode}, dir)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, e)
			}
			return e.print(s, &batch)
		},
	}
	cmd.Flags().StringVar(&dir, "workspace", ".", "the directory that the calls would act on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	in.add(cmd.Flags())
	perms.Add(cmd.Flags())
	w.Guard.Manifests.Add(cmd.Flags())
	return cmd
}

func explainPlan(ctx context.Context, b *toolyard.Batch, plan *dispatcher.Plan, perm worker.Permission, dir string) (explained, error) {
	rules, err := dispatcher.BatchRules(b.Options)
	if err != nil {
		return explained{}, err
	}
	planned := plan.Finish("", 0, time.Time{})
	e := explained{Surface: plan.Surface.Hash, Partition: planned.Partition, Blocked: plan.Surface.Blocked, Groups: [][]int{}}
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
			e.Calls[i].Group, e.Calls[i].Ticket = g, group.Ticket
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
			continue
		}
		entry := plan.Entry(i)
		d, err := perm.Decide(ctx, pipeline.PermissionInput{
			Key: b.Key(), Index: i, CallID: b.Calls[i].ID, Session: b.Session, Workspace: b.Workspace, WorkspaceDir: dir, Root: root,
			Interactive: b.Interactive, Declaration: entry.Declaration, Origin: entry.Origin,
			Judgement: planned.Calls[i].Judgement, Input: b.Calls[i].Input, Rules: rules,
		})
		if err != nil {
			return e, err
		}
		e.Calls[i].Permission, e.Calls[i].DecidedBy, e.Calls[i].Reason = string(d.Behavior), d.Source, d.Reason
	}
	return e, nil
}

func (e explained) print(s *std, b *toolyard.Batch) error {
	p := &show{w: s.out, on: true}
	p.printf("%s in %s, %s · surface %.12s with %s\n", count(len(e.Calls), "call"), count(len(e.Groups), "group"), e.Partition, e.Surface, count(len(e.Tools), "tool"))
	for g, calls := range e.Groups {
		how := "alone"
		if len(calls) > 1 {
			how = "together"
		}
		ticket := "needs no workspace"
		if e.Calls[calls[0]].Ticket {
			ticket = "holds workspace " + cli.OneLine(string(b.Workspace))
		}
		p.printf("\ngroup %d · %s %s · %s\n", g+1, count(len(calls), "call"), how, ticket)
		for _, i := range calls {
			c := e.Calls[i]
			p.printf("  [%d] %s  %s (%s)\n", i, cli.OneLine(c.Tool), c.Class, cli.OneLine(c.Why))
			if c.Code != "" {
				p.printf("      answered without running: %s: %s\n", c.Code, cli.OneLine(c.Error))
				continue
			}
			p.printf("      permission: %s (%s)\n", c.Permission, cli.OneLine(c.DecidedBy))
			if c.Permission == string(pipeline.Ask) {
				p.printf("      nobody can be asked, so it would be denied; --allow RULE or --permission-mode decides\n")
			}
		}
	}
	return p.err
}
