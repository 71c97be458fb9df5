package toolyard

import "fmt"

// OverlayTool is the tool that shows, commits or drops the overlay of a batch. Models are not offered it: only a batch
// with the option undo sees it. See docs/overlay.md.
const OverlayTool = "overlay_workspace"

// OverlayInput is the input of [OverlayTool].
type OverlayInput struct {
	// Batch is a batch of the same agent that was handed in with the option overlay, and is over.
	Batch  BatchID       `json:"batch"`
	Action OverlayAction `json:"action"`
	// Force commits although others have changed the same names since, whose changes are lost.
	Force bool `json:"force,omitempty"`
}

// OverlayAction is what is done with an overlay.
type OverlayAction string

// The actions.
const (
	OverlayDiff   OverlayAction = "diff"   // say what it changes
	OverlayCommit OverlayAction = "commit" // make its changes in the workspace
	OverlayDrop   OverlayAction = "drop"   // remove it
)

// OverlayActions are all of them.
var OverlayActions = []OverlayAction{OverlayDiff, OverlayCommit, OverlayDrop}

// ForPeople reports whether a tool is one that people use through a batch with the option undo. No other batch sees it.
func ForPeople(tool string) bool { return tool == UndoTool || tool == OverlayTool }

// MaxOverlayPaths is how many names an [Overlay] lists.
const MaxOverlayPaths = 50

// Overlay says how the overlay of a batch differs from the workspace as it was when the batch began. It counts the
// changes of all calls so far.
type Overlay struct {
	Added   int `json:"added"`
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	// Paths are the first of the names, in their order: at most [MaxOverlayPaths].
	Paths []OverlayPath `json:"paths,omitempty"`
	// Problem says why the changes are not known. Empty: they are.
	Problem string `json:"problem,omitempty"`
}

// String is the overlay for a person.
func (o *Overlay) String() string {
	switch {
	case o == nil:
		return "none"
	case o.Problem != "":
		return o.Problem
	}
	return fmt.Sprintf("%d added, %d changed, %d removed", o.Added, o.Changed, o.Removed)
}

// OverlayPath is a name of the workspace that an overlay changes.
type OverlayPath struct {
	Path   string        `json:"path"`
	Change OverlayChange `json:"change"`
}

// OverlayChange is what becomes of a name.
type OverlayChange string

// The changes.
const (
	OverlayAdded   OverlayChange = "added"
	OverlayChanged OverlayChange = "changed"
	OverlayRemoved OverlayChange = "removed"
)
