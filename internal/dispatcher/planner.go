package dispatcher

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/partition"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/repair"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// Planner decides about a batch before anything of it runs. It reads no clock and no network: what only a worker can
// judge is asked between [Planner.Plan] and [Plan.Finish].
type Planner struct {
	// Pipeline runs the phases that need no tool's code.
	Pipeline *pipeline.Pipeline
	// Rules are the operator's; a batch adds deny and ask rules of its own.
	Rules policy.Rules
	// Deny and Ask are the operator's rules that hold for the calls of all workers: they are pinned in each plan. See
	// [Planner.ForAll].
	Deny, Ask []string
	// Known are tools that the rules of a batch may name although nobody offers them now.
	Known []string
	// CheckCalls refuses calls that must not be in a batch; from is the index of the first. Its error is a
	// [*toolyard.InputError]. Nil: none is refused.
	CheckCalls func(from int, calls []toolyard.Call) error
	// Views are what agents see of all tools. Nil: everybody sees everything.
	Views registry.Views
	// DeferAllBut are the tools whose schemas are in the prompt from the beginning, names that may end in "*"; all
	// others are deferred, but those that are always loaded. Empty: each tool's author says.
	DeferAllBut []string
	// MaxConcurrency is for batches that name none.
	MaxConcurrency int
}

// Plan is what was decided about a batch, or about the calls that were appended to one.
type Plan struct {
	Surface registry.Surface
	sub     *toolyard.Batch
	// calls are those that this plan is about; the first has the index from in the batch.
	calls   []toolyard.Call
	from    int
	entries []*registry.Entry // of the surface
	planned events.Planned
	// asks are the calls that only a worker of their pool can judge. Their index is that in calls.
	asks map[toolyard.Pool][]broker.JudgeCall
	// inputs are the calls' inputs as far as their tools declare locks that the batch wants used, by index in calls.
	inputs map[int]schema.Value
	// repairs are the calls that a worker's own repair may mend, by their index in calls.
	repairs map[int]broker.JudgeCall
	// check is the planner's, for inputs that a repair has made.
	check func(from int, calls []toolyard.Call) error
	// preflight resolves and checks a call on the surface.
	preflight func(toolyard.Call) (*registry.Entry, pipeline.Input, *toolyard.Result)
	// background says that the batch is a background call, and holds that it has its workspace.
	background, holds bool
	// full says that the batch has as many calls as it may have: it is closed.
	full bool
	// mended is how long the inputs are together that were mended.
	mended int
}

// Plan pins the surface, resolves each call's tool, checks each input against its schema and judges its class. A rule
// of the batch that cannot be read is a [*toolyard.InputError], and so is what CheckCalls refuses. loaded are the
// deferred tools that the session has loaded.
func (p *Planner) Plan(reg registry.Registry, sub *toolyard.Batch, loaded []string) (*Plan, error) {
	if err := p.check(0, sub.Calls); err != nil {
		return nil, err
	}
	surface, err := p.Surface(reg, sub.Agent, sub.Options)
	if err != nil {
		return nil, err
	}
	return p.On(surface, sub, loaded), nil
}

// check is CheckCalls, if there is one.
func (p *Planner) check(from int, calls []toolyard.Call) error {
	if p.CheckCalls == nil {
		return nil
	}
	return p.CheckCalls(from, calls)
}

// On is [Planner.Plan] on a surface that is known.
func (p *Planner) On(surface registry.Surface, sub *toolyard.Batch, loaded []string) *Plan {
	plan := &Plan{Surface: surface, sub: sub, calls: sub.Calls}
	plan.background, plan.holds = sub.ID.Background()
	plan.planned = events.Planned{
		Session: sub.Session, Workspace: sub.Workspace, Surface: surface.Hash, Partition: sub.Options.Partition,
		OnError: sub.Options.OnError, MaxConcurrency: sub.Options.MaxConcurrency, Open: sub.Open, Loaded: loaded,
		Deny: p.Deny, Ask: p.Ask,
	}
	if plan.planned.MaxConcurrency == 0 {
		plan.planned.MaxConcurrency = p.MaxConcurrency
	}
	p.judge(plan, loaded)
	return plan
}

