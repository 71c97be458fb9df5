package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/tool"
)

// undo has batches be kept undoable, and people undo some of them: mostly when they are over, some while they run.
func (d draws) undo(sc *scenario) {
	if !d.one(6) {
		return
	}
	sc.undoes = true
	for i := range sc.agents {
		a := &sc.agents[i]
		for _, b := range slices.Clone(a.batches) {
			if d.one(4) || b.batch.Options.BackgroundAfterMS > 0 { // whose commands leave it
				continue
			}
			b.batch.Options.Snapshot = true
			if d.one(3) {
				continue
			}
			u := undoing(b, client.Undoing{Force: d.one(4)})
			u.submit = d.between(ms, 2*time.Second)
			if d.one(4) {
				u.submit, u.of = b.submit+u.submit, nil
			}
			a.batches = append(a.batches, u)
		}
	}
}

// undoing is a batch that undoes another one, and is handed in when that is over.
func undoing(of *batchSpec, how client.Undoing) *batchSpec {
	how.ID = "undo-" + of.batch.ID
	b, err := how.Batch(toolyard.BatchView{ID: of.batch.ID, Agent: of.batch.Agent, Session: of.batch.Session,
		Workspace: of.batch.Workspace})
	if err != nil {
		panic(err) // the harness's own values
	}
	b.Calls[0].ID = "c0"
	b.Options.Partition, b.Options.OnError = toolyard.Consecutive, toolyard.Continue
	b.Options.MaxConcurrency, b.Options.TimeoutMS = 1, longWait.Milliseconds()
	return &batchSpec{batch: b, of: of, first: 1}
}

// mark is one thing that a call has changed in a workspace: what a workspace is are the changes that it has had.
type mark struct {
	by    toolyard.BatchKey
	index int
	line  int    // of the ledger
	file  string // that it has changed; empty: none that the call names
	// via is the batch that has committed it, where the call ran on an overlay.
	via toolyard.BatchKey
}

// of reports whether a batch has brought the change into the workspace.
func (m mark) of(k toolyard.BatchKey) bool {
	return m.by == k && m.via == toolyard.BatchKey{} || m.via == k
}

// kept is what a workspace was at a time.
type kept struct {
	at time.Time
	is []mark
}

func (k *kept) same(o *kept) bool { return slices.Equal(k.is, o.is) }

// shelf keeps what workspaces were, and what they are. It is a store of snapshots on a disk that all workers see, so it
// outlives them.
type shelf struct {
	mu     sync.Mutex
	now    map[toolyard.Workspace][]mark
	before map[snapshot.Key]*kept
	behind map[snapshot.Key]*kept
	// between are the groups between whose runs others have changed something.
	between  map[snapshot.Key]bool
	restored map[toolyard.BatchKey]*kept
	// underway are the tickets of restores that have begun, and not ended.
	underway map[toolyard.BatchKey]uint64
	undoings []undone

	copies map[copyKey]*copied
	dirs   map[string]copyKey  // the directories that stand for them
	locks  map[string]*holding // of workspaces on disks
	used   []used
	placed []placed
}

// placed is a change that has come into a workspace.
type placed struct {
	mark
	at time.Time
}

// undone is a call that was to set a workspace back.
type undone struct {
	by, of   toolyard.BatchKey
	at       time.Time // when it did so, or would not
	force    bool
	was, is  []mark // what the workspace was before that, and behind it
	restored bool
	refused  string // why it did not
}

func newShelf() *shelf {
	return &shelf{now: map[toolyard.Workspace][]mark{}, before: map[snapshot.Key]*kept{},
		behind: map[snapshot.Key]*kept{}, between: map[snapshot.Key]bool{}, restored: map[toolyard.BatchKey]*kept{},
		underway: map[toolyard.BatchKey]uint64{}, copies: map[copyKey]*copied{}, dirs: map[string]copyKey{},
		locks: map[string]*holding{}}
}

// changes notes that a call has changed a workspace.
func (s *shelf) changes(w toolyard.Workspace, c mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[w] = append(slices.Clone(s.now[w]), c)
	s.placed = append(s.placed, placed{c, time.Now()})
}

// changesCopy notes that a call has changed an overlay.
func (s *shelf) changesCopy(k copyKey, c mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies[k].is = append(slices.Clip(s.copies[k].is), c)
}

// ofParty is the store as one worker uses it: it takes its time, stands still with its worker and dies with it.
type ofParty struct {
	*shelf
	p *party
}

// Looking at a workspace takes lookTime.
const lookTime = 40 * ms

