package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// The limits of overlays, beside those of snapshots.
const (
	MaxOverlays       = 32         // of one workspace at a time, that nobody has committed or dropped
	MaxDiffs          = 100        // files that a diff shows
	MaxOverlayBytes   = 256 << 10  // of a diff
	maxComparedBytes  = 1 << 20    // of a file that is compared line by line
	maxCommittedNames = MaxEntries // that one commit changes
)

// settled is the kind of the file that says what has become of an overlay.
const settled = ".settled"

// gone is the kind of an entry that is to be removed.
const gone = "x"

// edit is one name that is not in an overlay as it was in the workspace.
type edit struct {
	// was and is are the two entries; nil: there was, or is, none. was has the content of files.
	was, is *entry
}

func (c *edit) path() string {
	if c.is != nil {
		return string(c.is.Path)
	}
	return string(c.was.Path)
}

func (c *edit) what() toolyard.OverlayChange {
	switch {
	case c.was == nil:
		return toolyard.OverlayAdded
	case c.is == nil:
		return toolyard.OverlayRemoved
	}
	return toolyard.OverlayChanged
}

// changed reports whether two entries differ by more than their times. Directories change by what is in them. Nothing
// is known of the content of files whose inodes or times differ: sum tells it.
func (e *entry) changed(is *entry, sum func() (string, error)) (bool, error) {
	if e.Kind != is.Kind || e.Mode != is.Mode || e.UID != is.UID || e.GID != is.GID || e.Size != is.Size ||
		!bytes.Equal(e.Target, is.Target) {
		return true, nil
	}
	if e.Kind != aFile || e.known(is) && e.Changed == is.Changed && e.Touched == is.Touched {
		return false, nil
	}
	now, err := sum()
	return now != e.Sum, err
}

// changesOf compares a copy with what it was when it was made. was is the workspace with the content of files, in the
// order of its names. sum is the content of a file of the copy.
func changesOf(was, made, is []entry, sum func(*entry) (string, error)) (all []edit, err error) {
	atFirst := make(map[string]*entry, len(made))
	for i := range made {
		atFirst[string(made[i].Path)] = &made[i]
	}
	sums := make(map[string]*entry, len(was))
	for i := range was {
		sums[string(was[i].Path)] = &was[i]
	}
	for i := range is {
		now, p := &is[i], string(is[i].Path)
		if now.Kind == aSocket || now.Kind == aDevice {
			continue // they are of who made them
		}
		first := atFirst[p]
		delete(atFirst, p)
		if first == nil {
			all = append(all, edit{is: now})
			continue
		}
		origin := sums[p]
		if origin == nil {
			return nil, fmt.Errorf("the listings of an overlay do not fit each other at %q", p)
		}
		first.Sum = origin.Sum
		differs, err := first.changed(now, func() (string, error) { return sum(now) })
		if err != nil {
			return nil, err
		}
		if differs {
			all = append(all, edit{was: origin, is: now})
		}
	}
	for p := range atFirst {
		if sums[p] == nil {
			return nil, fmt.Errorf("the listings of an overlay do not fit each other at %q", p)
		}
		all = append(all, edit{was: sums[p]})
	}
	slices.SortFunc(all, func(a, b edit) int { return strings.Compare(a.path(), b.path()) })
	return all, nil
}

// summary says how many names were changed, and the first of them.
func summary(all []edit) *toolyard.Overlay {
	o := &toolyard.Overlay{}
	for i := range all {
		switch all[i].what() {
		case toolyard.OverlayAdded:
			o.Added++
		case toolyard.OverlayRemoved:
			o.Removed++
		default:
			o.Changed++
		}
		if len(o.Paths) < toolyard.MaxOverlayPaths {
			p := strings.ToValidUTF8(all[i].path(), "\ufffd")
			if p == atTheTop {
				p = "."
			}
			o.Paths = append(o.Paths, toolyard.OverlayPath{Path: p, Change: all[i].what()})
		}
	}
	return o
}