// Extend decides about calls that were appended to a batch, whose surface is pinned. Calls whose id is not valid or
// stands in the batch already, and those that CheckCalls refuses, are answered as invalid_arguments.
func (p *Planner) Extend(surface registry.Surface, s *batch.State) *Plan {
	plan := &Plan{Surface: surface, sub: s.Submission, calls: slices.Clone(s.Unplanned()), from: len(s.Plan.Calls)}
	if room := toolyard.MaxCallsPerBatch - plan.from; len(plan.calls) > room { // our clients refuse to send as many
		plan.calls, plan.full = plan.calls[:room], true
	}
	toolyard.NormalizeCalls(plan.calls, plan.from)
	echoes := make([]error, len(plan.calls))
	for n := range plan.calls { // whoever appended them may not have checked what our clients do
		plan.calls[n].Input = strictjson.MendInput(plan.calls[n].Input)
		if echoes[n] = toolyard.CheckEcho("echo", plan.calls[n].Echo); echoes[n] != nil {
			plan.calls[n].Echo = nil
		}
	}
	p.judge(plan, s.Plan.Loaded)
	var have submission.Input
	for _, c := range s.Plan.Calls {
		have.Add([]toolyard.Call{{ID: c.ID}})
	}
	for n, call := range plan.calls {
		i := plan.from + n
		problem := cmp.Or(have.Repeats("id", call.ID), toolyard.CheckName("id", call.ID), echoes[n],
			p.check(i, plan.calls[n:n+1]))
		have.Add([]toolyard.Call{call})
		if problem != nil {
			delete(plan.repairs, n)
		}
		if problem == nil || slices.ContainsFunc(plan.planned.Results,
			func(r toolyard.Result) bool { return r.Index == i }) {
			continue
		}
		plan.planned.Calls[n].Judgement = tool.Strictest("it cannot run")
		call.Tool = plan.planned.Calls[n].Tool
		plan.planned.Results = append(plan.planned.Results, outcome.NotRun(i, call, toolyard.InvalidArguments,
			"The call cannot be accepted: "+problem.Error()+".", problem.Error()))
	}
	return plan
}

// planPatternTime is what the patterns of all calls of a plan have together, so that no batch of inputs that are slow
// to check holds up its dispatcher.
const planPatternTime = 3 * time.Second

