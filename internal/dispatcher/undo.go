package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
)

// The limits of what is read of other batches when one is undone.
const (
	lookBackTime = 20 * time.Second // for reading other batches
	maxLookedAt  = 200              // batches that are read for those that came later
	maxLater     = 10               // that are named
	maxMade      = 4_000            // that are looked for among those that its calls started
)

// lookBack tells the call of a batch that acts on another one what the log says of that one. The group has its ticket,
// so nothing of the workspace runs meanwhile.
func (r *runner) lookBack(ctx context.Context, calls []batch.Queue) {
	ctx, cancel := context.WithTimeout(ctx, lookBackTime)
	defer cancel()
	for n := range calls {
		for i := range calls[n].Request.Calls {
			switch c := &calls[n].Request.Calls[i]; c.Tool {
			case toolyard.UndoTool:
				c.Undo = r.undoOf(ctx, c.Input)
			case toolyard.OverlayTool:
				c.Undo = r.overlayOf(ctx, c.Input)
			}
		}
	}
}

// undoOf reads what is to be known of the batch that an input names.
func (r *runner) undoOf(ctx context.Context, input json.RawMessage) *events.Undo {
	var in toolyard.UndoInput
	if err := json.Unmarshal(input, &in); err != nil {
		return &events.Undo{Problem: "the input does not fit: " + err.Error()}
	}
	s, problem := r.look(ctx, in.Batch)
	if problem != "" {
		return &events.Undo{Batch: in.Batch, Problem: problem}
	}
	u := undone(s, in, r.m.State().Plan.Workspace, func(before int) string { return r.made(ctx, s, before) })
	if u.Problem == "" {
		u.Later = r.later(ctx, s, u.Group)
	}
	return &u
}

// overlayOf reads what is to be known of the batch whose overlay an input names.
func (r *runner) overlayOf(ctx context.Context, input json.RawMessage) *events.Undo {
	var in toolyard.OverlayInput
	if err := json.Unmarshal(input, &in); err != nil {
		return &events.Undo{Problem: "the input does not fit: " + err.Error()}
	}
	s, problem := r.look(ctx, in.Batch)
	if problem == "" {
		problem = noOverlay(s, r.m.State().Plan.Workspace)
	}
	u := &events.Undo{Batch: in.Batch, Problem: problem}
	if problem == "" {
		u.Overlay = s.RanOnOverlay()
	}
	return u
}

// look reads another batch of the agent, and all that the server counts of it: what is missing decides too, and a
// server may answer as if it had no messages.
func (r *runner) look(ctx context.Context, id toolyard.BatchID) (s *batch.State, problem string) {
	k := toolyard.BatchKey{Agent: r.key.Agent, ID: id}
	state, err := r.d.b.Resume(ctx, k)
	switch {
	case errors.Is(err, broker.ErrNoBatch):
		return nil, fmt.Sprintf("the agent has no batch %q, or no longer", id)
	case err != nil:
		r.log.Warn("a batch that another one acts on cannot be read", "other", k, "error", err)
		return nil, fmt.Sprintf("batch %q cannot be read now; try again", id)
	}
	return &state, ""
}

// noOverlay is why nothing can be done with the overlay of a batch; empty if something can.
func noOverlay(s *batch.State, w toolyard.Workspace) string {
	switch {
	case s.Submission == nil || s.Plan == nil || !s.Completed:
		return fmt.Sprintf("batch %q is not over; wait for it, or cancel it first", s.Key.ID)
	case !s.Submission.Options.Overlay:
		return fmt.Sprintf("batch %q was not handed in with the option overlay, so it ran in the workspace", s.Key.ID)
	case s.Plan.Workspace != w:
		return fmt.Sprintf("batch %q acted on the workspace %q", s.Key.ID, s.Plan.Workspace)
	}
	return ""
}

// undone is what a batch's own log says about undoing it. made says what changed the workspace for its calls before one
// of its groups, without being of the batch; empty if nothing did.
func undone(s *batch.State, in toolyard.UndoInput, w toolyard.Workspace, made func(before int) string) events.Undo {
	u := events.Undo{Batch: in.Batch}
	problem := func(format string, args ...any) events.Undo {
		u.Problem = fmt.Sprintf("batch %q ", in.Batch) + fmt.Sprintf(format, args...)
		return u
	}
	switch {
	case s.Submission == nil || s.Plan == nil || !s.Completed:
		return problem("is not over; wait for it, or cancel it first")
	case !s.Submission.Options.Snapshot:
		return problem("was not handed in with the option snapshot, so nothing was kept of what the workspace was")
	case s.Plan.Workspace != w:
		return problem("acted on the workspace %q", s.Plan.Workspace)
	}
	for g := range s.Plan.Groups {
		if s.MayHaveChanged(g) {
			u.Groups = append(u.Groups, g)
		}
	}
	switch {
	case len(u.Groups) == 0:
		if others := made(len(s.Plan.Groups)); others != "" {
			return problem("has changed nothing itself, and what its calls started is undone by ids of its own, the "+
				"newest first: %s", others)
		}
		return problem("has not run a call that could change the workspace; there is nothing to undo")
	case in.Group == nil:
		u.Group = u.Groups[0]
		if others := made(u.Group); others != "" {
			return problem("has no snapshot from before what its calls started first. Undo it before group %d, and "+
				"then by their ids, the newest first: %s", u.Group+1, others)
		}
	case !slices.Contains(u.Groups, *in.Group):
		return problem("has no snapshot before group %d; groups with one are %s, counted from 1", *in.Group+1,
			shown(u.Groups))
	default:
		u.Group = *in.Group
	}
	return u
}

