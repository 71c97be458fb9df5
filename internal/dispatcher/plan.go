package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/catalog"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
)

// plan decides about a new batch. It returns the event that makes this dispatcher the owner, unless another one is
// faster, and what the batch sees. read returns the batch's session, when that has been read: what does not depend on
// it is decided meanwhile.
func (d *Dispatcher) plan(ctx context.Context, k *kept, s *batch.State, read func() (*broker.Session, error),
) (planned events.Planned, _ *registry.Surface, err error) {
	var childEnd time.Time
	if s.Submission.Options.Parent != nil {
		if childEnd, err = d.checkChild(ctx, s.Submission); err != nil {
			return planned, nil, err
		}
	}
	plan, err := d.planned(ctx, k.log, s.Submission, nil)
	if err != nil {
		return planned, nil, err
	}
	session, err := read()
	if err != nil {
		return planned, nil, err
	}
	if background, _ := s.Key.ID.Background(); background && !session.HasBackground(s.Key.ID) {
		return planned, nil, &toolyard.InputError{Field: "id", Problem: fmt.Sprintf(
			"%q is kept for background calls, which %s starts; use another", s.Key.ID, toolyard.BackgroundStart)}
	}
	if len(session.Loaded) > 0 {
		if plan, err = d.planned(ctx, k.log, s.Submission, session.Loaded); err != nil {
			return planned, nil, err
		}
	}
	d.askJudges(ctx, k.log, plan)
	if err := d.keepSurface(ctx, &plan.Surface); err != nil {
		return planned, nil, err
	}
	if s.Submission.Options.DryRun {
		pinned := plan.planned
		pinned.Remembered, pinned.Context = session.Remembered, session.Context
		pinned.Unattended = session.Unattended
		d.dryRun(ctx, k.log, plan, batch.RequestOf(s.Submission, &pinned))
	}
	if s.Submission.Options.Supersede { // before the plan: whoever takes the batch up again does it again
		if err := d.supersede(ctx, s); err != nil {
			return planned, nil, err
		}
	}
	timeout := d.cfg.BatchTimeout
	if ms := s.Submission.Options.TimeoutMS; ms > 0 {
		timeout = time.Duration(min(ms, d.b.Settings().Lifetime.Milliseconds())) * time.Millisecond
	}
	planned = plan.Finish(d.cfg.ID, k.submission().Seq, d.clock.now().Add(timeout).UTC())
	d.nameDependencies(plan, planned.Calls)
	planned.Lane = d.admission.laneOf(s.Submission)
	planned.MaxConcurrency = d.admission.concurrency(s.Key.Agent, planned.MaxConcurrency)
	planned.Remembered, planned.Context, planned.Unattended = session.Remembered, session.Context, session.Unattended
	planned.ApprovalWaitMS, planned.End = d.cfg.ApprovalWait.Milliseconds(),
		s.SubmittedAt.Add(d.b.Settings().Lifetime).UTC()
	bound(&planned, childEnd)
	bound(&planned, programEnd(s))
	surface := plan.Surface // without the plan, while the batch is open
	return planned, &surface, nil
}