// judge resolves, checks and judges the calls of a plan.
func (p *Planner) judge(plan *Plan, loaded []string) {
	isLoaded := make(map[string]bool, len(loaded))
	for _, name := range loaded {
		isLoaded[name] = true
	}
	patterns := schema.NewAllowance(planPatternTime)
	ownName := plan.Surface.Unmangler() // providers allow fewer names than we do
	plan.entries = make([]*registry.Entry, len(plan.calls))
	plan.planned.Calls = make([]events.PlannedCall, len(plan.calls))
	plan.asks = map[toolyard.Pool][]broker.JudgeCall{}
	plan.inputs = map[int]schema.Value{}
	plan.repairs, plan.check = map[int]broker.JudgeCall{}, p.check
	plan.preflight = func(call toolyard.Call) (*registry.Entry, pipeline.Input, *toolyard.Result) {
		return p.Pipeline.Preflight(call, &plan.Surface, isLoaded, patterns)
	}
	for i, call := range plan.calls {
		call.Tool = ownName(call.Tool)
		entry, input, failed := plan.preflight(call)
		hash := input.Hash
		mended := mend(plan, call, failed, func(call toolyard.Call) (bad *toolyard.Result) {
			entry, input, bad = plan.preflight(call)
			return bad
		})
		if mended != nil {
			call.Input, hash, failed = mended.Input, input.Hash, nil
		}
		if call.Incomplete {
			failed = incomplete(call, entry)
		}
		aborts, interruptible := entry.FailureAbortsSiblings(), entry.Interrupt == tool.Cancel
		if failed == nil && plan.mayOutlive(entry, input.Value) {
			call.Tool = entry.Name
			if start, e, in, ok := plan.asStart(call, entry.Pool); ok {
				if mended == nil {
					mended = &events.Mended{}
				}
				call, entry, input, hash, mended.Input = start, e, in, in.Hash, start.Input
			}
		}
		plan.entries[i] = entry
		c := events.PlannedCall{ID: call.ID, Tool: submission.ShownName(call.Tool), Pool: entry.Pool,
			Declaration: entry.Hash, InputSHA256: inputHash(hash, call.Input), Mended: mended}
		if entry.Name != "" {
			c.Tool = entry.Name
		}
		if c.Pool == "" {
			c.Pool = toolyard.DefaultPool
		}
		switch {
		case failed != nil:
			c.Judgement = tool.Strictest("it cannot run: " + string(failed.Code))
			failed.Index, failed.Class = plan.from+i, c.Judgement.Class
			plan.planned.Results = append(plan.planned.Results, *failed)
			if repairable(plan, call, failed) {
				plan.repairs[i] = broker.JudgeCall{Index: i, Tool: entry.Name, Declaration: entry.Hash,
					Input: call.Input, Repair: problemOf(failed)}
			}
		default:
			c.Judgement = plan.judgement(i, input)
		}
		c.AbortsSiblings, c.Interruptible = aborts, interruptible
		c.Cost, c.Cached = entry.Cost, entry.Cache != nil
		c.TimeoutMS = entry.Timeout().Milliseconds()
		if plan.background {
			c.TimeoutMS = plan.sub.Options.CallTimeoutMS
		}
		plan.planned.Calls[i] = c
	}
}

// judgement judges call i, or notes that a worker has to.
func (p *Plan) judgement(i int, input pipeline.Input) tool.Judgement {
	entry := p.entries[i]
	judged, ask := registry.JudgeValue(&entry.Declaration, input.Value, shell.Judge)
	if len(entry.Locks) > 0 && p.sub.Options.NamedLocks && !p.sub.Options.Snapshot && !p.sub.Options.Overlay {
		p.inputs[i] = input.Value
	}
	if ask {
		p.asks[entry.Pool] = append(p.asks[entry.Pool], broker.JudgeCall{Index: i, Tool: entry.Name,
			Declaration: entry.Hash, Input: input.Raw})
	}
	return judged
}

// mend mends the input of a call that failed because its input is no object, if the batch wants that and the mended
// input passes the same checks. nil: it does not run with another input.
func mend(plan *Plan, call toolyard.Call, failed *toolyard.Result,
	check func(toolyard.Call) *toolyard.Result) *events.Mended {
	if !repairable(plan, call, failed) {
		return nil
	}
	input, what, ok := repair.Input(call.Input)
	if !ok || plan.mended+len(input) > broker.MaxMendedBytes {
		return nil
	}
	call.Input = input
	if check(call) != nil {
		return nil
	}
	plan.mended += len(input)
	return &events.Mended{Input: input, What: what}
}

// WouldMend says what the built-in repair would mend in the input of call i, which does not fit its schema, if the
// batch wanted that; empty if it would not run then either.
func (p *Plan) WouldMend(i int) string {
	call := p.calls[i]
	misfit := slices.ContainsFunc(p.planned.Results, func(r toolyard.Result) bool {
		return r.Index == p.from+i && r.Code == toolyard.SchemaValidationFailed
	})
	if !misfit || call.Incomplete || p.sub.Options.Repair {
		return ""
	}
	input, what, ok := repair.Input(call.Input)
	if !ok || p.mended+len(input) > broker.MaxMendedBytes {
		return ""
	}
	call.Tool, call.Input = p.Surface.Unmangler()(call.Tool), input
	if _, _, bad := p.preflight(call); bad != nil {
		return ""
	}
	return what
}

