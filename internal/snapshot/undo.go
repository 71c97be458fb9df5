package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// undoTime bounds one restore. What is left then is done when it is run again.
const undoTime = 10 * time.Minute

type undoKey struct{}

// WithUndo tells a call of the undo tool what its dispatcher knows of the batch.
func WithUndo(ctx context.Context, u *events.Undo) context.Context {
	return context.WithValue(ctx, undoKey{}, u)
}

const undoSchema = `{"type":"object","additionalProperties":false,"required":["batch"],"properties":{
	"batch":{"type":"string","minLength":1,"description":"The batch before which the workspace is set back."},
	"group":{"type":"integer","minimum":0,
		"description":"The group of the batch before which it is set back. Default: the first that could change it."},
	"force":{"type":"boolean","description":"Set it back although others have changed it since: that is lost."}}}`

// Restorer sets workspaces back: a [Store]. The root of a workspace for which the worker has no directory is nil.
type Restorer interface {
	Restore(ctx context.Context, root *place.Root, w Wish) (Report, error)
}

// Tool makes the tool that sets workspaces back with a store.
func Tool(s Restorer) tool.Tool {
	idempotent := true // a restore that was broken off is run again
	return tool.Tool{
		Declaration: tool.Declaration{
			Name: toolyard.UndoTool,
			Description: "Sets the workspace back to what it was before a batch, or before a group of it. What was " +
				"changed since is lost.",
			InputSchema: json.RawMessage(undoSchema),
			Class:       tool.ClassRule{Static: toolyard.WriteExclusive},
			Idempotent:  &idempotent,
			TimeoutMS:   undoTime.Milliseconds(),
		},
		Run: func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output, error) {
			var in toolyard.UndoInput
			if err := json.Unmarshal(raw, &in); err != nil {
				return tool.Output{}, tool.Invalid("the input does not fit: %v", err)
			}
			return undo(ctx, s, env, in)
		},
	}
}

// Undone is the structured output of the undo tool.
type Undone struct {
	Batch     toolyard.BatchID `json:"batch"`
	Group     int              `json:"group"`
	Written   int              `json:"written"`
	Removed   int              `json:"removed"`
	Unchanged int              `json:"unchanged"`
	Bytes     int64            `json:"bytes"`
	// Left is how many sockets and devices are gone for good. Owners is how many names have another owner now, and
	// Modes how many directories of other users have another mode.
	Left   int `json:"left,omitempty"`
	Owners int `json:"owners,omitempty"`
	Modes  int `json:"modes,omitempty"`
}

func undo(ctx context.Context, s Restorer, env tool.Env, in toolyard.UndoInput) (tool.Output, error) {
	said, ok := ctx.Value(undoKey{}).(*events.Undo)
	if !ok || said == nil {
		return tool.Output{}, notNow("nobody said what is known of batch %q; a batch that undoes another has the "+
			"option undo", in.Batch)
	}
	if said.Batch != in.Batch || in.Group != nil && said.Problem == "" && said.Group != *in.Group {
		return tool.Output{}, notNow("the input was changed since it was handed in; undo in another batch")
	}
	if said.Problem != "" {
		return tool.Output{}, notNow("%s", said.Problem)
	}
	root, _ := env.Root.(*place.Root)
	w := Wish{
		Key: Key{Workspace: env.Workspace, Batch: toolyard.BatchKey{Agent: env.Agent, ID: in.Batch},
			Group: said.Group},
		Groups: said.Groups, Force: in.Force, Ticket: env.FencingToken, Later: said.Later, Hidden: env.Hidden,
		Act:      env.CommitPoint,
		Progress: func(share float64) { env.Progress(tool.Progress{Fraction: share}) },
	}
	r, err := s.Restore(ctx, root, w)
	if err != nil {
		return tool.Output{}, err
	}
	out, err := json.Marshal(Undone{Batch: in.Batch, Group: w.Group, Written: r.Written, Removed: r.Removed,
		Unchanged: r.Unchanged, Bytes: r.Bytes, Left: len(r.Left), Owners: r.Owners, Modes: r.Modes})
	if err != nil {
		return tool.Output{}, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The workspace is as it was before group %d of batch %s: %d written, %d removed, %d unchanged.",
		w.Group+1, in.Batch, r.Written, r.Removed, r.Unchanged)
	if len(r.Left) > 0 {
		fmt.Fprintf(&text, " %d sockets or devices are gone and could not be made again.", len(r.Left))
	}
	if r.Owners > 0 {
		fmt.Fprintf(&text, " %d names have another owner than before.", r.Owners)
	}
	if r.Modes > 0 {
		fmt.Fprintf(&text, " %d directories of other users have another mode than before.", r.Modes)
	}
	return tool.Output{Text: text.String(), Structured: out}, nil
}
