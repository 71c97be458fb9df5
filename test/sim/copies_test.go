package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/tool"
)

// patchTool is the one exclusive tool that an overlay holds.
const patchTool = "patch"

// layable are the tools of batches that are drawn to run on an overlay, each with what it becomes: the same, or what an
// overlay holds.
var layable = map[string]string{"read": "read", "look": "look", "pop": "pop", "view": "view", "ask_read": "ask_read",
	"write": patchTool, "put": patchTool, "shell": patchTool, "send": "send", "edit": "edit"}

// overlay has some batches run on an overlay, and people commit or drop some of these: mostly when the batches are
// over, some while they run, and now and then two people at once.
func (d draws) overlay(sc *scenario) {
	if !d.one(6) {
		return
	}
	sc.overlays = true
	for i := range sc.agents {
		a := &sc.agents[i]
		for _, b := range slices.Clone(a.batches) {
			if o := b.batch.Options; o.Snapshot || o.Undo || o.BackgroundAfterMS > 0 || !d.lay(b) {
				continue
			}
			if d.one(3) { // it changes the same files in the workspace
				b.batch.Options.Overlay = false
				continue
			}
			a.batches = append(a.batches, d.uses(b)...)
			if len(a.batches) > mostBatches {
				return
			}
		}
	}
}

// mostBatches is from how many batches of an agent on none is added that uses an overlay.
const mostBatches = 6

// lay has a batch run on an overlay, if all of its calls can be on one or refused there.
func (d draws) lay(b *batchSpec) bool {
	for _, c := range b.batch.Calls {
		if layable[c.Tool] == "" {
			return false
		}
	}
	b.batch.Options.Overlay = true
	for i := range b.batch.Calls {
		c := &b.batch.Calls[i]
		if now := layable[c.Tool]; now != c.Tool && !d.one(5) {
			c.Tool = now
			c.Input = onFile(c.Input, pick(d, []string{"a", "b", "c"}))
		}
	}
	return true
}

// uses are the batches that use the overlay of another one.
func (d draws) uses(b *batchSpec) (out []*batchSpec) {
	actions := pick(d, [][]toolyard.OverlayAction{
		{toolyard.OverlayCommit}, {toolyard.OverlayCommit}, {toolyard.OverlayDrop}, {},
		{toolyard.OverlayCommit, toolyard.OverlayCommit}, {toolyard.OverlayCommit, toolyard.OverlayDrop},
	})
	at, early := d.between(ms, 2*time.Second), d.one(5)
	for n, action := range actions {
		u := using(b, n, client.OverlayUse{Action: action, Final: true,
			Force: action == toolyard.OverlayCommit && d.one(4)})
		if u.submit = at; d.one(2) {
			u.submit += d.between(0, 500*ms)
		}
		if early {
			u.submit, u.of = b.submit+u.submit, nil
		}
		out = append(out, u)
	}
	return out
}

// using is a batch that uses the overlay of another one, and is handed in when that is over.
func using(of *batchSpec, n int, how client.OverlayUse) *batchSpec {
	how.ID = toolyard.BatchID(fmt.Sprintf("%s%d-%s", how.Action, n+1, of.batch.ID))
	b, err := how.Batch(toolyard.BatchView{ID: of.batch.ID, Agent: of.batch.Agent, Session: of.batch.Session,
		Workspace: of.batch.Workspace})
	if err != nil {
		panic(err) // the harness's own values
	}
	b.Calls[0].ID = "c0"
	b.Options.Partition, b.Options.OnError = toolyard.Consecutive, toolyard.Continue
	b.Options.MaxConcurrency, b.Options.TimeoutMS = 1, longWait.Milliseconds()
	return &batchSpec{batch: b, of: of, first: 1, uses: of, action: how.Action}
}

// disk is what workers share that see the same overlays.
type disk string

// copyKey names an overlay.
type copyKey struct {
	disk  disk
	batch toolyard.BatchKey
}

// copied is the overlay of a batch: a copy of its workspace.
type copied struct {
	base, is []mark // the workspace when the copy was made, and the copy now
	ran      map[snapshot.Ran]bool
	// plan is what is being committed, begun from before the first change on.
	plan  []mark
	begun bool
	as    string // what has become of it; empty: it stands
}

func (c *copied) changes() []mark { return c.is[len(c.base):] }