// repairable reports whether a call failed for a reason that a repair may mend, and its batch wants that.
func repairable(plan *Plan, call toolyard.Call, failed *toolyard.Result) bool {
	return plan.sub.Options.Repair && !call.Incomplete &&
		failed != nil && failed.Code == toolyard.SchemaValidationFailed
}

// problemOf is what a repair is told about an input.
func problemOf(failed *toolyard.Result) string {
	text := cmp.Or(failed.Error, string(failed.Code))
	return strings.ToValidUTF8(text[:min(len(text), broker.MaxProblemBytes)], "")
}

// Repairs returns, for each pool, the calls that a worker's own repair may mend. It is asked before [Plan.Asks].
func (p *Plan) Repairs() map[toolyard.Pool][]broker.JudgeCall {
	pools := map[toolyard.Pool][]broker.JudgeCall{}
	for _, i := range slices.Sorted(maps.Keys(p.repairs)) {
		pools[p.entries[i].Pool] = append(pools[p.entries[i].Pool], p.repairs[i])
	}
	return pools
}

// Repair takes what workers of a pool have repaired, of the calls that are its own. An input that does not pass the
// checks of all inputs changes nothing: the call ends as it would without. problems says why inputs were not taken.
func (p *Plan) Repair(pool toolyard.Pool, js []broker.Judged) (problems []error) {
	for _, j := range js {
		if _, asked := p.repairs[j.Index]; !asked || p.entries[j.Index].Pool != pool {
			continue
		}
		if j.Failed != "" {
			problems = append(problems, fmt.Errorf("call %d: %s", p.from+j.Index, j.Failed))
		}
		if j.Repaired == nil {
			continue
		}
		delete(p.repairs, j.Index)
		if err := p.takeRepair(j); err != nil {
			problems = append(problems, fmt.Errorf("call %d: %w", p.from+j.Index, err))
		}
	}
	return problems
}

func (p *Plan) takeRepair(j broker.Judged) error {
	call := p.calls[j.Index]
	call.Tool, call.Input = p.entries[j.Index].Name, j.Repaired
	switch {
	case p.mended+len(j.Repaired) > broker.MaxMendedBytes:
		return fmt.Errorf("the mended inputs of the plan have more than %d bytes together", broker.MaxMendedBytes)
	case !strictjson.Valid(j.Repaired, strictjson.MaxInputDepth):
		return errors.New("the repaired input is no JSON, has a key twice or nests too deep")
	}
	if err := p.check(p.from+j.Index, []toolyard.Call{call}); err != nil {
		return fmt.Errorf("the repaired input is refused: %w", err)
	}
	_, input, failed := p.preflight(call)
	if failed != nil {
		return fmt.Errorf("the repaired input does not fit either: %s", failed.Error)
	}
	p.mended += len(j.Repaired)
	c := &p.planned.Calls[j.Index]
	c.Mended = &events.Mended{Input: j.Repaired, What: "by a repair of this installation"}
	if note := registry.Why(j.Note); note != "" {
		c.Mended.What += ": " + note
	}
	c.InputSHA256, c.Judgement = inputHash(input.Hash, j.Repaired), p.judgement(j.Index, input)
	p.planned.Results = slices.DeleteFunc(p.planned.Results,
		func(r toolyard.Result) bool { return r.Index == p.from+j.Index })
	return nil
}

// Asks returns, for each pool, the calls that only a worker of it can judge.
func (p *Plan) Asks() map[toolyard.Pool][]broker.JudgeCall { return p.asks }

// Answer takes a worker's judgements. What was not judged stays UNSAFE, and its judgement says why.
func (p *Plan) Answer(js []broker.Judged) {
	for _, j := range js {
		switch {
		case j.Index < 0 || j.Index >= len(p.entries):
		case j.Failed != "":
			p.planned.Calls[j.Index].Judgement = tool.Strictest(registry.Why(j.Failed))
		default:
			p.planned.Calls[j.Index].Judgement = registry.CheckJudgement(p.entries[j.Index].Declaration, j.Judgement)
		}
	}
}

