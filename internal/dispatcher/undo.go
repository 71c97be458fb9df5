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
)

// The limits of what is read of other batches when one is undone.
const (
	lookBackTime = 20 * time.Second // for reading other batches
	maxLookedAt  = 200              // batches that are read for those that came later
	maxLater     = 10               // that are named
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
	u := undone(s, in, r.m.State().Plan.Workspace)
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

// undone is what a batch's own log says about undoing it.
func undone(s *batch.State, in toolyard.UndoInput, w toolyard.Workspace) events.Undo {
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
		return problem("has not run a call that could change the workspace; there is nothing to undo")
	case in.Group == nil:
		u.Group = u.Groups[0]
	case !slices.Contains(u.Groups, *in.Group):
		return problem("has no snapshot before group %d; groups with one are %s, counted from 1", *in.Group+1,
			shown(u.Groups))
	default:
		u.Group = *in.Group
	}
	return u
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