// planned makes the plan of a new batch. Before it answers that nobody has a tool it catches up with the worker
// registry. When nobody serves the workspace, and workers may still come, it waits.
func (d *Dispatcher) planned(ctx context.Context, log *slog.Logger, sub *toolyard.Batch, loaded []string,
) (*Plan, error) {
	for looked := false; ; {
		early, changed := d.workers.settling(d.cfg.WorkerWait)
		reg, err := d.workers.tools(askOf(sub))
		if err != nil {
			return nil, err
		}
		plan, err := d.planOn(reg, sub, loaded)
		_, refused := errors.AsType[*toolyard.InputError](err)
		if !looked && (refused || err == nil && plan.Unknown()) {
			if err := d.workers.catchUp(ctx); err != nil {
				return nil, err // and not that nobody has the tool: the batch is tried again
			}
			looked = true
			continue
		}
		if err != nil || early <= 0 || !plan.Unserved(d.workers.refuses(askOf(sub))) {
			return plan, err
		}
		log.Info("a batch waits for a worker that serves its workspace and has the tags that are asked for",
			"workspace", sub.Workspace, "tags", sub.Options.Tags, "at_most", early)
		select {
		case <-changed:
		case <-time.After(early):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// askJudges has workers repair inputs, and judge the calls that only they can, and answers those that no worker can
// run. A call without an answer is UNSAFE.
func (d *Dispatcher) askJudges(ctx context.Context, log *slog.Logger, plan *Plan) {
	AskWorkers(ctx, d.b, log, plan)
	plan.Refuse(d.workers.unable(askOf(plan.sub)))
}

// AskWorkers has workers mend the inputs that only their own repair can, and judge the calls that only they can.
func AskWorkers(ctx context.Context, b broker.Asking, log *slog.Logger, plan *Plan) {
	askPools(ctx, plan.Repairs(), b.Repair, func(pool toolyard.Pool, repaired []broker.Judged, err error) {
		for _, problem := range append(plan.Repair(pool, repaired), err) {
			if problem != nil {
				log.Warn("an input was not repaired", "pool", pool, "error", problem)
			}
		}
	})
	askPools(ctx, plan.Asks(), b.Judge, func(pool toolyard.Pool, judged []broker.Judged, err error) {
		if err != nil {
			log.Warn("calls were not judged; they count as UNSAFE", "pool", pool, "error", err)
		}
		plan.Answer(judged)
	})
}

// askPools asks workers of all pools at a time, and takes their answers one by one.
func askPools(ctx context.Context, calls map[toolyard.Pool][]broker.JudgeCall,
	ask func(context.Context, toolyard.Pool, []broker.JudgeCall) ([]broker.Judged, error),
	take func(toolyard.Pool, []broker.Judged, error)) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for pool, calls := range calls {
		asking.Go(func() {
			said, err := ask(ctx, pool, calls)
			mu.Lock()
			defer mu.Unlock()
			take(pool, said, err)
		})
	}
	asking.Wait()
}

// extend plans the calls that were appended to an open batch, on the surface that it sees.
func (r *runner) extend(ctx context.Context) (events.Extended, error) {
	s := r.m.State()
	if r.surface == nil { // the batch was adopted
		stored, err := r.d.b.Surface(ctx, s.Plan.Surface)
		if err != nil {
			return events.Extended{}, err
		}
		if r.surface, err = registry.Decode(stored); err != nil {
			return events.Extended{}, err
		}
	}
	plan := r.d.planner.Load().Extend(*r.surface, s)
	r.d.admission.begin(r.key.Agent, len(plan.calls))
	r.d.askJudges(ctx, r.log, plan)
	if s.Submission.Options.DryRun {
		r.d.dryRun(ctx, r.log, plan, batch.RequestOf(s.Submission, s.Plan))
	}
	extended := plan.FinishExtending(s)
	r.d.nameDependencies(plan, extended.Calls)
	return extended, nil
}

// The limits of a dry run.
const (
	maxDryRuns = 8                // calls of one batch that workers are asked about at a time
	DryRunWait = 30 * time.Second // for the answers about all calls of a plan
)

// dryRun answers every call of a plan with what would happen to it: none is left that could run. What no worker says
// in time ends as dependency_unavailable.
func (d *Dispatcher) dryRun(ctx context.Context, log *slog.Logger, plan *Plan, request events.Requested) {
	ctx, cancel := context.WithTimeout(ctx, DryRunWait)
	defer cancel()
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(maxDryRuns)
	for n, pool := range plan.open() {
		request := request
		request.Calls = []events.RequestedCall{plan.requested(n)}
		asking.Go(func() error {
			answer, err := d.b.DryRun(ctx, pool, request)
			if err != nil {
				log.Warn("no worker said what a dry run of a call gives", "call", plan.from+n, "pool", pool,
					"error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			plan.dryRun(n, answer.DryRun, err)
			return nil
		})
	}
	_ = asking.Wait() // no goroutine returns an error
}

// Surface is the tools that a batch of an agent for a workspace would see if it came now, with these options. A rule
// that cannot be read is a [*toolyard.InputError].
func (d *Dispatcher) Surface(a toolyard.Agent, w toolyard.Workspace, o toolyard.Options) (registry.Surface, error) {
	reg, err := d.workers.tools(catalog.Ask{Workspace: w, Tags: o.Tags})
	if err != nil {
		return registry.Surface{}, err
	}
	return d.surface(d.planner.Load(), reg, a, o)
}

// planOn is [Planner.Plan] with a surface that may be known.
func (d *Dispatcher) planOn(reg registry.Registry, sub *toolyard.Batch, loaded []string) (*Plan, error) {
	p := d.planner.Load()
	if err := p.check(0, sub.Calls); err != nil {
		return nil, err
	}
	surface, err := d.surface(p, reg, sub.Agent, sub.Options)
	if err != nil {
		return nil, err
	}
	return p.On(surface, sub, loaded), nil
}

// Limits of what a dispatcher remembers of surfaces. What is too much is dropped, and made again.
const (
	surfacesKept  = 1_024 // that were stored
	surfacesBuilt = 256   // that were assembled
)

// surfaceKey says what a surface follows from.
type surfaceKey struct {
	planner  *Planner
	registry registry.Identity
	view     int
	rules    string
}

// builtOf is the planner and the count of changes of the catalog that surfaces follow from. Behind a change nobody asks
// for earlier ones again, each of which keeps all of the tools that there were.
type builtOf struct {
	planner *Planner
	changes uint64
}

// surface is [Planner.Surface]. A surface that was assembled before is not assembled again.
func (d *Dispatcher) surface(p *Planner, reg registry.Registry, a toolyard.Agent, o toolyard.Options,
) (registry.Surface, error) {
	id, ok := reg.Identity()
	if !ok {
		return p.Surface(reg, a, o)
	}
	key := surfaceKey{p, id, p.Views.Of(a), fmt.Sprintf("%q %q", o.Deny, o.Ask)}
	d.mu.Lock()
	s, ok := d.built[key]
	d.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := p.Surface(reg, a, o)
	if err != nil {
		return s, err
	}
	now := builtOf{d.planner.Load(), d.workers.changes.Load()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.built) >= surfacesBuilt || d.builtOf != now {
		clear(d.built)
	}
	d.builtOf = now
	d.built[key] = s
	return s, nil
}

// keepSurface stores a surface, unless this dispatcher stored it not long ago. It must last for the lifetime of the
// batch that is planned now. The broker, too, keeps one that is younger than half of the slack.
func (d *Dispatcher) keepSurface(ctx context.Context, s *registry.Surface) error {
	d.mu.Lock()
	at, ok := d.stored[s.Hash]
	d.mu.Unlock()
	if ok && time.Since(at) < d.b.Settings().Slack/4 {
		return nil
	}
	encoded, err := s.Encode()
	if err == nil {
		err = d.b.PutSurface(ctx, s.Hash, encoded)
	}
	if err != nil {
		return fmt.Errorf("store the surface: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.stored) >= surfacesKept {
		clear(d.stored)
	}
	d.stored[s.Hash] = time.Now()
	return nil
}