// Unknown reports whether a call names a tool that nobody has, or an open batch has no tools at all.
func (p *Plan) Unknown() bool {
	return p.sub.Open && len(p.Surface.Tools) == 0 ||
		slices.ContainsFunc(p.planned.Results, func(r toolyard.Result) bool { return r.Code == toolyard.UnknownTool })
}

// Unserved reports whether a call cannot run because its tool's workers refuse the batch's workspace, or lack a tag. An
// open batch has calls yet to come: there it is when none of the tools can run that act on the workspace.
func (p *Plan) Unserved(refuse func(e *registry.Entry) bool) bool {
	if slices.ContainsFunc(p.entries, func(e *registry.Entry) bool { return e.Name != "" && refuse(e) }) {
		return true
	}
	if !p.sub.Open {
		return false
	}
	act := slices.DeleteFunc(slices.Clone(p.Surface.Tools), func(e registry.Entry) bool { return !e.NeedsWorkspace() })
	return len(act) > 0 && !slices.ContainsFunc(act, func(e registry.Entry) bool { return !refuse(&e) })
}

// Refuse answers the calls that nobody can run, as unable says to the model and to the operator: an empty message
// means that somebody can.
func (p *Plan) Refuse(unable func(e *registry.Entry, class toolyard.Class) (message, detail string)) {
	answered := map[int]bool{}
	for _, r := range p.planned.Results {
		answered[r.Index] = true
	}
	for n, call := range p.calls {
		i, c := p.from+n, &p.planned.Calls[n]
		if answered[i] {
			continue
		}
		message, detail := unable(p.entries[n], c.Judgement.Class)
		if message == "" {
			continue
		}
		p.planned.Results = append(p.planned.Results, outcome.Ended(toolyard.Result{
			Index: i, CallID: call.ID, Tool: c.Tool, Code: toolyard.SetupRequired,
			Class: c.Judgement.Class, Error: message, Detail: detail,
		}, toolyard.PhaseValidateValues, fmt.Sprintf("%s; judged %s: %s", detail, c.Judgement.Class, c.Judgement.Why),
			toolyard.Fact{Phase: toolyard.PhaseResolveTool, Outcome: toolyard.OutcomeOK},
			toolyard.Fact{Phase: toolyard.PhaseParseSchema, Outcome: toolyard.OutcomeOK}))
	}
}

// open are the calls that are not answered, by their index in the plan, with their pools.
func (p *Plan) open() map[int]toolyard.Pool {
	calls := map[int]toolyard.Pool{}
	for n, c := range p.planned.Calls {
		calls[n] = c.Pool
	}
	for _, r := range p.planned.Results {
		delete(calls, r.Index-p.from)
	}
	return calls
}

// requested is call n of the plan as a worker gets it.
func (p *Plan) requested(n int) events.RequestedCall {
	c, call := p.planned.Calls[n], p.calls[n]
	r := events.RequestedCall{Index: p.from + n, ID: c.ID, Tool: c.Tool, Input: call.Input, Declaration: c.Declaration,
		Judgement: c.Judgement, Echo: call.Echo}
	if c.Mended != nil {
		r.Input, r.Mended = c.Mended.Input, c.Mended.What
	}
	return r
}

// dryRun answers call n with what a worker says of it. Nil: no worker said anything, for the reason err.
func (p *Plan) dryRun(n int, said *toolyard.Result, err error) {
	i, c := p.from+n, p.planned.Calls[n]
	if said == nil {
		why := "the worker cannot: its version is older"
		if err != nil {
			why = err.Error()
		}
		ended := outcome.Ended(toolyard.Result{Index: i, CallID: c.ID, Tool: c.Tool, Class: c.Judgement.Class,
			Code: toolyard.DependencyUnavailable, Retryable: true,
			Error: "No worker said in time what would happen; nothing was done. Try the dry run again."},
			toolyard.PhaseSchedule, why)
		said = &ended
	}
	said.Index, said.CallID = i, c.ID
	p.planned.Results = append(p.planned.Results, *said)
}

