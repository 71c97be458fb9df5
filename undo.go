package toolyard

// UndoTool is the tool that sets a workspace back to what it was before a batch. Models are not offered it: only a
// batch with the option undo sees it. See docs/undo.md.
const UndoTool = "undo_workspace"

// UndoInput is the input of [UndoTool].
type UndoInput struct {
	// Batch is a batch of the same agent that was handed in with the option snapshot, and is over.
	Batch BatchID `json:"batch"`
	// Group is the group that the workspace is set back to before; nil: the first that could change it.
	Group *int `json:"group,omitempty"`
	// Force sets it back although others have changed it since, whose changes are lost.
	Force bool `json:"force,omitempty"`
}