// made names the batches that the calls of a batch started before one of its groups, and that may have changed its
// workspace: background calls, and the calls of scripts. The newest is the first.
func (r *runner) made(ctx context.Context, s *batch.State, before int) string {
	look := &madeBatches{r: r, workspace: s.Plan.Workspace}
	look.by(ctx, s, before)
	slices.Reverse(look.found)
	names := make([]string, 0, maxLater+1)
	for _, id := range look.found {
		if len(names) == maxLater {
			names = append(names, "others")
			break
		}
		names = append(names, fmt.Sprintf("batch %q", id))
	}
	if look.unknown {
		names = append(names, "and some that cannot be looked at now")
	}
	return strings.Join(names, ", ")
}

// madeBatches looks for batches that calls have started and that may have changed a workspace.
type madeBatches struct {
	r         *runner
	workspace toolyard.Workspace
	looked    int
	found     []toolyard.BatchID
	unknown   bool // one could not be looked at
}

// by adds those that the calls of a batch started before one of its groups, and what these started.
func (m *madeBatches) by(ctx context.Context, s *batch.State, before int) {
	for _, g := range s.Plan.Groups[:before] {
		for _, i := range g.Calls {
			switch s.Plan.Calls[i].Tool {
			case toolyard.BackgroundStart:
				m.add(ctx, toolyard.BatchKey{Agent: s.Key.Agent, ID: toolyard.BackgroundID(s.Key, i, false)})
				m.add(ctx, toolyard.BatchKey{Agent: s.Key.Agent, ID: toolyard.BackgroundID(s.Key, i, true)})
			case toolyard.RunCodeTool:
				m.byScript(ctx, s, i)
			}
		}
	}
}

// byScript adds those that a script made. The log that an owner reads does not say in which attempts it ran.
func (m *madeBatches) byScript(ctx context.Context, s *batch.State, call int) {
	r := s.Calls[call].Result
	if r != nil && r.Attempts == 0 {
		return
	}
	for attempt, ran := 1, 0; attempt <= maxAttempts && (r == nil || ran < r.Attempts); attempt++ {
		there := false
		for n := 1; n <= submission.MaxChildren; n++ {
			id := submission.ChildID(toolyard.Parent{Batch: s.Key.ID, Call: call, Attempt: attempt, N: n})
			there = m.add(ctx, toolyard.BatchKey{Agent: s.Key.Agent, ID: id}) || there
		}
		if there {
			ran++
		}
	}
}

// add looks at one batch, and reports whether it may be there. These nest a few deep: a script runs no script.
func (m *madeBatches) add(ctx context.Context, k toolyard.BatchKey) bool {
	if m.looked++; m.looked > maxMade {
		m.unknown = true
		return true
	}
	s, err := m.r.d.b.Look(ctx, k)
	switch {
	case errors.Is(err, broker.ErrNoBatch):
		return false
	case err != nil:
		m.unknown = true
	case s.Plan != nil && s.Plan.Workspace == m.workspace:
		m.by(ctx, &s, len(s.Plan.Groups))
		changed := false
		for g := range s.Plan.Groups {
			changed = changed || s.MayHaveChanged(g)
		}
		if changed {
			m.found = append(m.found, k.ID)
		}
	}
	return true
}

// shown are groups as people see them.
func shown(groups []int) string {
	var texts []string
	for _, g := range groups {
		texts = append(texts, strconv.Itoa(g+1))
	}
	return strings.Join(texts, ", ")
}

// later names the batches that ran exclusive groups in the workspace behind a group, the newest first. It is for people
// to know whom to ask: what has become of the workspace since is seen there, and not in the index.
func (r *runner) later(ctx context.Context, s *batch.State, group int) (names []string) {
	since, looked := s.Started[group], 0
	for after, more := uint64(0), true; more; {
		var page []broker.Entry
		var err error
		if page, more, err = r.d.b.Index().Page(ctx, broker.Filter{After: after}); err != nil {
			r.log.Info("not all batches that came later are known", "error", err)
			return names
		}
		for i := range page {
			e := &page[i]
			after = e.Place
			if e.Workspace != s.Plan.Workspace || e.Key() == s.Key || e.Key() == r.key ||
				e.Changed.Before(s.SubmittedAt) {
				continue
			}
			if looked++; looked > maxLookedAt || len(names) == maxLater {
				return append(names, "others")
			}
			if o, err := r.d.b.Look(ctx, e.Key()); err == nil && !undoes(&o, s.Key) && cameLater(&o, since) {
				names = append(names, fmt.Sprintf("batch %q of agent %q", e.ID, e.Agent))
			}
		}
	}
	return names
}

// undoes reports whether a batch undoes another.
func undoes(s *batch.State, k toolyard.BatchKey) bool {
	var in toolyard.UndoInput
	return s.Submission != nil && s.Submission.Options.Undo && s.Key.Agent == k.Agent &&
		len(s.Submission.Calls) == 1 && json.Unmarshal(s.Submission.Calls[0].Input, &in) == nil && in.Batch == k.ID
}

// cameLater reports whether a batch has run an exclusive group under a later ticket.
func cameLater(s *batch.State, since uint64) bool {
	if s.Plan == nil {
		return false
	}
	for g, number := range s.Started {
		if number > since && g < len(s.Plan.Groups) && s.MayHaveChanged(g) {
			return true
		}
	}
	return false
}