// looks looks at a workspace for a while.
func (s ofParty) looks(ctx context.Context, w toolyard.Workspace, key any, what string) (*kept, error) {
	odd := time.Duration(s.p.w.random(fmt.Sprint(s.p.name, s.p.boot, key, what)).Uint64()%1_000_000 | 1)
	if err := sleep(ctx, lookTime+odd); err != nil {
		return nil, err
	}
	if s.p.awake(); s.p.gone() {
		return nil, errCrash
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &kept{at: time.Now(), is: s.now[w]}, nil
}

// Keep, Dir and Sweep are nothing: a history is shorter than what is kept.
func (s ofParty) Keep(time.Duration) {}

// Dir implements [worker.Snapshots].
func (s ofParty) Dir() string { return "in memory" }

// Sweep implements [worker.Snapshots].
func (s ofParty) Sweep(context.Context) error { return nil }

// Take implements [worker.Snapshots].
func (s ofParty) Take(ctx context.Context, _ *place.Root, k snapshot.Key) (snapshot.Info, error) {
	now, err := s.looks(ctx, k.Workspace, k, "before")
	if err != nil {
		return snapshot.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, then := s.before[k], s.behind[k]; first != nil && (then == nil || then.same(now) || !then.same(first)) {
		s.between[k] = s.between[k] || then != nil && !then.same(now)
		return snapshot.Info{Kept: true}, nil
	}
	s.before[k] = now
	s.p.w.note(s.p.name, "keeps %s before group %d of %s: %d changes", k.Workspace, k.Group, k.Batch, len(now.is))
	return snapshot.Info{Entries: len(now.is)}, nil
}

// After implements [worker.Snapshots].
func (s ofParty) After(ctx context.Context, _ *place.Root, k snapshot.Key, act func() error) error {
	now, err := s.looks(ctx, k.Workspace, k, "behind")
	if err == nil {
		err = act()
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind[k] = now
	s.p.w.note(s.p.name, "notes %s behind group %d of %s: %d changes", k.Workspace, k.Group, k.Batch, len(now.is))
	return nil
}

// Restore implements [snapshot.Restorer].
func (s ofParty) Restore(ctx context.Context, _ *place.Root, w snapshot.Wish) (snapshot.Report, error) {
	now, err := s.looks(ctx, w.Workspace, w.Batch, "now")
	if err != nil {
		return snapshot.Report{}, err
	}
	refused := func(why string) (snapshot.Report, error) {
		return snapshot.Report{}, &tool.Error{Code: toolyard.ExecutionFailed, Message: why}
	}
	s.mu.Lock()
	then, why := s.before[w.Key], ""
	switch begun, cut := s.underway[w.Batch]; {
	case then == nil, w.Force, cut && begun == w.Ticket:
	case cut:
		why = nobodyKnows
	default:
		why = s.changed(&w, now)
	}
	s.mu.Unlock()
	if then == nil {
		return refused(noSnapshot)
	} else if why != "" {
		return refused(why)
	}
	if err := w.Act(); err != nil {
		return snapshot.Report{}, err
	}
	s.mu.Lock()
	s.now[w.Workspace], s.underway[w.Batch] = then.is, w.Ticket
	s.mu.Unlock()
	after, err := s.looks(ctx, w.Workspace, w.Batch, "restored")
	if err == nil {
		err = w.Act()
	}
	if err != nil {
		return snapshot.Report{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored[w.Batch] = after
	delete(s.underway, w.Batch)
	return snapshot.Report{Unchanged: len(then.is)}, nil
}

// Why a workspace is not set back.
const (
	noSnapshot   = "no worker sees a snapshot"
	nobodyKnows  = "nobody knows what a group has changed"
	othersChange = "others have changed the workspace since"
)

// changed is why a workspace is not set back without force; empty: it is. It is what a store on a disk asks.
func (s *shelf) changed(w *snapshot.Wish, now *kept) string {
	since := s.restored[w.Batch]
	groups := w.Groups[max(0, slices.Index(w.Groups, w.Group)):]
	for n, g := range groups {
		k := snapshot.Key{Workspace: w.Workspace, Batch: w.Batch, Group: g}
		then, next := s.behind[k], now
		if s.between[k] {
			return othersChange
		}
		if last := n+1 == len(groups); !last {
			k.Group = groups[n+1]
			next = s.before[k]
		} else if since != nil && (then == nil || since.at.After(then.at)) {
			then = since
		}
		if then == nil || next == nil {
			return nobodyKnows
		}
		if !then.same(next) {
			return othersChange
		}
	}
	return ""
}

// undoTool is the tool that sets workspaces back, with a store in memory. It writes the ledger as others do.
func (p *party) undoTool(k kind, s ofParty) tool.Tool {
	t := snapshot.Tool(s)
	run := t.Run
	t.Declaration.Dependency, t.Declaration.TimeoutMS = k.name, toolTimeout.Milliseconds()
	t.Run = func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output, error) {
		var in toolyard.UndoInput
		if err := json.Unmarshal(raw, &in); err != nil {
			return tool.Output{}, err
		}
		if err := p.w.book.begin(ctx, p, k, &env, raw); err != nil {
			return tool.Output{}, err
		}
		u := undone{by: toolyard.BatchKey{Agent: env.Agent, ID: env.Batch},
			of: toolyard.BatchKey{Agent: env.Agent, ID: in.Batch}, force: in.Force}
		act := env.CommitPoint
		env.CommitPoint = func() error {
			if err := act(); err != nil {
				return errors.Join(err, p.w.book.write(p, ledger.Refused, k.name, &env))
			}
			if !u.at.IsZero() { // it is what is noted behind it
				return nil
			}
			s.mu.Lock()
			u.at, u.was = time.Now(), s.now[env.Workspace]
			s.mu.Unlock()
			return p.w.book.write(p, ledger.Effect, k.name, &env)
		}
		env.Progress = func(tool.Progress) {}
		out, err := run(ctx, env, raw)
		failed, _ := errors.AsType[*tool.Error](err)
		if err == nil || failed != nil && failed.Code == toolyard.ExecutionFailed {
			if u.restored = err == nil; !u.restored {
				u.at, u.refused = time.Now(), failed.Message
			}
			s.mu.Lock()
			u.is = s.now[env.Workspace]
			s.undoings = append(s.undoings, u)
			s.mu.Unlock()
			p.w.note(p.name, "undoes %s: %s", u.of, u.refused)
		}
		return out, errors.Join(err, p.w.book.write(p, ledger.End, k.name, &env))
	}
	return t
}

// checkUndone: a batch that is undone has left nothing, and nothing of others is lost by that, unless somebody says so.
// What can be undone is.
func (w *world) checkUndone(r *report) {
	w.shelf.mu.Lock()
	defer w.shelf.mu.Unlock()
	for _, u := range w.shelf.undoings {
		r.saw(playsUndone, u.restored)
		r.saw(playsNotUndone, u.refused == othersChange)
		if u.restored {
			w.checkRestored(&u)
		} else {
			w.checkRefused(&u)
		}
	}
}

// checkRestored checks a workspace that was set back.
func (w *world) checkRestored(u *undone) {
	for _, c := range u.is {
		if c.of(u.of) || w.madeFor(c, u.of) {
			w.fail("undone", "%s has undone %s, and call %d of %s has left something", u.by, u.of, c.index, c.by)
		}
	}
	for _, c := range u.was {
		if !c.of(u.of) && !slices.Contains(u.is, c) && !u.force {
			w.fail("undone", "%s has undone %s, and what call %d of %s has changed since is lost", u.by, u.of, c.index,
				c.by)
		}
	}
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	for ws, all := range w.shelf.now {
		for _, c := range all {
			if c.of(u.of) && w.book.lines[c.line].Wall > u.at.UnixNano() {
				w.fail("undone", "%s has undone %s at %s, and call %d of it has changed %s since", u.by, u.of,
					stamp(u.at.Sub(w.began)), c.index, ws)
			}
		}
	}
}

// checkRefused checks that a workspace was left as it is for a reason.
func (w *world) checkRefused(u *undone) {
	spec := w.seen[u.by].spec
	acted := slices.ContainsFunc(u.is, func(c mark) bool { return c.of(u.of) || w.madeFor(c, u.of) })
	switch why := u.refused; {
	case strings.Contains(why, "is not over"):
		if spec.of != nil {
			w.fail("undone", "%s was handed in when %s was over, and hears: %s", u.by, u.of, why)
		}
	case strings.Contains(why, "nothing to undo"):
		if acted {
			w.fail("undone", "%s hears that %s has changed nothing, and it has: %s", u.by, u.of, why)
		}
	case strings.Contains(why, "what its calls started"):
		if !slices.ContainsFunc(w.behind, func(s *started) bool { return s.startedBy(u.of) }) {
			w.fail("undone", "%s hears of what %s has started, and it has started nothing: %s", u.by, u.of, why)
		}
	case w.disturbed.Load() || w.ailed(): // nobody knows, or somebody was not to be reached
	case why == othersChange:
		first := slices.IndexFunc(u.is, func(c mark) bool { return c.of(u.of) })
		others := func(c mark) bool { return !c.of(u.of) }
		if first >= 0 && !slices.ContainsFunc(u.is[first:], others) && !w.setBackBetween(u) {
			w.fail("undone", "%s does not undo %s for what others have changed, and nobody has", u.by, u.of)
		}
	default:
		w.fail("undone", "%s does not undo %s: %s", u.by, u.of, why)
	}
}

// madeFor reports whether a change is of a batch that a call of another one has started.
func (w *world) madeFor(c mark, of toolyard.BatchKey) bool {
	return slices.ContainsFunc(w.behind, func(s *started) bool { return s.key == c.by && s.startedBy(of) })
}

// setBackBetween reports whether the undo of another batch has changed the workspace between the first change of the
// batch that u was to undo, and u: that may have taken away all that others had changed.
func (w *world) setBackBetween(u *undone) bool {
	return slices.ContainsFunc(w.shelf.undoings, func(o undone) bool {
		return o.restored && o.of != u.of && o.at.Before(u.at) && !slices.Equal(o.was, o.is) &&
			slices.ContainsFunc(o.was, func(c mark) bool { return c.of(u.of) && slices.Contains(u.is, c) })
	})
}

// TestUndoneInHistories plays histories in which batches are undone while owners and workers are lost.
func TestUndoneInHistories(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	all := played{}
	for _, by := range []attack{lateNote, askedBetween, failedWork, openWork} {
		all.play(t, by, 1)
	}
	all.draw(t, undoneWork, 12, 2, playsUndone, playsNotUndone)
	t.Logf("so many histories have played what: %v", all)
}