// summary is what the copy says of itself.
func (c *copied) summary() *toolyard.Overlay {
	files := map[string]bool{}
	for _, m := range c.changes() {
		files[m.file] = true
	}
	return &toolyard.Overlay{Changed: len(files)}
}

// What becomes of an overlay.
const (
	wasCommitted = "committed"
	wasDropped   = "dropped"
)

// used is one run of a call that was to commit or drop an overlay.
type used struct {
	by, of  toolyard.BatchKey
	disk    disk
	refused string         // why nothing was done
	ran     []snapshot.Ran // what it was told of the groups that have run
	// resumed says that it went on with what another run had begun.
	resumed bool
}

type usedKey struct{}

// copiesDir has a directory for each overlay, with nothing in it: a call knows by it where it runs.
var copiesDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "toolyard-sim-") })

// removeCopies removes that when all is over.
func removeCopies() error {
	dir, err := copiesDir()
	return errors.Join(err, os.RemoveAll(dir))
}

// disk is the one that the worker sees.
func (s ofParty) disk() disk {
	if s.p.w.sc.apart {
		name, _, _ := strings.Cut(s.p.name, ".")
		return disk(name)
	}
	return "shared"
}

func (s ofParty) key(of toolyard.BatchKey) copyKey { return copyKey{s.disk(), of} }

// copyOf is the overlay that a run of a tool has as its workspace, if it has one.
func (p *party) copyOf(env *tool.Env) (copyKey, bool) {
	root, ok := env.Root.(*place.Root)
	if !ok || root == nil {
		return copyKey{}, false
	}
	s := p.w.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.dirs[root.Dir()]
	return k, ok
}

// holding is a lock that a party has. It lets go of it when it dies.
type holding struct{ p *party }

// Waiting for the lock takes lockPause at a time, and one change of a commit changeTime.
const lockPause, changeTime = 50 * ms, 60 * ms

// enter waits for the lock that a store has for each workspace. A worker that stands still keeps it.
func (s ofParty) enter(ctx context.Context, w toolyard.Workspace, key any) (leave func(), err error) {
	at, mine := fmt.Sprint(s.disk(), " ", w), &holding{s.p}
	for end := time.Now().Add(snapshot.LockWait); ; {
		if s.p.awake(); s.p.gone() {
			return nil, errCrash
		}
		s.mu.Lock()
		if other := s.locks[at]; other == nil || other.p.gone() {
			s.locks[at] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.locks[at] == mine {
					delete(s.locks, at)
				}
			}, nil
		}
		s.mu.Unlock()
		if time.Now().After(end) {
			return nil, notKept(errors.New("another worker is at it"))
		}
		if err := s.moment(ctx, lockPause, key); err != nil {
			return nil, notKept(err)
		}
	}
}

// notKept is why nothing can be kept now, as a store on a disk says it.
func notKept(err error) error {
	if _, said := errors.AsType[*tool.Error](err); said || errors.Is(err, errCrash) {
		return err
	}
	return &tool.Error{Code: toolyard.DependencyUnavailable, Message: "the store of snapshots failed", Err: err}
}

// moment takes about so long: each time another time, to the nanosecond.
func (s ofParty) moment(ctx context.Context, d time.Duration, key any) error {
	drawn := s.p.w.random(fmt.Sprint(s.p.name, s.p.boot, key, time.Now().UnixNano())).Uint64()
	odd := time.Duration(drawn%1_000_000 | 1)
	if err := sleep(ctx, d+odd); err != nil {
		return err
	}
	if s.p.awake(); s.p.gone() {
		return errCrash
	}
	return nil
}