// Finish makes the groups and returns the plan as an event, by and for an owner.
func (p *Plan) Finish(owner string, submissionSeq uint64, deadline time.Time) events.Planned {
	out := p.planned
	out.Owner, out.SubmissionSeq, out.Deadline = owner, submissionSeq, deadline
	claims(out.Calls, p.background)
	p.echo()
	out.Groups = p.groups(nil, out.Partition)
	return out
}

// FinishExtending makes the groups of the batch with the plan's calls and returns what has changed as an event.
func (p *Plan) FinishExtending(s *batch.State) events.Extended {
	claims(p.planned.Calls, p.background)
	p.echo()
	groups := p.groups(s.Plan, s.Plan.Partition)
	first := 0
	for first < len(s.Plan.Groups) && first < len(groups) && s.Plan.Groups[first].Ticket == groups[first].Ticket &&
		slices.Equal(s.Plan.Groups[first].Calls, groups[first].Calls) {
		first++
	}
	return events.Extended{
		InputSeq: s.InputSeq, Closed: s.InputClosed || p.full, Calls: p.planned.Calls, FirstGroup: first,
		Groups: groups[first:], Results: p.planned.Results,
	}
}

// echo gives every call that was answered here what its provider wants back.
func (p *Plan) echo() {
	for i := range p.planned.Results {
		r := &p.planned.Results[i]
		r.Echo = p.calls[r.Index-p.from].Echo
	}
}

// claims says which calls need a claim: those that may not run twice, or not beside others, and background calls, so
// that it is known who has them.
func claims(calls []events.PlannedCall, background bool) {
	for i := range calls {
		j := calls[i].Judgement
		calls[i].Claim = !j.Class.Safe() || !j.Idempotent || background
	}
}

// groups partitions the calls of the batch, those that were planned before and those of this plan.
func (p *Plan) groups(before *events.Planned, strategy toolyard.Strategy) []events.Group {
	var classes []toolyard.Class
	var needs []bool // which calls act on the workspace and are not answered yet
	locks := map[int][]tool.Lock{}
	if before != nil {
		needs = make([]bool, len(before.Calls))
		for _, c := range before.Calls {
			classes = append(classes, c.Judgement.Class)
		}
		for _, g := range before.Groups {
			for _, i := range g.Calls {
				needs[i], locks[i] = g.Ticket, g.Locks
			}
		}
	}
	answered := map[int]bool{}
	for _, r := range p.planned.Results {
		answered[r.Index] = true
	}
	for i, c := range p.planned.Calls {
		classes = append(classes, c.Judgement.Class)
		needs = append(needs, !answered[p.from+i] && p.entries[i].NeedsWorkspace() && (!p.background || p.holds))
		if v, ok := p.inputs[i]; ok {
			locks[p.from+i] = registry.Locks(&p.entries[i].Declaration, v, c.Judgement.Class)
		}
	}
	var out []events.Group
	for _, g := range partition.Groups(strategy, classes) {
		group := events.Group{Safe: g.Safe, Calls: g.Calls,
			Ticket: slices.ContainsFunc(g.Calls, func(i int) bool { return needs[i] })}
		if group.Ticket && !(g.Safe && p.sub.Open) { // calls may join a safe group that runs
			group.Locks = groupLocks(g.Calls, needs, locks)
		}
		out = append(out, group)
	}
	return out
}

// groupLocks are the names that the calls of a group need together. Nil: one of them needs the whole workspace, or they
// are too many.
func groupLocks(calls []int, needs []bool, locks map[int][]tool.Lock) []tool.Lock {
	var all []tool.Lock
	for _, i := range calls {
		if !needs[i] {
			continue
		}
		if len(locks[i]) == 0 {
			return nil
		}
		all = append(all, locks[i]...)
	}
	if all = registry.JoinLocks(all); len(all) > ticket.MaxLocks {
		return nil
	}
	return all
}

