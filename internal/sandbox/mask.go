package sandbox

import (
	"fmt"
	"os"

	places "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// hidden finds what is hidden in a workspace.
func hidden(root *os.Root, hides func(path string) bool) ([]places.Hidden, error) {
	if hides == nil {
		return nil, nil
	}
	found, err := places.Find(root, hides)
	if err != nil {
		return nil, fmt.Errorf("%w: look for what permission rules hide in the workspace: %w", ErrViolation, err)
	}
	return found, nil
}

// mask plans what is mounted over hidden files and directories: one file and one directory that nobody can open.
func (r *root) mask(masks []stage.Mask) {
	if len(masks) == 0 {
		return
	}
	r.dir(stage.MaskDir, 0)
	r.spec.Files = append(r.spec.Files, stage.File{Path: stage.MaskFile})
	r.spec.Masks = masks
}