// Overlay implements [worker.Snapshots].
func (s ofParty) Overlay(ctx context.Context, _ *place.Root, k snapshot.Key, by string, ran []snapshot.Ran) (
	*place.Root, error) {
	leave, err := s.enter(ctx, k.Workspace, k)
	if err != nil {
		return nil, err
	}
	defer leave()
	s.mu.Lock()
	c := s.copies[s.key(k.Batch)]
	s.mu.Unlock()
	if c != nil && c.as != "" {
		return nil, tool.SetupRequired("the overlay of the batch is %s", c.as)
	}
	if !c.saw(ran) {
		return nil, tool.SetupRequired("an earlier call ran on an overlay that this worker does not see")
	}
	if c == nil {
		now, err := s.looks(ctx, k.Workspace, k, "copied")
		if err != nil {
			return nil, notKept(err)
		}
		c = &copied{base: now.is, is: slices.Clip(now.is), ran: map[snapshot.Ran]bool{}}
		s.p.w.note(s.p.name, "copies %s for %s: %d changes", k.Workspace, k.Batch, len(now.is))
	}
	dir, err := copiesDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, string(s.disk()), fmt.Sprintf("%s.%s", k.Batch.Agent, k.Batch.ID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := place.Hold(dir, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies[s.key(k.Batch)], s.dirs[root.Dir()] = c, s.key(k.Batch)
	if by != "" {
		c.ran[snapshot.Ran{Group: k.Group, Worker: by}], c.ran[snapshot.Ran{Group: k.Group}] = true, true
	}
	return root, nil
}

// saw reports whether groups have run on the overlay.
func (c *copied) saw(groups []snapshot.Ran) bool {
	return !slices.ContainsFunc(groups, func(g snapshot.Ran) bool { return c == nil || !c.ran[g] })
}

// Standing implements [worker.Snapshots].
func (s ofParty) Standing(ctx context.Context, root *place.Root, k snapshot.Key, ran []snapshot.Ran) (*place.Root,
	error) {
	s.mu.Lock()
	c := s.copies[s.key(k.Batch)]
	s.mu.Unlock()
	if c == nil && len(ran) == 0 {
		return nil, nil //nolint:nilnil // none was made
	}
	return s.Overlay(ctx, root, k, "", ran)
}

// Changes implements [worker.Snapshots].
func (s ofParty) Changes(ctx context.Context, _ *place.Root, k snapshot.Key) (*toolyard.Overlay, error) {
	leave, err := s.enter(ctx, k.Workspace, k)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.moment(ctx, lookTime, k); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.copies[s.key(k.Batch)]
	if c == nil || c.as != "" {
		return nil, errors.New("there is no overlay")
	}
	return c.summary(), nil
}

// Diff implements [snapshot.Overlays]. Nobody asks for one: it only reads.
func (s ofParty) Diff(context.Context, *place.Root, snapshot.Commit, snapshot.Differ) (*toolyard.Overlay, string,
	error) {
	return nil, "", errors.New("nobody asks for a diff")
}

// Why an overlay is left as it is, as a store on a disk says it.
const (
	noCopy       = "this worker sees no overlay"
	isSettled    = "the overlay is %s already"
	partlyIn     = "the overlay is committed in part"
	othersPatch  = "the overlay was not committed: others have changed the same names"
	isNotOver    = "is not over"
	isNoBatch    = "the agent has no batch"
	nobodyKnown  = "cannot be read now"
	changesParts = "in part only"
)

func leftAlone(format string, args ...any) error {
	return &tool.Error{Code: toolyard.ExecutionFailed, Message: fmt.Sprintf(format, args...)}
}

// Commit implements [snapshot.Overlays]. What it is about to do is stored before its first change, so that another run
// goes on with it.
func (s ofParty) Commit(ctx context.Context, _ *place.Root, w snapshot.Commit) (*toolyard.Overlay, error) {
	u := ctx.Value(usedKey{}).(*used)
	u.ran = w.Ran
	leave, err := s.enter(ctx, w.Workspace, u.by)
	if err != nil {
		return nil, err
	}
	defer leave()
	s.mu.Lock()
	c := s.copies[s.key(w.Batch)]
	s.mu.Unlock()
	switch {
	case c != nil && c.as == wasCommitted:
		return c.summary(), nil
	case c != nil && c.as != "":
		return nil, leftAlone(isSettled, c.as)
	case c == nil, !c.saw(w.Ran):
		return nil, leftAlone(noCopy)
	}
	now, err := s.looks(ctx, w.Workspace, w.Batch, fmt.Sprint("commit ", u.by, time.Now().UnixNano()))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if !c.begun {
		c.plan = slices.Clone(c.changes())
	}
	free := w.Force || !c.disturbed(now.is)
	if free {
		u.resumed, c.begun = c.begun, true
	}
	s.mu.Unlock()
	if !free {
		return nil, leftAlone(othersPatch)
	}
	for _, m := range c.plan {
		if err := w.Act(); err != nil {
			return nil, fmt.Errorf("the overlay is committed %s: %w", changesParts, err)
		}
		s.puts(w.Workspace, m, u.by)
		if err := s.moment(ctx, changeTime, u.by); err != nil {
			return nil, fmt.Errorf("the overlay is committed %s: %w", changesParts, err)
		}
	}
	if err := s.moment(ctx, lookTime, u.by); err != nil { // until all is on the disk
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.as = wasCommitted
	return c.summary(), nil
}

// puts makes one change of an overlay in its workspace, unless that was done.
func (s *shelf) puts(w toolyard.Workspace, m mark, by toolyard.BatchKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.now[w], m.is) {
		m.via = by
		s.now[w] = append(slices.Clone(s.now[w]), m)
		s.placed = append(s.placed, placed{m, time.Now()})
	}
}

// is reports whether two marks are of the same change.
func (m mark) is(o mark) bool { return m.line == o.line }

// disturbed reports whether others have changed a name in the workspace since it was copied that a commit changes.
func (c *copied) disturbed(now []mark) bool {
	others := slices.DeleteFunc(slices.Concat(now, c.base), func(m mark) bool {
		return slices.ContainsFunc(now, m.is) && slices.ContainsFunc(c.base, m.is) ||
			slices.ContainsFunc(c.plan, m.is)
	})
	return slices.ContainsFunc(others, func(m mark) bool {
		return slices.ContainsFunc(c.plan, func(o mark) bool { return o.file == m.file })
	})
}

// Drop implements [snapshot.Overlays].
func (s ofParty) Drop(ctx context.Context, _ *place.Root, w snapshot.Commit) error {
	u := ctx.Value(usedKey{}).(*used)
	u.ran = w.Ran
	leave, err := s.enter(ctx, w.Workspace, u.by)
	if err != nil {
		return err
	}
	defer leave()
	s.mu.Lock()
	c := s.copies[s.key(w.Batch)]
	s.mu.Unlock()
	switch {
	case c != nil && c.as == wasDropped:
		return nil
	case c != nil && c.as != "":
		return leftAlone(isSettled, c.as)
	case c != nil && c.begun:
		return leftAlone(partlyIn)
	case c == nil, !c.saw(w.Ran):
		return leftAlone(noCopy)
	}
	if err := w.Act(); err != nil {
		return err
	}
	if err := s.moment(ctx, 10*ms, u.by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.as = wasDropped
	return nil
}

// overlayTool is the tool that commits and drops overlays, with a store in memory. It writes the ledger as others do.
func (p *party) overlayTool(k kind, s ofParty) tool.Tool {
	t := snapshot.OverlayTool(s, nil, nil)
	run := t.Run
	t.Declaration.Dependency, t.Declaration.TimeoutMS = k.name, toolTimeout.Milliseconds()
	t.Run = func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output, error) {
		var in toolyard.OverlayInput
		if err := json.Unmarshal(raw, &in); err != nil {
			return tool.Output{}, err
		}
		if err := p.w.book.begin(ctx, p, k, &env, raw); err != nil {
			return tool.Output{}, err
		}
		u := &used{by: toolyard.BatchKey{Agent: env.Agent, ID: env.Batch},
			of: toolyard.BatchKey{Agent: env.Agent, ID: in.Batch}, disk: s.disk()}
		acted, act := false, env.CommitPoint
		env.CommitPoint = func() error {
			if err := act(); err != nil {
				return errors.Join(err, p.w.book.write(p, ledger.Refused, k.name, &env))
			}
			if acted {
				return nil
			}
			acted = true
			return p.w.book.write(p, ledger.Effect, k.name, &env)
		}
		env.Progress = func(tool.Progress) {}
		out, err := run(context.WithValue(ctx, usedKey{}, u), env, raw)
		if failed, _ := errors.AsType[*tool.Error](err); failed != nil && failed.Code == toolyard.ExecutionFailed {
			u.refused = failed.Message
		}
		s.mu.Lock()
		s.used = append(s.used, *u)
		s.mu.Unlock()
		p.w.note(p.name, "%s the overlay of %s: %v", in.Action, u.of, err)
		if err == nil && !acted { // there was nothing to do
			err = p.w.book.write(p, ledger.Effect, k.name, &env)
		}
		return out, errors.Join(err, p.w.book.write(p, ledger.End, k.name, &env))
	}
	return t
}