// Entry is the tool that call i resolved to; its name is empty when there is none.
func (p *Plan) Entry(i int) registry.Entry { return *p.entries[i] }

// MaxRuleBytes is how long the operator's rules may be together that stand in every plan.
const MaxRuleBytes = 64 << 10

// ForAll makes the operator's deny and ask rules hold for all workers, wherever they run: without those with an
// absolute path, which is a directory of this machine. known are tools that rules may name although nobody offers
// them now.
func (p *Planner) ForAll(rules policy.Rules, known []string, tools []tool.Tool) error {
	declarations := make([]*tool.Declaration, len(tools))
	for i := range tools {
		declarations[i] = &tools[i].Declaration
	}
	portable := rules.Portable(declarations...)
	bytes := 0
	texts := func(rules []policy.Rule) (out []string) {
		for _, r := range rules {
			out = append(out, r.String())
			bytes += len(r.String())
		}
		return out
	}
	p.Deny, p.Ask, p.Known = texts(portable.Deny), texts(portable.Ask), known
	if n := len(p.Deny) + len(p.Ask); n > toolyard.MaxRulesPerBatch || bytes > MaxRuleBytes {
		return fmt.Errorf("there are %d deny and ask rules with %d bytes; a dispatcher takes %d with %d", n, bytes,
			toolyard.MaxRulesPerBatch, MaxRuleBytes)
	}
	return nil
}

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

// inputHash names an input by its canonical form, as the pipeline does; one that cannot be parsed by its bytes.
// known is that hash, if it is known.
func inputHash(known string, input []byte) string {
	if known != "" {
		return known
	}
	if v, err := schema.Parse(input); err == nil {
		return v.Hash()
	}
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}

// Surface is what a batch of an agent sees of the registry: without what the operator's rules or the batch's own take
// out, and what the agent has no view of. A rule of the batch that cannot be read, or names no tool that there is, is
// a [*toolyard.InputError].
func (p *Planner) Surface(reg registry.Registry, a toolyard.Agent, o toolyard.Options) (registry.Surface, error) {
	rules, err := BatchRules(o)
	if err != nil {
		return registry.Surface{}, err
	}
	known := slices.Concat(reg.Names(), p.Known)
	names := policy.Names{Tools: known, Servers: policy.ServersOf(known)}
	for _, list := range []struct {
		field string
		rules []policy.Rule
	}{{"options.deny", rules.Deny}, {"options.ask", rules.Ask}} {
		for i, r := range list.rules {
			if err := names.Check(r.Tool); err != nil {
				return registry.Surface{}, &toolyard.InputError{Field: fmt.Sprintf("%s[%d]", list.field, i),
					Problem: fmt.Sprintf("%q: %v", r, err)}
			}
		}
	}
	s, err := registry.Assemble(reg, func(name string, aliases []string) bool {
		return p.Rules.Blocks(name, aliases) || rules.Blocks(name, aliases) || p.Views.Hide(a, name, aliases)
	})
	if err != nil {
		return s, fmt.Errorf("assemble the surface: %w", err)
	}
	if len(p.DeferAllBut) > 0 {
		return registry.DeferAllBut(s, p.DeferAllBut)
	}
	return s, nil
}

// incomplete answers a call that was cut off with the model's stream. No part of its input is used.
func incomplete(call toolyard.Call, entry *registry.Entry) *toolyard.Result {
	if entry.Name != "" {
		call.Tool = entry.Name
	}
	res := outcome.NotRun(0, call, toolyard.IncompleteCall, "The call was cut off before its input was complete, and "+
		"nothing was run. Make the call again, with a shorter input if it was long.",
		"the model's stream was cut inside the call")
	return &res
}
