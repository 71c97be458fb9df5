package pipeline

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// SnapshotBefore reports whether the workspace is to be kept as it is before a call runs: its batch wants that, and the
// call holds the workspace and may change it.
func SnapshotBefore(wanted, ticket bool, c toolyard.Class) bool { return wanted && ticket && !c.Safe() }

// NotHeld is what a model reads about a call that [HeldByOverlay] refuses.
const NotHeld = "the batch runs on an overlay of the workspace, and this call could change more than the workspace's " +
	"files"

// HeldByOverlay reports whether a call on an overlay can change nothing but the overlay: it only reads, edits files
// through checked paths, or runs in a sandbox, which shows it no other workspace and calls no tools. unsandboxed says
// that the worker runs commands without one.
func HeldByOverlay(d *tool.Declaration, j tool.Judgement, unsandboxed bool) bool {
	return j.ReadOnly || d.EditsWorkspace ||
		d.Execution == tool.InSandbox && !unsandboxed && d.Name != toolyard.RunCodeTool
}
