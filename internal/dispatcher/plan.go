package dispatcher

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/partition"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// Planner decides about a batch before anything of it runs. It reads no clock and no network: what only a worker can
// judge is asked between [Planner.Plan] and [Plan.Finish].
type Planner struct {
	// Pipeline runs the phases that need no tool's code.
	Pipeline *pipeline.Pipeline
	// Rules are the operator's; a batch adds deny and ask rules of its own.
	Rules policy.Rules
	// MaxConcurrency is for batches that name none.
	MaxConcurrency int
}

// Plan is what was decided about a batch.
type Plan struct {
	Surface registry.Surface
	sub     *toolyard.Batch
	entries []registry.Entry
	planned events.Planned
	asks    []int
}

// Plan pins the surface, resolves each call's tool, checks each input against its schema and judges its class. A rule of
// the batch that cannot be read is a [*toolyard.InputError].
func (p *Planner) Plan(reg registry.Registry, sub *toolyard.Batch) (*Plan, error) {
	rules, err := BatchRules(sub.Options)
	if err != nil {
		return nil, err
	}
	surface, err := registry.Assemble(reg, func(name string, aliases []string) bool {
		return p.Rules.Blocks(name, aliases) || rules.Blocks(name, aliases)
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the surface: %w", err)
	}
	plan := &Plan{Surface: surface, sub: sub, entries: make([]registry.Entry, len(sub.Calls))}
	plan.planned = events.Planned{
		Session: sub.Session, Workspace: sub.Workspace, Surface: surface.Hash, Partition: sub.Options.Partition,
		OnError: sub.Options.OnError, MaxConcurrency: sub.Options.MaxConcurrency, Calls: make([]events.PlannedCall, len(sub.Calls)),
	}
	if plan.planned.MaxConcurrency == 0 {
		plan.planned.MaxConcurrency = p.MaxConcurrency
	}
	for i, call := range sub.Calls {
		entry, failed := p.Pipeline.Preflight(call, &plan.Surface, nil)
		plan.entries[i] = entry
		c := events.PlannedCall{ID: call.ID, Tool: call.Tool, Pool: entry.Pool, Declaration: entry.Hash, InputSHA256: inputHash(call.Input)}
		if entry.Name != "" {
			c.Tool = entry.Name
		}
		if c.Pool == "" {
			c.Pool = toolyard.DefaultPool
		}
		switch {
		case failed != nil:
			c.Judgement = tool.Strictest("it cannot run: " + string(failed.Code))
			failed.Index, failed.Class = i, c.Judgement.Class
			plan.planned.Results = append(plan.planned.Results, *failed)
		default:
			var ask bool
			if c.Judgement, ask = registry.Judge(entry.Declaration, call.Input, shell.Classify); ask {
				plan.asks = append(plan.asks, i)
			}
		}
		c.AbortsSiblings = entry.FailureAbortsSiblings()
		plan.planned.Calls[i] = c
	}
	return plan, nil
}

// Asks returns, for each pool, the calls that only a worker of it can judge.
func (p *Plan) Asks() map[toolyard.Pool][]broker.JudgeCall {
	out := map[toolyard.Pool][]broker.JudgeCall{}
	for _, i := range p.asks {
		e := p.entries[i]
		out[e.Pool] = append(out[e.Pool], broker.JudgeCall{Index: i, Tool: e.Name, Declaration: e.Hash, Input: p.sub.Calls[i].Input})
	}
	return out
}

// Answer takes a worker's judgements. What a worker does not answer stays UNSAFE.
func (p *Plan) Answer(js []broker.Judged) {
	for _, j := range js {
		if j.Index >= 0 && j.Index < len(p.entries) {
			p.planned.Calls[j.Index].Judgement = registry.CheckJudgement(p.entries[j.Index].Declaration, j.Judgement)
		}
	}
}

// Finish makes the groups and returns the plan as an event, by and for an owner.
func (p *Plan) Finish(owner string, submissionSeq uint64, deadline time.Time) events.Planned {
	out := p.planned
	out.Owner, out.SubmissionSeq, out.Deadline = owner, submissionSeq, deadline
	classes := make([]toolyard.Class, len(out.Calls))
	for i := range out.Calls {
		j := out.Calls[i].Judgement
		classes[i] = j.Class
		// Whoever may not run twice, or not beside others, needs the right to run recorded before it begins.
		out.Calls[i].Claim = !j.Class.Safe() || !j.Idempotent
	}
	answered := map[int]bool{}
	for _, r := range out.Results {
		answered[r.Index] = true
	}
	for _, g := range partition.Groups(out.Partition, classes) {
		group := events.Group{Safe: g.Safe, Calls: g.Calls}
		for _, i := range g.Calls {
			group.Ticket = group.Ticket || !answered[i] && p.entries[i].NeedsWorkspace()
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// Entry is the tool that call i resolved to; its name is empty when there is none.
func (p *Plan) Entry(i int) registry.Entry { return p.entries[i] }

// BatchRules reads the permission rules that a batch brings. One that cannot be read is a [*toolyard.InputError].
func BatchRules(o toolyard.Options) (policy.Rules, error) {
	var rules policy.Rules
	for _, list := range []struct {
		field string
		texts []string
		to    *[]policy.Rule
	}{{"options.deny", o.Deny, &rules.Deny}, {"options.ask", o.Ask, &rules.Ask}} {
		for i, text := range list.texts {
			r, err := policy.ParseRule(text)
			if err != nil {
				return rules, &toolyard.InputError{Field: fmt.Sprintf("%s[%d]", list.field, i), Problem: err.Error()}
			}
			*list.to = append(*list.to, r)
		}
	}
	return rules, nil
}

func inputHash(input []byte) string {
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}