// conflicts are the names that others have changed in a workspace since an overlay was made, as far as a commit changes
// them too. now is the workspace. sum is the content of a file of the workspace. partly says that a commit was broken
// off.
func conflicts(all []edit, now []entry, partly bool, sum func(*entry) (string, error)) (paths []string, err error) {
	there := make(map[string]*entry, len(now))
	for i := range now {
		there[string(now[i].Path)] = &now[i]
	}
	planned := make(map[string]*edit, len(all))
	for i := range all {
		planned[all[i].path()] = &all[i]
	}
	for i := range all {
		c := &all[i]
		have := there[c.path()]
		if have == nil && (c.was == nil || c.is == nil || partly && c.was.Kind != c.is.Kind) { // which goes first
			if p := parent(c.path()); c.is == nil || planned[p] != nil || isDirEntry(there[p]) {
				continue
			}
		} else if have != nil {
			free, err := c.standing(have, partly, sum)
			if err == nil && !free {
				free, err = c.reached(have, partly, sum)
			}
			if err != nil {
				return nil, err
			}
			if free {
				continue
			}
		}
		paths = append(paths, c.path())
	}
	for i := range now { // what others have put into a directory that goes
		p := string(now[i].Path)
		if planned[p] != nil || p == atTheTop {
			continue
		}
		if c := planned[parent(p)]; c != nil && (c.is == nil || c.is.Kind != aDir) {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// standing reports whether a name of the workspace is as it was when the overlay was made. partly says that a commit
// may have removed another name of the file: that touches the inode.
func (c *edit) standing(have *entry, partly bool, sum func(*entry) (string, error)) (bool, error) {
	if c.was == nil {
		return false, nil
	}
	was := *c.was
	if partly {
		was.Touched = have.Touched
	}
	if !was.alike(have) || was.known(have) {
		return was.alike(have), nil
	}
	now, err := sum(have)
	return now == was.Sum, err
}

// reached reports whether a name of the workspace is already as the commit makes it. A commit that was broken off may
// have left another mode or owner: a directory gets its own last.
func (c *edit) reached(have *entry, partly bool, sum func(*entry) (string, error)) (bool, error) {
	if c.is == nil || c.is.Kind != have.Kind {
		return false, nil
	}
	ours := have.owned(c.is) || c.was == nil || have.owned(c.was) // the copy is the worker's, whoever has the workspace
	if !partly && (have.Mode != c.is.Mode || !ours) {
		return false, nil
	}
	switch have.Kind {
	case aFile:
		if have.Size != c.is.Size {
			return false, nil
		}
		now, err := sum(have)
		return now == c.is.Sum, err
	case aLink:
		return bytes.Equal(have.Target, c.is.Target), nil
	}
	return true, nil
}

// owned reports whether two entries have the same owner.
func (e *entry) owned(o *entry) bool { return e.UID == o.UID && e.GID == o.GID }

func isDirEntry(e *entry) bool { return e != nil && e.Kind == aDir }

// parent is the directory of a path of a listing.
func parent(p string) string {
	if at := strings.LastIndexByte(p, '/'); at >= 0 {
		return p[:at]
	}
	return atTheTop
}

// Ran is an exclusive group that has run on an overlay, and the worker that has claimed its call last; empty: nobody
// says which.
type Ran struct {
	Group  int
	Worker string
}

// RanOn are the groups that an event says have run on an overlay. Dispatchers of older versions do not name workers.
func RanOn(o *events.Overlay) (ran []Ran) {
	if o == nil {
		return nil
	}
	for i, g := range o.Ran {
		r := Ran{Group: g}
		if i < len(o.By) {
			r.Worker = o.By[i]
		}
		ran = append(ran, r)
	}
	return ran
}

// Commit says which overlay is committed, and how.
type Commit struct {
	Key
	// Ran are the exclusive groups of the batch that may have changed its overlay.
	Ran []Ran
	// Force commits although others have changed the same names since.
	Force bool
	// Hidden reports which paths a refusal must not name. Nil: none.
	Hidden func(path string) bool
	// Recover undoes in the overlay what a killed worker has left. Nil: there is nothing.
	Recover Recover
	// Act says before each change whether it may still be made. Nil: it may.
	Act func() error
	// Progress gets the share that is done, 0 to 1. Nil: nobody listens.
	Progress func(float64)
	// Kept gets, behind a commit, how many directories of other users kept their mode. Nil: nobody listens.
	Kept func(modes int)
}

const overlaySchema = `{"type":"object","additionalProperties":false,"required":["batch","action"],"properties":{
	"batch":{"type":"string","minLength":1,"description":"The batch that ran on an overlay of the workspace."},
	"action":{"type":"string","enum":["diff","commit","drop"],
		"description":"Say what the overlay changes, make its changes in the workspace, or remove it."},
	"force":{"type":"boolean",
		"description":"Commit although others have changed the same names since: that is lost."}}}`

// Differ compares two contents of a file and returns a unified diff, or a note why there is none. Nil is the content of
// a file that is not there.
type Differ func(name string, before, after []byte) (diff, note string)

// Recover undoes in a directory in which commands run what a killed worker has left. What it cannot undo moves the
// directory to quarantine.
type Recover func(ctx context.Context, root *place.Root) error

// Overlays shows, commits and drops overlays: a [Store]. The root of a workspace for which the worker has no directory
// is nil.
type Overlays interface {
	Diff(ctx context.Context, root *place.Root, w Commit, differ Differ) (o *toolyard.Overlay, text string, err error)
	Commit(ctx context.Context, root *place.Root, w Commit) (*toolyard.Overlay, error)
	Drop(ctx context.Context, root *place.Root, w Commit) error
}

// OverlayTool makes the tool that shows, commits and drops the overlays of a store.
func OverlayTool(s Overlays, diff Differ, mend Recover) tool.Tool {
	idempotent := true // a commit that was broken off is run again
	return tool.Tool{
		Declaration: tool.Declaration{
			Name: toolyard.OverlayTool,
			Description: "Says what the overlay of a batch changes, makes its changes in the workspace, or removes it. " +
				"What is removed is lost.",
			InputSchema: json.RawMessage(overlaySchema),
			Class:       tool.ClassRule{Static: toolyard.WriteExclusive, Ask: true},
			Idempotent:  &idempotent,
			TimeoutMS:   undoTime.Milliseconds(),
		},
		Judge: func(raw json.RawMessage) (tool.Judgement, error) {
			var in toolyard.OverlayInput
			if err := json.Unmarshal(raw, &in); err != nil {
				return tool.Judgement{}, tool.Invalid("the input does not fit: %v", err)
			}
			if in.Action == toolyard.OverlayDiff {
				return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true,
					Why: "a diff changes nothing"}, nil
			}
			return tool.Judgement{Class: toolyard.WriteExclusive, Destructive: true, Idempotent: true,
				Why: "it changes the workspace, or loses what a batch has done"}, nil
		},
		Run: func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output, error) {
			var in toolyard.OverlayInput
			if err := json.Unmarshal(raw, &in); err != nil {
				return tool.Output{}, tool.Invalid("the input does not fit: %v", err)
			}
			return useOverlay(ctx, s, env, in, diff, mend)
		},
	}
}

func useOverlay(ctx context.Context, s Overlays, env tool.Env, in toolyard.OverlayInput, diff Differ,
	mend Recover) (tool.Output, error) {
	said, ok := ctx.Value(undoKey{}).(*events.Undo)
	switch {
	case !ok || said == nil:
		return tool.Output{}, notNow("nobody said what is known of batch %q; a batch that acts on an overlay has the "+
			"option undo", in.Batch)
	case said.Batch != in.Batch:
		return tool.Output{}, notNow("the input was changed since it was handed in; hand it in again")
	case said.Problem != "":
		return tool.Output{}, notNow("%s", said.Problem)
	}
	root, _ := env.Root.(*place.Root)
	c := Commit{Key: Key{Workspace: env.Workspace, Batch: toolyard.BatchKey{Agent: env.Agent, ID: in.Batch}},
		Ran: RanOn(said.Overlay), Force: in.Force, Hidden: env.Hidden, Recover: mend, Act: env.CommitPoint,
		Progress: func(share float64) { env.Progress(tool.Progress{Fraction: share}) }}
	var o *toolyard.Overlay
	var text string
	var err error
	switch in.Action {
	case toolyard.OverlayDiff:
		o, text, err = s.Diff(ctx, root, c, diff)
	case toolyard.OverlayCommit:
		kept := 0
		c.Kept = func(modes int) { kept = modes }
		if o, err = s.Commit(ctx, root, c); err == nil {
			text = fmt.Sprintf("The changes of batch %s are in the workspace: %s.", in.Batch, o)
		}
		if kept > 0 {
			text += fmt.Sprintf(" %d directories of other users kept their mode.", kept)
		}
	case toolyard.OverlayDrop:
		if err = s.Drop(ctx, root, c); err == nil {
			o = &toolyard.Overlay{}
			text = fmt.Sprintf("The overlay of batch %s is gone, with all that it changed.", in.Batch)
		}
	default:
		return tool.Output{}, tool.Invalid("action is %q; use one of %q", in.Action, toolyard.OverlayActions)
	}
	if err != nil {
		return tool.Output{}, err
	}
	out, err := json.Marshal(o)
	return tool.Output{Text: text, Structured: out}, err
}
